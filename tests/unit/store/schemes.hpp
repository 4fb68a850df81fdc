// The kinds of stores in this build, for suites that run on each of them. `rados` needs a Ceph cluster. It is included
// if PENSTOCK_TEST_RADOS names a pool (rados://pool) of the cluster that CEPH_CONF describes; ./dev test --with-ceph
// sets both.
#pragma once

#include <cstdlib>
#include <string>
#include <vector>

#include "unit/store/temporary_directory.hpp"

namespace penstock::store {

inline std::string test_pool() {
  const char* const pool = std::getenv("PENSTOCK_TEST_RADOS");
  return pool == nullptr ? "" : pool;
}

inline std::vector<std::string> test_schemes() {
  std::vector<std::string> schemes = {
#define PENSTOCK_BACKEND(scheme, function) #scheme,
#define PENSTOCK_NO_BACKEND(scheme, advice)
#include "store/backends.def"
#undef PENSTOCK_BACKEND
#undef PENSTOCK_NO_BACKEND
  };
  if (test_pool().empty()) std::erase(schemes, "rados");
  return schemes;
}

/// The URL of a store for one test.
inline std::string test_url(const std::string& scheme, const TemporaryDirectory& directory) {
  return (scheme == "rados" ? test_pool() : scheme + "://") + directory.path() + "/store";
}

}  // namespace penstock::store
