// Elements in raw memory. User buffers may be unaligned, so every access is a memcpy, which compiles to one load or
// store.
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "penstock/types.hpp"

namespace penstock::kernels {

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

template <class T>
void store(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

// Member by member: loops over whole structures do not vectorize.
template <>
inline Float16 load<Float16>(const std::byte* at) {
  return {load<std::uint16_t>(at)};
}
template <>
inline BFloat16 load<BFloat16>(const std::byte* at) {
  return {load<std::uint16_t>(at)};
}
template <>
inline std::complex<float> load<std::complex<float>>(const std::byte* at) {
  return {load<float>(at), load<float>(at + sizeof(float))};
}
template <>
inline std::complex<double> load<std::complex<double>>(const std::byte* at) {
  return {load<double>(at), load<double>(at + sizeof(double))};
}
template <>
inline void store(std::byte* at, Float16 value) {
  store(at, value.bits);
}
template <>
inline void store(std::byte* at, BFloat16 value) {
  store(at, value.bits);
}
template <>
inline void store(std::byte* at, std::complex<float> value) {
  store(at, value.real());
  store(at + sizeof(float), value.imag());
}
template <>
inline void store(std::byte* at, std::complex<double> value) {
  store(at, value.real());
  store(at + sizeof(double), value.imag());
}

/// The unsigned type for integer arithmetic: it wraps without undefined behaviour and without promotion to int.
template <class T>
using Wrapping = std::conditional_t<(sizeof(T) < 4), std::uint32_t, std::make_unsigned_t<T>>;

}  // namespace penstock::kernels
