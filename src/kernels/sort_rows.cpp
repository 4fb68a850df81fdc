#include "kernels/sort_rows.hpp"

#include <array>
#include <bit>
#include <limits>

namespace penstock::kernels {
namespace {

using Network = std::vector<std::pair<std::uint32_t, std::uint32_t>>;
using Sort = void (*)(const Network& network, const Rows& rows);

// Maps keys to signed integers, which processors can compare: the sign bit becomes the lowest bit, the top bit is
// flipped.
template <class Key>
[[gnu::always_inline]] inline Key to_key(Key value) {
  using Bits = std::make_unsigned_t<Key>;
  const auto bits = static_cast<Bits>(value);
  constexpr int kShift = std::numeric_limits<Bits>::digits - 1;
  constexpr Bits kTop = static_cast<Bits>(Bits{1} << kShift);
  return static_cast<Key>(static_cast<Bits>(static_cast<Bits>(bits << 1) | static_cast<Bits>(bits >> kShift)) ^ kTop);
}
template <class Key>
[[gnu::always_inline]] inline Key from_key(Key key) {
  using Bits = std::make_unsigned_t<Key>;
  constexpr int kShift = std::numeric_limits<Bits>::digits - 1;
  constexpr Bits kTop = static_cast<Bits>(Bits{1} << kShift);
  const auto bits = static_cast<Bits>(static_cast<Bits>(key) ^ kTop);
  return static_cast<Key>(static_cast<Bits>(static_cast<Bits>(bits >> 1) | static_cast<Bits>(bits << kShift)));
}

template <class Key>
[[gnu::always_inline]] inline Key* row_at(const Rows& rows, std::size_t index) {
  return reinterpret_cast<Key*>(rows.first + index * rows.stride_bytes);
}

template <class Key>
[[gnu::always_inline]] inline void sort(const Network& network, const Rows& rows) {
  const std::size_t columns = rows.row_bytes / sizeof(Key);
  for (std::size_t row = 0; row < rows.count; ++row) {
    Key* keys = row_at<Key>(rows, row);
    for (std::size_t i = 0; i < columns; ++i) keys[i] = to_key(keys[i]);
  }
  for (const auto& [first, second] : network) {
    Key* __restrict low = row_at<Key>(rows, first);
    Key* __restrict high = row_at<Key>(rows, second);
    for (std::size_t i = 0; i < columns; ++i) {
      const Key a = low[i];
      const Key b = high[i];
      low[i] = b < a ? b : a;
      high[i] = b < a ? a : b;
    }
  }
  for (std::size_t row = 0; row < rows.count; ++row) {
    Key* keys = row_at<Key>(rows, row);
    for (std::size_t i = 0; i < columns; ++i) keys[i] = from_key(keys[i]);
  }
}

template <class Key>
void sort_plain(const Network& network, const Rows& rows) {
  sort<Key>(network, rows);
}
#ifdef PENSTOCK_X86_VECTORS
template <class Key>
PENSTOCK_FOR_AVX2 void sort_avx2(const Network& network, const Rows& rows) {
  sort<Key>(network, rows);
}
template <class Key>
PENSTOCK_FOR_AVX512 void sort_avx512(const Network& network, const Rows& rows) {
  sort<Key>(network, rows);
}
#endif

template <class Key>
constexpr std::array<Sort, kVectors> sorts() {
#ifdef PENSTOCK_X86_VECTORS
  return {&sort_plain<Key>, &sort_avx2<Key>, &sort_avx512<Key>};
#else
  return {&sort_plain<Key>, &sort_plain<Key>, &sort_plain<Key>};
#endif
}

constexpr std::array kSorts = {sorts<std::int16_t>(), sorts<std::int32_t>(), sorts<std::int64_t>()};

const Network& network_for(std::uint32_t count) {
  thread_local Network network;
  thread_local std::uint32_t network_count = 0;
  if (network_count != count) {
    network = sorting_network(count);
    network_count = count;
  }
  return network;
}

}  // namespace

std::vector<std::pair<std::uint32_t, std::uint32_t>> sorting_network(std::uint32_t count) {
  Network network;
  if (count < 2) return network;
  const std::uint32_t top = std::bit_ceil(count) / 2;
  for (std::uint32_t p = top; p > 0; p /= 2) {
    std::uint32_t remainder = 0;
    std::uint32_t distance = p;
    for (std::uint32_t q = top;; q /= 2) {
      for (std::uint32_t i = 0; i + distance < count; ++i)
        if ((i & p) == remainder) network.emplace_back(i, i + distance);
      if (q == p) break;
      distance = q - p;
      remainder = p;
    }
  }
  return network;
}

void sort_columns(Vectors vectors, Keys keys, const Rows& rows) {
  kSorts[static_cast<std::size_t>(keys)][static_cast<std::size_t>(vectors)](
      network_for(static_cast<std::uint32_t>(rows.count)), rows);
}

}  // namespace penstock::kernels
