// The kinds of stores in this build, for suites that run on each of them. `rados` needs a Ceph cluster. It is included
// if PENSTOCK_TEST_RADOS names a pool (rados://pool) of the cluster that CEPH_CONF describes; ./dev test --with-ceph
// sets both. `s3` needs a server of S3: it is included if PENSTOCK_TEST_S3 names a bucket (s3://bucket) of the server
// that AWS_ENDPOINT_URL and the credentials of AWS's variables describe; tests/s3 sets them.
#pragma once

#include <cstdlib>
#include <string>
#include <vector>

#include "unit/store/temporary_directory.hpp"

namespace penstock::store {

/// Where stores of a scheme go that needs a server; empty without one.
inline std::string test_place(const std::string& scheme) {
  const char* const place = std::getenv(scheme == "rados" ? "PENSTOCK_TEST_RADOS" : "PENSTOCK_TEST_S3");
  return place == nullptr ? "" : place;
}

inline bool needs_server(const std::string& scheme) { return scheme == "rados" || scheme == "s3"; }

inline std::vector<std::string> test_schemes() {
  std::vector<std::string> schemes = {
#define PENSTOCK_BACKEND(scheme, function) #scheme,
#include "store/backends.def"
#undef PENSTOCK_BACKEND
  };
  std::erase_if(schemes, [](const std::string& scheme) { return needs_server(scheme) && test_place(scheme).empty(); });
  return schemes;
}

/// The URL of a store for one test.
inline std::string test_url(const std::string& scheme, const TemporaryDirectory& directory) {
  return (needs_server(scheme) ? test_place(scheme) : scheme + "://") + directory.path() + "/store";
}

}  // namespace penstock::store
