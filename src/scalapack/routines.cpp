// ScaLAPACK's names, as Fortran calls them and, for the redistributions, as C does.
#include <dlfcn.h>

#include <complex>

#include "penstock/export.hpp"
#include "scalapack/call.hpp"

namespace penstock::scalapack {
namespace {

std::complex<double> wide(double value) { return value; }
std::complex<double> wide(std::complex<float> value) { return {value.real(), value.imag()}; }
std::complex<double> wide(std::complex<double> value) { return value; }

constexpr Routine gemr2d(const char* name, DType dtype) {
  // M N A IA JA DESCA B IB JB DESCB ICTXT
  return {name, dtype, MatrixOp::none, Descriptors::redist, {'A', 4}, {'B', 8}};
}

constexpr Routine trmr2d(const char* name, DType dtype) {
  // UPLO DIAG M N A IA JA DESCA B IB JB DESCB ICTXT
  return {name, dtype, MatrixOp::none, Descriptors::redist, {'A', 6}, {'B', 10}, 3};
}

constexpr Routine tran(const char* name, DType dtype, MatrixOp op) {
  // M N ALPHA A IA JA DESCA BETA C IC JC DESCC
  return {name, dtype, op, Descriptors::pblas, {'A', 5}, {'C', 10}};
}

constexpr int kContextOfGemr2d = 11;
constexpr int kContextOfTrmr2d = 13;
constexpr int kContextOfTran = 702;

const void* library_of(const void* address) {
  Dl_info info;
  return dladdr(address, &info) != 0 ? info.dli_fbase : nullptr;
}

/// The same routine of another library: the next definition after this one, or any that the process has by this name.
template <typename Function>
Function next(const char* symbol, const char* routine, Int context) {
  static const char here = 0;
  for (void* const where : {RTLD_NEXT, RTLD_DEFAULT}) {
    void* const found = dlsym(where, symbol);
    if (found != nullptr && library_of(found) != library_of(&here)) return reinterpret_cast<Function>(found);
  }
  warn(
      context, routine,
      "only ScaLAPACK itself can move matrices whose first block is longer than the others, and this process has none; "
      "link ScaLAPACK after libpenstock_scalapack; nothing was moved");
  return nullptr;
}

}  // namespace
}  // namespace penstock::scalapack

using namespace penstock;
using scalapack::Call;
using scalapack::Int;
using scalapack::Routine;

// The Fortran name does not call the C name, since that may be resolved to another library.
#define PENSTOCK_GEMR2D(letter, name, dtype)                                                                     \
  static constexpr Routine k##letter##Gemr2d = scalapack::gemr2d(name, DType::dtype);                            \
  extern "C" PENSTOCK_API void Cp##letter##gemr2d(Int m, Int n, const void* a, Int ia, Int ja, const Int* desca, \
                                                  void* b, Int ib, Int jb, const Int* descb, Int context) {      \
    scalapack::run(k##letter##Gemr2d,                                                                            \
                   {m, n, a, desca, ia, ja, b, descb, ib, jb, context, scalapack::kContextOfGemr2d});            \
  }                                                                                                              \
  extern "C" PENSTOCK_API void p##letter##gemr2d_(const Int* m, const Int* n, const void* a, const Int* ia,      \
                                                  const Int* ja, const Int* desca, void* b, const Int* ib,       \
                                                  const Int* jb, const Int* descb, const Int* context) {         \
    scalapack::run(k##letter##Gemr2d,                                                                            \
                   {*m, *n, a, desca, *ia, *ja, b, descb, *ib, *jb, *context, scalapack::kContextOfGemr2d});     \
  }

#define PENSTOCK_TRMR2D(letter, name, dtype)                                                                       \
  static constexpr Routine k##letter##Trmr2d = scalapack::trmr2d(name, DType::dtype);                              \
  extern "C" PENSTOCK_API void Cp##letter##trmr2d(const char* uplo, const char* diag, Int m, Int n, const void* a, \
                                                  Int ia, Int ja, const Int* desca, void* b, Int ib, Int jb,       \
                                                  const Int* descb, Int context) {                                 \
    Call call{m, n, a, desca, ia, ja, b, descb, ib, jb, context, scalapack::kContextOfTrmr2d};                     \
    call.trapezoid = {*uplo, *diag};                                                                               \
    scalapack::run(k##letter##Trmr2d, call);                                                                       \
  }                                                                                                                \
  extern "C" PENSTOCK_API void p##letter##trmr2d_(                                                                 \
      const char* uplo, const char* diag, const Int* m, const Int* n, const void* a, const Int* ia, const Int* ja, \
      const Int* desca, void* b, const Int* ib, const Int* jb, const Int* descb, const Int* context) {             \
    Call call{*m, *n, a, desca, *ia, *ja, b, descb, *ib, *jb, *context, scalapack::kContextOfTrmr2d};              \
    call.trapezoid = {*uplo, *diag};                                                                               \
    scalapack::run(k##letter##Trmr2d, call);                                                                       \
  }

#define PENSTOCK_TRAN(symbol, name, scalar, dtype, op)                                                                 \
  extern "C" PENSTOCK_API void symbol##_(const Int* m, const Int* n, const scalar* alpha, const void* a,               \
                                         const Int* ia, const Int* ja, const Int* desca, const scalar* beta, void* c,  \
                                         const Int* ic, const Int* jc, const Int* descc) {                             \
    static constexpr Routine kRoutine = scalapack::tran(name, DType::dtype, MatrixOp::op);                             \
    if (scalapack::run(kRoutine, {*m, *n, a, desca, *ia, *ja, c, descc, *ic, *jc, desca[1], scalapack::kContextOfTran, \
                                  scalapack::wide(*alpha), scalapack::wide(*beta)}))                                   \
      return;                                                                                                          \
    static const auto theirs = scalapack::next<decltype(&symbol##_)>(#symbol "_", name, desca[1]);                     \
    if (theirs != nullptr) theirs(m, n, alpha, a, ia, ja, desca, beta, c, ic, jc, descc);                              \
  }

#include "scalapack/routines.def"
