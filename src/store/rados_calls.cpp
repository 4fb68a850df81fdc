#include "store/rados_calls.hpp"

#include <dlfcn.h>

#include <string>

#include "penstock/error.hpp"

namespace penstock::store {

namespace {

constexpr const char* kLibrary = "librados.so.2";

struct Loaded {
  RadosCalls calls;
  std::string problem;

  Loaded() {
    void* const library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      problem = ::dlerror();
      return;
    }
#define PENSTOCK_RADOS_CALL(name, result, arguments)                                    \
  calls.name = reinterpret_cast<result(*) arguments>(::dlsym(library, "rados_" #name)); \
  if (calls.name == nullptr && problem.empty()) problem = "it has no rados_" #name;
#include "store/rados_calls.def"
#undef PENSTOCK_RADOS_CALL
  }
};

}  // namespace

const RadosCalls& RadosCalls::load() {
  static const Loaded loaded;
  if (loaded.problem.empty()) return loaded.calls;
  throw Error(ErrorCode::unsupported,
              "rados: URLs need Ceph's library " + std::string(kLibrary) +
                  ", which could not be loaded; install it (Debian and Ubuntu: librados2, Red Hat: librados2)",
              -1, loaded.problem);
}

}  // namespace penstock::store
