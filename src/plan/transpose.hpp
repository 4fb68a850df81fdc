// The transposition of a block in memory: squares that are one cache line wide change sides in registers, so that each
// line of either side is touched once however far apart the lines lie.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "plan/streaming.hpp"

namespace penstock::plan {

/// to(outer, inner) = from(inner, outer): `from` is contiguous along `outer`, `to` along `inner`.
struct TransposeShape {
  std::size_t outer, inner;
  std::ptrdiff_t from_inner_bytes;  ///< between neighbours along `inner` in `from`
  std::ptrdiff_t to_outer_bytes;    ///< between neighbours along `outer` in `to`
};

namespace detail {

// 16 bytes are the widest registers that every x86-64 and ARMv8 has.
template <class T>
struct Lanes {
  static constexpr std::size_t kCount = 16 / sizeof(T);
  using Bits = std::conditional_t<sizeof(T) == 1, std::uint8_t,
                                  std::conditional_t<sizeof(T) == 2, std::uint16_t,
                                                     std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>>;
  typedef Bits Vector __attribute__((vector_size(16)));

  static Vector low(Vector a, Vector b) { return interleave<0>(a, b); }
  static Vector high(Vector a, Vector b) { return interleave<kCount / 2>(a, b); }

 private:
  template <int kFrom>
  static Vector interleave(Vector a, Vector b) {
    constexpr int kLanes = static_cast<int>(kCount);
    if constexpr (kLanes == 2)
      return __builtin_shufflevector(a, b, kFrom, kLanes + kFrom);
    else if constexpr (kLanes == 4)
      return __builtin_shufflevector(a, b, kFrom, kLanes + kFrom, kFrom + 1, kLanes + kFrom + 1);
    else if constexpr (kLanes == 8)
      return __builtin_shufflevector(a, b, kFrom, kLanes + kFrom, kFrom + 1, kLanes + kFrom + 1, kFrom + 2,
                                     kLanes + kFrom + 2, kFrom + 3, kLanes + kFrom + 3);
    else
      return __builtin_shufflevector(a, b, kFrom, kLanes + kFrom, kFrom + 1, kLanes + kFrom + 1, kFrom + 2,
                                     kLanes + kFrom + 2, kFrom + 3, kLanes + kFrom + 3, kFrom + 4, kLanes + kFrom + 4,
                                     kFrom + 5, kLanes + kFrom + 5, kFrom + 6, kLanes + kFrom + 6, kFrom + 7,
                                     kLanes + kFrom + 7);
  }
};

/// Transposes a square of one register's lanes; strides in bytes.
template <class T, bool kStreams = false>
inline void transpose_registers(const std::byte* from, std::ptrdiff_t from_stride, std::byte* to,
                                std::ptrdiff_t to_stride) {
  const auto store = [](std::byte* at, const void* row) {
    if constexpr (kStreams)
      stream_16(at, static_cast<const std::byte*>(row));
    else
      std::memcpy(at, row, 16);
  };
  if constexpr (sizeof(T) == 16) {
    store(to, from);
  } else {
    using L = Lanes<T>;
    constexpr std::size_t kLanes = L::kCount;
    typename L::Vector rows[kLanes], next[kLanes];
    for (std::size_t i = 0; i < kLanes; ++i)
      std::memcpy(&rows[i], from + static_cast<std::ptrdiff_t>(i) * from_stride, 16);
    // Interleaving row i with row i + kLanes/2 rotates the bits of the index (row, lane) by one; log2(kLanes) of them
    // swap both.
    for (std::size_t stage = 1; stage < kLanes; stage *= 2) {
      for (std::size_t i = 0; i < kLanes / 2; ++i) {
        next[2 * i] = L::low(rows[i], rows[i + kLanes / 2]);
        next[2 * i + 1] = L::high(rows[i], rows[i + kLanes / 2]);
      }
      for (std::size_t i = 0; i < kLanes; ++i) rows[i] = next[i];
    }
    for (std::size_t i = 0; i < kLanes; ++i) store(to + static_cast<std::ptrdiff_t>(i) * to_stride, &rows[i]);
  }
}

template <class T, bool kIsMove, bool kStreams, class UpdateRow>
void transpose(const std::byte* from, std::byte* to, const TransposeShape& shape, const UpdateRow& update_row) {
  constexpr std::size_t kLanes = std::max<std::size_t>(16 / sizeof(T), 1);
  // Moves go to their place at once; what is computed gets rows that are long enough for a loop.
  constexpr std::size_t kComputed = sizeof(T) >= 16 ? 16 : sizeof(T) >= 4 ? 32 : 64;
  constexpr std::size_t kSquare = kIsMove ? std::clamp<std::size_t>(64 / sizeof(T), kLanes, 16) : kComputed;
  // Around the squares, parts that the first-level cache holds, and around those, parts that a page is wide, so that
  // the translation of an address is looked up once however far apart the rows lie.
  constexpr std::size_t kPart = 64;
  constexpr std::size_t kPage = 4096 / sizeof(T);
  constexpr auto kSize = static_cast<std::ptrdiff_t>(sizeof(T));

  const auto square = [&](std::size_t outer, std::size_t inner, std::size_t outer_count, std::size_t inner_count) {
    const std::byte* source =
        from + static_cast<std::ptrdiff_t>(inner) * shape.from_inner_bytes + static_cast<std::ptrdiff_t>(outer) * kSize;
    std::byte* target =
        to + static_cast<std::ptrdiff_t>(outer) * shape.to_outer_bytes + static_cast<std::ptrdiff_t>(inner) * kSize;
    const bool is_whole = outer_count == kSquare && inner_count == kSquare;
    if (kIsMove && is_whole) {
      for (std::size_t i = 0; i < kSquare; i += kLanes)
        for (std::size_t j = 0; j < kSquare; j += kLanes)
          transpose_registers<T, kStreams>(
              source + static_cast<std::ptrdiff_t>(j) * shape.from_inner_bytes + static_cast<std::ptrdiff_t>(i) * kSize,
              shape.from_inner_bytes,
              target + static_cast<std::ptrdiff_t>(i) * shape.to_outer_bytes + static_cast<std::ptrdiff_t>(j) * kSize,
              shape.to_outer_bytes);
      return;
    }
    alignas(64) std::byte tile[kSquare][kSquare * sizeof(T)];
    if (is_whole) {
      for (std::size_t i = 0; i < kSquare; i += kLanes)
        for (std::size_t j = 0; j < kSquare; j += kLanes)
          transpose_registers<T>(
              source + static_cast<std::ptrdiff_t>(j) * shape.from_inner_bytes + static_cast<std::ptrdiff_t>(i) * kSize,
              shape.from_inner_bytes, &tile[i][j * sizeof(T)], static_cast<std::ptrdiff_t>(sizeof tile[0]));
      for (std::size_t i = 0; i < kSquare; ++i)
        update_row(tile[i], target + static_cast<std::ptrdiff_t>(i) * shape.to_outer_bytes, kSquare);
      return;
    }
    for (std::size_t j = 0; j < inner_count; ++j, source += shape.from_inner_bytes)
      for (std::size_t i = 0; i < outer_count; ++i)
        std::memcpy(&tile[i][j * sizeof(T)], source + i * sizeof(T), sizeof(T));
    for (std::size_t i = 0; i < outer_count; ++i)
      update_row(tile[i], target + static_cast<std::ptrdiff_t>(i) * shape.to_outer_bytes, inner_count);
  };

  const auto over = [](std::size_t begin, std::size_t end, std::size_t step, const auto& visit) {
    for (std::size_t at = begin; at < end; at += step) visit(at, std::min(step, end - at));
  };
  over(0, shape.outer, kPage, [&](std::size_t page_outer, std::size_t page_outers) {
    over(0, shape.inner, kPage, [&](std::size_t page_inner, std::size_t page_inners) {
      over(page_inner, page_inner + page_inners, kPart, [&](std::size_t part_inner, std::size_t part_inners) {
        over(page_outer, page_outer + page_outers, kPart, [&](std::size_t part_outer, std::size_t part_outers) {
          over(part_outer, part_outer + part_outers, kSquare, [&](std::size_t outer, std::size_t outers) {
            over(part_inner, part_inner + part_inners, kSquare,
                 [&](std::size_t inner, std::size_t inners) { square(outer, inner, outers, inners); });
          });
        });
      });
    });
  });
}

}  // namespace detail

/// Calls update_row(const std::byte* elements, std::byte* to, count) for pieces of rows of `to`, or moves elements
/// where kIsMove; with kStreams past the caches where the rows of the target allow it.
template <class T, bool kIsMove, bool kStreams, class UpdateRow>
void transpose(const std::byte* from, std::byte* to, const TransposeShape& shape, const UpdateRow& update_row) {
  if constexpr (kStreams) {
    // A square writes one line of each row: begin with the columns before the first border of a line.
    const std::size_t head_bytes = -reinterpret_cast<std::uintptr_t>(to) % kLineBytes;
    const std::size_t head = head_bytes / sizeof(T);
    const bool has_lines = shape.to_outer_bytes % static_cast<std::ptrdiff_t>(kLineBytes) == 0 &&
                           head_bytes % sizeof(T) == 0 && head < shape.inner && sizeof(T) >= 4;
    if (has_lines) {
      const auto skipped = static_cast<std::ptrdiff_t>(head);
      if (head > 0)
        detail::transpose<T, kIsMove, false>(
            from, to, {shape.outer, head, shape.from_inner_bytes, shape.to_outer_bytes}, update_row);
      detail::transpose<T, kIsMove, true>(
          from + skipped * shape.from_inner_bytes, to + head_bytes,
          {shape.outer, shape.inner - head, shape.from_inner_bytes, shape.to_outer_bytes}, update_row);
      return;
    }
  }
  detail::transpose<T, kIsMove, false>(from, to, shape, update_row);
}

}  // namespace penstock::plan
