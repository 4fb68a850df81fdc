// The kinds of stores that this build has, for suites that run on each of them.
#pragma once

#include <string>
#include <vector>

namespace penstock::store {

inline std::vector<std::string> test_schemes() {
  return {
#define PENSTOCK_BACKEND(scheme, function) #scheme,
#define PENSTOCK_NO_BACKEND(scheme, advice)
#include "store/backends.def"
#undef PENSTOCK_BACKEND
#undef PENSTOCK_NO_BACKEND
  };
}

}  // namespace penstock::store
