// The operations of reduce_ops.def on elements, and the types in which they compute.
#pragma once

#include <complex>
#include <concepts>
#include <cstdint>

#include "kernels/element.hpp"
#include "kernels/half.hpp"

namespace penstock::kernels {

// One function object per row of reduce_ops.def, callable for exactly the types for which defined_for() is true.
// NOLINTBEGIN(readability-identifier-naming): named as the rows are
namespace ops {

struct sum {
  template <std::integral T>
  T operator()(T a, T b) const {
    return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
  }
  template <std::floating_point T>
  T operator()(T a, T b) const {
    return a + b;
  }
  template <class T>
  std::complex<T> operator()(std::complex<T> a, std::complex<T> b) const {
    return a + b;
  }
};

struct prod {
  template <std::integral T>
  T operator()(T a, T b) const {
    return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
  }
  template <std::floating_point T>
  T operator()(T a, T b) const {
    return a * b;
  }
  // operator* of std::complex would call a library function per element, which handles infinities.
  template <class T>
  std::complex<T> operator()(std::complex<T> a, std::complex<T> b) const {
    return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
  }
};

template <class T>
concept Ordered = std::integral<T> || std::floating_point<T>;

struct min {
  template <Ordered T>
  T operator()(T a, T b) const {
    return b < a ? b : a;
  }
};

struct max {
  template <Ordered T>
  T operator()(T a, T b) const {
    return a < b ? b : a;
  }
};

struct band {
  template <std::integral T>
  T operator()(T a, T b) const {
    return static_cast<T>(a & b);
  }
};

struct bor {
  template <std::integral T>
  T operator()(T a, T b) const {
    return static_cast<T>(a | b);
  }
};

struct bxor {
  template <std::integral T>
  T operator()(T a, T b) const {
    return static_cast<T>(a ^ b);
  }
};

struct land {
  Bool8 operator()(Bool8 a, Bool8 b) const { return {static_cast<std::uint8_t>(a.value != 0 && b.value != 0)}; }
  template <std::integral T>
  T operator()(T a, T b) const {
    return static_cast<T>((a != 0) & (b != 0));
  }
};

struct lor {
  Bool8 operator()(Bool8 a, Bool8 b) const { return {static_cast<std::uint8_t>(a.value != 0 || b.value != 0)}; }
  template <std::integral T>
  T operator()(T a, T b) const {
    return static_cast<T>((a != 0) | (b != 0));
  }
};

struct lxor {
  Bool8 operator()(Bool8 a, Bool8 b) const { return {static_cast<std::uint8_t>((a.value != 0) != (b.value != 0))}; }
  template <std::integral T>
  T operator()(T a, T b) const {
    return static_cast<T>((a != 0) ^ (b != 0));
  }
};

// Of equal values, the one with the lower index wins, as in MPI.
struct minloc {
  template <class V, class P>
  Located<V, P> operator()(Located<V, P> a, Located<V, P> b) const {
    return a.value < b.value || (!(b.value < a.value) && a.place < b.place) ? a : b;
  }
};

struct maxloc {
  template <class V, class P>
  Located<V, P> operator()(Located<V, P> a, Located<V, P> b) const {
    return b.value < a.value || (!(a.value < b.value) && a.place < b.place) ? a : b;
  }
};

}  // namespace ops
// NOLINTEND(readability-identifier-naming)

// How a type is stored and in which type it is computed.
template <class T>
struct Arithmetical {
  using Computed = T;
  static T widen(T value) { return value; }
  static T narrow(T value) { return value; }
};
template <>
struct Arithmetical<Float16> {
  using Computed = float;
  static float widen(Float16 value) { return to_float(value); }
  static Float16 narrow(float value) { return to_float16(value); }
};
template <>
struct Arithmetical<BFloat16> {
  using Computed = float;
  static float widen(BFloat16 value) { return to_float(value); }
  static BFloat16 narrow(float value) { return to_bfloat16(value); }
};

}  // namespace penstock::kernels
