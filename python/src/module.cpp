// The extension module: runs the rows of bindings.def and translates penstock::Error to Python's penstock.Error.
#include <dlfcn.h>

#include <exception>
#include <string>

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "penstock/error.hpp"
#include "penstock/types.hpp"

namespace nb = nanobind;

#define PENSTOCK_BINDING(part) void bind_##part(nb::module_& module);
#include "bindings.def"
#undef PENSTOCK_BINDING

namespace {

void translate_error(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const penstock::Error& error) {
    const nb::object type = nb::module_::import_("penstock.error").attr("Error");
    const std::string code(penstock::name(error.code()));
    const nb::object made = type(error.message().c_str(), code.c_str(), error.rank(), error.cause().c_str());
    PyErr_SetObject(type.ptr(), made.ptr());
  }
}

/// The folder of libpenstock.so. The libraries for the MPI ABIs lie beside it, in a build tree and in a wheel.
std::string library_directory() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&penstock::dtype_from_name), &info) == 0 || info.dli_fname == nullptr)
    throw penstock::Error(penstock::ErrorCode::internal, "the dynamic linker does not know where libpenstock.so is");
  const std::string path = info.dli_fname;
  const auto slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

}  // namespace

NB_MODULE(_penstock, module) {
  nb::register_exception_translator(translate_error);
  module.attr("__version__") = PENSTOCK_VERSION;
  module.def("library_directory", &library_directory);
#define PENSTOCK_BINDING(part) bind_##part(module);
#include "bindings.def"
#undef PENSTOCK_BINDING
}
