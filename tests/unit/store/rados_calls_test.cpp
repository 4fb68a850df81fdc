// Compares the declarations of librados with its own header, if that is installed.
#include "store/rados_calls.hpp"

#include <gtest/gtest.h>

#if __has_include(<rados/librados.h>)
#include <rados/librados.h>

#include <type_traits>

namespace penstock::store {

#define PENSTOCK_RADOS_CALL(name, result, arguments) \
  static_assert(std::is_same_v<decltype(&rados_##name), decltype(RadosCalls::name)>);
#include "store/rados_calls.def"
#undef PENSTOCK_RADOS_CALL

}  // namespace penstock::store
#endif

namespace {

TEST(RadosCalls, AreDeclaredAsInTheHeader) {
#if !__has_include(<rados/librados.h>)
  GTEST_SKIP() << "librados-dev is not installed";
#endif
}

}  // namespace
