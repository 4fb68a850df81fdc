#include "store/compression.hpp"

#include <dlfcn.h>

#include <cstddef>

#include "penstock/error.hpp"

namespace penstock::store {

namespace {

struct ZstdCalls {
#define PENSTOCK_ZSTD_CALL(name, result, arguments) result(*name) arguments = nullptr;
#include "store/zstd_calls.def"
#undef PENSTOCK_ZSTD_CALL
};

struct LoadedZstd {
  ZstdCalls calls;
  std::string problem;

  LoadedZstd() {
    void* const library = ::dlopen("libzstd.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      problem = ::dlerror();
      return;
    }
#define PENSTOCK_ZSTD_CALL(name, result, arguments)                                    \
  calls.name = reinterpret_cast<result(*) arguments>(::dlsym(library, "ZSTD_" #name)); \
  if (calls.name == nullptr && problem.empty()) problem = "it has no ZSTD_" #name;
#include "store/zstd_calls.def"
#undef PENSTOCK_ZSTD_CALL
  }
};

const ZstdCalls& zstd() {
  static const LoadedZstd loaded;
  if (loaded.problem.empty()) return loaded.calls;
  throw Error(
      ErrorCode::unsupported,
      "compressed data needs the library libzstd.so.1, which could not be loaded; install it (Debian and Ubuntu: "
      "libzstd1, Red Hat: libzstd)",
      -1, loaded.problem);
}

void* made(void* context) {
  if (context == nullptr) throw Error(ErrorCode::no_space, "no memory for a context of zstd");
  return context;
}

}  // namespace

void check_compress_level(int level) {
  if (level == 0) return;
  const int most = zstd().maxCLevel();
  if (level >= 1 && level <= most) return;
  throw Error(ErrorCode::invalid_argument, "compress_level is " + std::to_string(level) +
                                               "; expected 0 (no compression) or a level of zstd, 1 to " +
                                               std::to_string(most));
}

Compressor::Compressor(int level) : context_(made(zstd().createCCtx())), level_(level) {}
Compressor::~Compressor() { zstd().freeCCtx(context_); }

std::uint64_t Compressor::compress(ConstBytes from, Bytes to) {
  const std::size_t result = zstd().compressCCtx(context_, to.data(), to.size(), from.data(), from.size(), level_);
  return zstd().isError(result) != 0 ? 0 : result;
}

Decompressor::Decompressor() : context_(made(zstd().createDCtx())) {}
Decompressor::~Decompressor() { zstd().freeDCtx(context_); }

std::string Decompressor::decompress(ConstBytes from, Bytes to) {
  const std::size_t result = zstd().decompressDCtx(context_, to.data(), to.size(), from.data(), from.size());
  if (zstd().isError(result) != 0) return zstd().getErrorName(result);
  if (result != to.size())
    return "it holds " + std::to_string(result) + " bytes; expected " + std::to_string(to.size());
  return {};
}

}  // namespace penstock::store
