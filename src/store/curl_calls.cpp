#include "store/curl_calls.hpp"

#include <dlfcn.h>

#include <string>

#include "penstock/error.hpp"

namespace penstock::store {

namespace {

constexpr long kInitializeAll = 3;

struct Loaded {
  CurlCalls calls;
  std::string problem;

  Loaded() {
    void* library = nullptr;
    // Debian's second name is the same library with other cryptography.
    for (const char* const name : {"libcurl.so.4", "libcurl-gnutls.so.4"}) {
      if (library == nullptr) library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
      if (library == nullptr && problem.empty()) problem = ::dlerror();
    }
    if (library == nullptr) return;
    problem.clear();
#define PENSTOCK_CURL_CALL(name, result, arguments)                                    \
  calls.name = reinterpret_cast<result(*) arguments>(::dlsym(library, "curl_" #name)); \
  if (calls.name == nullptr && problem.empty()) problem = "it has no curl_" #name;
#define PENSTOCK_CURL_OPTION(name, number)
#include "store/curl_calls.def"
#undef PENSTOCK_CURL_CALL
#undef PENSTOCK_CURL_OPTION
    if (problem.empty() && calls.global_init(kInitializeAll) != 0) problem = "it cannot be initialized";
  }
};

}  // namespace

const CurlCalls& CurlCalls::load() {
  static const Loaded loaded;
  if (loaded.problem.empty()) return loaded.calls;
  throw Error(ErrorCode::unsupported,
              "s3: URLs need the library libcurl.so.4, which could not be loaded; install it (Debian and Ubuntu: "
              "libcurl4, Red Hat: libcurl)",
              -1, loaded.problem);
}

}  // namespace penstock::store
