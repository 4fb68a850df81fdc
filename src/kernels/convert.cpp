#include "kernels/convert.hpp"

#include <bit>
#include <cmath>
#include <complex>
#include <type_traits>

#include "kernels/element.hpp"
#include "kernels/half.hpp"

namespace penstock::kernels {
namespace {

template <class T>
inline constexpr bool kIsHalf = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;
template <class T>
inline constexpr bool kIsComplex = false;
template <class Real>
inline constexpr bool kIsComplex<std::complex<Real>> = true;
/// 0 integer, 1 real floating point, 2 complex. A conversion must not lower it.
template <class T>
inline constexpr int kKind = kIsComplex<T>           ? 2
                             : std::is_integral_v<T> ? 0
                                                     : 1;

/// Rounds to odd: the last bit records lost bits, so that a second rounding gives the same as a single one.
float to_float_odd(double value) {
  const auto nearest = static_cast<float>(value);
  const auto back = static_cast<double>(nearest);
  if (back == value || std::isnan(value)) return nearest;
  std::uint32_t bits = std::bit_cast<std::uint32_t>(nearest);
  if (std::abs(back) > std::abs(value)) --bits;
  return std::bit_cast<float>(bits | 1u);
}

template <class From>
auto widened(From value) {
  if constexpr (kIsHalf<From>)
    return to_float(value);
  else
    return value;
}

template <class To, class From>
To real_from(From given) {
  const auto value = widened(given);
  if constexpr (kIsHalf<To>) {
    float narrow;
    if constexpr (std::is_same_v<decltype(value), const float>)
      narrow = value;
    else
      narrow = to_float_odd(static_cast<double>(value));
    if constexpr (std::is_same_v<To, Float16>)
      return to_float16(narrow);
    else
      return to_bfloat16(narrow);
  } else {
    return static_cast<To>(value);
  }
}

template <class To, class From>
void convert(const std::byte* from, std::ptrdiff_t step_bytes, std::byte* to, std::size_t count) {
  const auto one = [](From value) -> To {
    if constexpr (kIsComplex<To> && kIsComplex<From>) {
      using Real = typename To::value_type;
      return {static_cast<Real>(value.real()), static_cast<Real>(value.imag())};
    } else if constexpr (kIsComplex<To>) {
      return {real_from<typename To::value_type>(value), 0};
    } else {
      return real_from<To>(value);
    }
  };
  if (step_bytes == sizeof(From)) {  // vectorizes
    for (std::size_t i = 0; i < count; ++i) store(to + i * sizeof(To), one(load<From>(from + i * sizeof(From))));
  } else {
    for (std::size_t i = 0; i < count; ++i, from += step_bytes) store(to + i * sizeof(To), one(load<From>(from)));
  }
}

template <class From>
Convert conversion_from(DType to) {
  const auto of = []<class To>(const To*) -> Convert {
    if constexpr (kKind<From> <= kKind<To>)
      return convert<To, From>;
    else
      return nullptr;
  };
  switch (to) {
#define PENSTOCK_DTYPE(name, type, size, numpy) \
  case DType::name:                             \
    return of(static_cast<const type*>(nullptr));
#include "penstock/dtypes.def"
#undef PENSTOCK_DTYPE
    default: return nullptr;
  }
}

}  // namespace

Convert conversion(DType from, DType to) noexcept {
  switch (from) {
#define PENSTOCK_DTYPE(name, type, size, numpy) \
  case DType::name:                             \
    return conversion_from<type>(to);
#include "penstock/dtypes.def"
#undef PENSTOCK_DTYPE
    default: return nullptr;
  }
}

}  // namespace penstock::kernels
