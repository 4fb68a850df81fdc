// Transposition kernels that fill whole cache lines of the target from vector registers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace penstock::kernels {

/// to(outer, inner) = from(inner, outer): `from` is contiguous along `outer`, `to` along `inner`.
struct TransposeShape {
  std::size_t outer, inner;
  std::ptrdiff_t from_inner_bytes;  ///< between neighbours along `inner` in `from`
  std::ptrdiff_t to_outer_bytes;    ///< between neighbours along `outer` in `to`
};

/// to = alpha*from + beta*to; `sign` is that of the imaginary parts of the source.
struct Factors {
  double alpha_real = 1, alpha_imag = 0;
  double beta_real = 0, beta_imag = 0;
  double sign = 1;
};

enum class LineStore : std::uint8_t {
  plain,
  streamed,      ///< non-temporal stores; `to` and its stride are multiples of a cache line
  reads_target,  ///< beta is not 0
};
inline constexpr std::size_t kLineStores = 3;

/// The arithmetic on the elements.
enum class LineWork : std::uint8_t {
  move_4,
  move_8,
  move_16,
  scale_float32,
  scale_float64,
  scale_complex64,  ///< alpha and beta are real
  scale_complex128,
  multiply_complex64,  ///< alpha or beta is not
  multiply_complex128,
};
inline constexpr std::size_t kLineWorks = 9;
inline constexpr std::size_t kMoves = 3;  ///< the first kMoves are plain moves

/// For shapes that are multiples of its square. Any alignment, except for LineStore::streamed.
struct TransposeKernel {
  using Run = void (*)(const std::byte* from, std::byte* to, const TransposeShape& shape, const Factors& factors);
  Run run = nullptr;  ///< nullptr if there is none for these vectors
  std::size_t outer = 1, inner = 1;
  Run incomplete = nullptr;  ///< for less than one square along `inner`; nullptr if there is none. Any alignment
};

enum class Vectors : std::uint8_t;  // vectors.hpp

/// The kernel for these vectors; the processor must have them.
TransposeKernel transpose_kernel(Vectors vectors, LineWork work, LineStore store) noexcept;

}  // namespace penstock::kernels
