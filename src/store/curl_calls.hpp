// The functions of libcurl. They are loaded when a process opens its first s3: URL, so a build and a wheel do not need
// libcurl.
#pragma once

namespace penstock::store {

struct CurlCalls {
#define PENSTOCK_CURL_CALL(name, result, arguments) result(*name) arguments = nullptr;
#define PENSTOCK_CURL_OPTION(name, number)
#include "store/curl_calls.def"
#undef PENSTOCK_CURL_CALL
#undef PENSTOCK_CURL_OPTION

  enum Option : int {
#define PENSTOCK_CURL_CALL(name, result, arguments)
#define PENSTOCK_CURL_OPTION(name, number) name = number,
#include "store/curl_calls.def"
#undef PENSTOCK_CURL_CALL
#undef PENSTOCK_CURL_OPTION
  };

  /// Loads the library of this machine, once. Throws Error(unsupported); the message says what to install.
  static const CurlCalls& load();
};

}  // namespace penstock::store
