#include "scalapack/host.hpp"

#include <dlfcn.h>

#include <cstdio>
#include <cstring>

#include "penstock/error.hpp"

extern "C" penstock::Comm* penstock_kept_comm(int fortran_comm);

namespace penstock::scalapack {
namespace {

constexpr int kWhatCommunicator = 10;  // BLACS_GET: the system's handle of a context

using GridInfo = void (*)(const int* context, int* rows, int* columns, int* row, int* column);
using Get = void (*)(const int* context, const int* what, int* value);
using Xerbla = void (*)(const int* context, const char* routine, const int* info, std::size_t routine_length);

/// Looked up when first needed: a program may load its ScaLAPACK after this library.
template <typename Function>
Function symbol(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
}

template <typename Function>
Function blacs(const char* name) {
  if (const auto found = symbol<Function>(name)) return found;
  throw Error(ErrorCode::unsupported, std::string("there is no ") + name +
                                          " in this process; link ScaLAPACK or the BLACS after libpenstock_scalapack, "
                                          "or load it with RTLD_GLOBAL");
}

void print(const Grid& at, const char* routine, const std::string& text) noexcept {
  std::fprintf(stderr, "{%5d,%5d}:  penstock: %s: %s\n", at.row, at.column, routine, text.c_str());
  std::fflush(stderr);
}

Grid grid_or_none(int context) noexcept {
  try {
    return grid_of(context);
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

Grid grid_of(int context) {
  static const auto grid_info = blacs<GridInfo>("blacs_gridinfo_");
  Grid grid;
  if (context >= 0) grid_info(&context, &grid.rows, &grid.columns, &grid.row, &grid.column);
  return grid;
}

Comm& comm_of(int context) {
  static const auto get = blacs<Get>("blacs_get_");
  int fortran_comm = 0;
  get(&context, &kWhatCommunicator, &fortran_comm);
  return *penstock_kept_comm(fortran_comm);
}

void complain(int context, const char* routine, int parameter, const std::string& text) noexcept {
  const Grid grid = grid_or_none(context);
  print(grid, routine, text);
  static const auto xerbla = symbol<Xerbla>("pxerbla_");
  if (xerbla != nullptr) xerbla(&context, routine, &parameter, std::strlen(routine));
}

void warn(int context, const char* routine, const std::string& text) noexcept {
  print(grid_or_none(context), routine, text);
}

}  // namespace penstock::scalapack
