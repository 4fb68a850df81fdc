#include "scalapack/host.hpp"

#include <dlfcn.h>

#include <cstdio>
#include <cstring>

#include "penstock/error.hpp"

extern "C" penstock::Comm* penstock_kept_comm(int fortran_comm);

namespace penstock::scalapack {
namespace {

constexpr Int kWhatCommunicator = 10;  // BLACS_GET: the system's handle of a context

using GridInfo = void (*)(const Int* context, Int* rows, Int* columns, Int* row, Int* column);
using Get = void (*)(const Int* context, const Int* what, Int* value);
using Xerbla = void (*)(const Int* context, const char* routine, const Int* info, std::size_t routine_length);

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
  std::fprintf(stderr, "{%5d,%5d}:  penstock: %s: %s\n", static_cast<int>(at.row), static_cast<int>(at.column), routine,
               text.c_str());
  std::fflush(stderr);
}

Grid grid_or_none(Int context) noexcept {
  try {
    return grid_of(context);
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

Grid grid_of(Int context) {
  static const auto grid_info = blacs<GridInfo>("blacs_gridinfo_");
  if (context < 0) return {};
  // Room for either length: what the BLACS writes tells which it has.
  union Answer {
    std::int64_t whole;
    Int value;
  };
  constexpr std::int64_t kUntouched = 0x5a5a'5a5a'5a5a'5a5a;
  const Answer given{.whole = context};
  Answer rows{kUntouched}, columns{kUntouched}, row{kUntouched}, column{kUntouched};
  grid_info(&given.value, &rows.value, &columns.value, &row.value, &column.value);
  const bool has_32_bits = rows.whole >> 32 == kUntouched >> 32;
  if (has_32_bits != (sizeof(Int) == 4))
    throw Error(ErrorCode::unsupported, has_32_bits ? "the BLACS of this process have integers of 32 bits (LP64); "
                                                      "use libpenstock_scalapack_<abi>, whose name has no ilp64"
                                                    : "the BLACS of this process have integers of 64 bits (ILP64); "
                                                      "use libpenstock_scalapack_ilp64_<abi>");
  return {rows.value, columns.value, row.value, column.value};
}

Comm& comm_of(Int context) {
  static const auto get = blacs<Get>("blacs_get_");
  Int fortran_comm = 0;
  get(&context, &kWhatCommunicator, &fortran_comm);
  return *penstock_kept_comm(static_cast<int>(fortran_comm));
}

void complain(Int context, const char* routine, int parameter, const std::string& text) noexcept {
  const Grid grid = grid_or_none(context);
  print(grid, routine, text);
  static const auto xerbla = symbol<Xerbla>("pxerbla_");
  if (xerbla != nullptr) {
    const Int info = parameter;
    xerbla(&context, routine, &info, std::strlen(routine));
  }
}

void warn(Int context, const char* routine, const std::string& text) noexcept {
  print(grid_or_none(context), routine, text);
}

}  // namespace penstock::scalapack
