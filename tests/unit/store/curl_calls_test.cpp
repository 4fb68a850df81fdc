// Compares names and numbers of libcurl's declarations with its own header, if that is installed. Its types are its
// own.
#include "store/curl_calls.hpp"

#include <gtest/gtest.h>

#if __has_include(<curl/curl.h>)
#include <curl/curl.h>

#include <type_traits>

namespace penstock::store {

#define PENSTOCK_CURL_CALL(name, result, arguments) static_assert(std::is_pointer_v<decltype(&curl_##name)>);
#define PENSTOCK_CURL_OPTION(name, number) static_assert(static_cast<int>(CURLOPT_##name) == number);
#include "store/curl_calls.def"
#undef PENSTOCK_CURL_CALL
#undef PENSTOCK_CURL_OPTION

}  // namespace penstock::store
#endif

namespace {

TEST(CurlCalls, AreDeclaredAsInTheHeader) {
#if !__has_include(<curl/curl.h>)
  GTEST_SKIP() << "libcurl's header is not installed";
#endif
}

}  // namespace
