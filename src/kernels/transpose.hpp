// Transposes a block in memory. Squares one cache line wide are transposed in registers, so each cache line of either
// side is accessed once, for any strides.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/streaming.hpp"
#include "kernels/transpose_kernels.hpp"
#include "kernels/vectors.hpp"

namespace penstock::kernels {

namespace detail {

// Every x86-64 and ARMv8 processor has registers of 16 bytes.
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

/// Transposes a square of one register's lanes. row(i) is where row i begins; stride in bytes.
template <class T, bool kStreams = false>
inline void transpose_registers(const auto& row, std::byte* to, std::ptrdiff_t to_stride) {
  const auto store = [](std::byte* at, const void* values) {
    if constexpr (kStreams)
      stream_16(at, static_cast<const std::byte*>(values));
    else
      std::memcpy(at, values, 16);
  };
  if constexpr (sizeof(T) == 16) {
    store(to, row(0));
  } else {
    using L = Lanes<T>;
    constexpr std::size_t kLanes = L::kCount;
    typename L::Vector rows[kLanes], next[kLanes];
    for (std::size_t i = 0; i < kLanes; ++i) std::memcpy(&rows[i], row(i), 16);
    // Interleaving row i with row i + kLanes/2 rotates the bits of the index (row, lane) by one. log2(kLanes) such
    // rounds swap row and lane.
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

/// For a few elements, of which memcpy() would be most of the time.
template <class T>
inline void copy_elements(std::byte* to, const std::byte* from, std::size_t count) {
  constexpr std::size_t kLanes = std::max<std::size_t>(16 / sizeof(T), 1);
  for (; count >= kLanes; count -= kLanes, to += kLanes * sizeof(T), from += kLanes * sizeof(T))
    std::memcpy(to, from, kLanes * sizeof(T));
  for (; count > 0; --count, to += sizeof(T), from += sizeof(T)) std::memcpy(to, from, sizeof(T));
}

/// A kernel of this processor, and the part of the block that it can do.
struct Lines {
  TransposeKernel kernel;
  Factors factors;
};

template <class T, bool kIsMove, bool kStreams, class UpdateRow>
void transpose(const std::byte* from, std::byte* to, const TransposeShape& shape, const Lines& lines,
               const UpdateRow& update_row) {
  constexpr std::size_t kLanes = std::max<std::size_t>(16 / sizeof(T), 1);
  // Plain moves are stored directly; arithmetic gets rows that are long enough for a loop.
  constexpr std::size_t kComputed = sizeof(T) >= 16 ? 16 : sizeof(T) >= 4 ? 32 : 64;
  constexpr std::size_t kSquare = kIsMove ? std::clamp<std::size_t>(64 / sizeof(T), kLanes, 16) : kComputed;
  // Two more levels of blocking around the squares: parts that fit in the first-level cache, and parts one page wide,
  // so that each address translation is looked up once, for any distance of the rows.
  constexpr std::size_t kPart = 64;
  constexpr std::size_t kPage = 4096 / sizeof(T);
  constexpr auto kSize = static_cast<std::ptrdiff_t>(sizeof(T));

  const auto square = [&](std::size_t outer, std::size_t inner, std::size_t outer_count, std::size_t inner_count) {
    const std::byte* source =
        from + static_cast<std::ptrdiff_t>(inner) * shape.from_inner_bytes + static_cast<std::ptrdiff_t>(outer) * kSize;
    std::byte* target =
        to + static_cast<std::ptrdiff_t>(outer) * shape.to_outer_bytes + static_cast<std::ptrdiff_t>(inner) * kSize;
    // Rows of the source that a square lacks repeat its last one.
    const auto row = [&](std::size_t j) {
      return source + static_cast<std::ptrdiff_t>(std::min(j, inner_count - 1)) * shape.from_inner_bytes;
    };
    const bool is_whole = inner_count == kSquare;
    if (kIsMove && is_whole && outer_count == kSquare) {
      for (std::size_t i = 0; i < kSquare; i += kLanes)
        for (std::size_t j = 0; j < kSquare; j += kLanes)
          transpose_registers<T, kStreams>(
              [&](std::size_t k) { return row(j + k) + i * sizeof(T); },
              target + static_cast<std::ptrdiff_t>(i) * shape.to_outer_bytes + static_cast<std::ptrdiff_t>(j) * kSize,
              shape.to_outer_bytes);
      return;
    }
    alignas(64) std::byte tile[kSquare][kSquare * sizeof(T)];
    if (outer_count == kSquare) {
      for (std::size_t i = 0; i < kSquare; i += kLanes)
        for (std::size_t j = 0; j < inner_count; j += kLanes)
          transpose_registers<T>([&](std::size_t k) { return row(j + k) + i * sizeof(T); }, &tile[i][j * sizeof(T)],
                                 static_cast<std::ptrdiff_t>(sizeof tile[0]));
      for (std::size_t i = 0; i < kSquare; ++i) {
        std::byte* const line = target + static_cast<std::ptrdiff_t>(i) * shape.to_outer_bytes;
        if constexpr (kIsMove)
          copy_elements<T>(line, tile[i], inner_count);
        else
          update_row(tile[i], line, inner_count);
      }
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
  const auto squares = [&](std::size_t outer_begin, std::size_t inner_begin, std::size_t outer_end,
                           std::size_t inner_end) {
    over(outer_begin, outer_end, kSquare, [&](std::size_t outer, std::size_t outers) {
      over(inner_begin, inner_end, kSquare,
           [&](std::size_t inner, std::size_t inners) { square(outer, inner, outers, inners); });
    });
  };
  const auto part = [&](std::size_t outer, std::size_t inner, std::size_t outers, std::size_t inners) {
    if (lines.kernel.run == nullptr) return squares(outer, inner, outer + outers, inner + inners);
    const std::size_t whole_outers = outers - outers % lines.kernel.outer;
    const std::size_t whole_inners = inners - inners % lines.kernel.inner;
    const auto run = [&](TransposeKernel::Run kernel, std::size_t first, std::size_t count) {
      const auto i = static_cast<std::ptrdiff_t>(first);
      const auto o = static_cast<std::ptrdiff_t>(outer);
      if (whole_outers > 0 && count > 0)
        kernel(from + i * shape.from_inner_bytes + o * kSize, to + o * shape.to_outer_bytes + i * kSize,
               {whole_outers, count, shape.from_inner_bytes, shape.to_outer_bytes}, lines.factors);
    };
    run(lines.kernel.run, inner, whole_inners);
    if (lines.kernel.incomplete != nullptr)
      run(lines.kernel.incomplete, inner + whole_inners, inners - whole_inners);
    else
      squares(outer, inner + whole_inners, outer + whole_outers, inner + inners);
    squares(outer + whole_outers, inner, outer + outers, inner + inners);
  };
  over(0, shape.outer, kPage, [&](std::size_t page_outer, std::size_t page_outers) {
    over(0, shape.inner, kPage, [&](std::size_t page_inner, std::size_t page_inners) {
      over(page_inner, page_inner + page_inners, kPart, [&](std::size_t part_inner, std::size_t part_inners) {
        over(page_outer, page_outer + page_outers, kPart, [&](std::size_t part_outer, std::size_t part_outers) {
          part(part_outer, part_inner, part_outers, part_inners);
        });
      });
    });
  });
}

}  // namespace detail

/// The part of a transposition for a kernel: the work, and the factors if there are any.
struct LinesWork {
  LineWork work;
  bool reads_target = false;
  Factors factors = {};
};

struct TransposeMemory {
  bool streams;  ///< by non-temporal stores, if the rows of the target are aligned for them
  bool is_far;   ///< the source is not in the caches
};

namespace detail {

template <class T, bool kIsMove, bool kStreams, class UpdateRow>
void transpose_near(const std::byte* from, std::byte* to, const TransposeShape& shape, const LinesWork* work,
                    bool streams, const UpdateRow& update_row) {
  const auto lines = [&](LineStore store) -> Lines {
    if (work == nullptr) return {};
    return {transpose_kernel(widest_vectors(), work->work, work->reads_target ? LineStore::reads_target : store),
            work->factors};
  };
  if (streams) {
    // A square writes one cache line of each row, so the columns before the first line border come first.
    const std::size_t head_bytes = -reinterpret_cast<std::uintptr_t>(to) % kLineBytes;
    const std::size_t head = head_bytes / sizeof(T);
    const bool has_lines = shape.to_outer_bytes % static_cast<std::ptrdiff_t>(kLineBytes) == 0 &&
                           head_bytes % sizeof(T) == 0 && head < shape.inner && sizeof(T) >= 4;
    if (has_lines) {
      const auto skipped = static_cast<std::ptrdiff_t>(head);
      if (head > 0)
        transpose<T, kIsMove, false>(from, to, {shape.outer, head, shape.from_inner_bytes, shape.to_outer_bytes},
                                     lines(LineStore::plain), update_row);
      transpose<T, kIsMove, kStreams>(from + skipped * shape.from_inner_bytes, to + head_bytes,
                                      {shape.outer, shape.inner - head, shape.from_inner_bytes, shape.to_outer_bytes},
                                      lines(LineStore::streamed), update_row);
      return;
    }
  }
  transpose<T, kIsMove, false>(from, to, shape, lines(LineStore::plain), update_row);
}

}  // namespace detail

inline constexpr std::size_t kStagedRowBytes = 512;

/// Calls update_row(const std::byte* elements, std::byte* to, count) for pieces of rows of `to` that no kernel does.
/// With kIsMove it copies the elements itself.
template <class T, bool kIsMove, bool kStreams, class UpdateRow>
void transpose(const std::byte* from, std::byte* to, const TransposeShape& shape, const LinesWork* work,
               const TransposeMemory& memory, const UpdateRow& update_row) {
  if (!memory.is_far)
    return detail::transpose_near<T, kIsMove, kStreams>(from, to, shape, work, memory.streams, update_row);
  // First copies the rows of a part to a staging area. Reading across rows that are a power of two apart would evict
  // each cache line before all of it is used.
  constexpr std::size_t kOuters = kStagedRowBytes / sizeof(T), kInners = 64;
  constexpr std::size_t kStrideBytes = kStagedRowBytes + kLineBytes;  // no power of two
  constexpr std::size_t kLineElems = kLineBytes / sizeof(T);
  alignas(64) std::byte near[kInners * kStrideBytes];
  const std::size_t ahead = rows_ahead(std::min(kOuters, shape.outer) * sizeof(T));
  // Parts after the first one begin at a line of the target.
  const std::size_t head = (-reinterpret_cast<std::uintptr_t>(to) % kLineBytes) / sizeof(T);
  std::size_t inner_end = 0;
  for (std::size_t inner = 0; inner < shape.inner; inner = inner_end) {
    inner_end = std::min(shape.inner, inner + (inner == 0 && head > 0 ? head + kInners - kLineElems : kInners));
    const std::size_t inners = inner_end - inner;
    const std::byte* const rows = from + static_cast<std::ptrdiff_t>(inner) * shape.from_inner_bytes;
    for (std::size_t outer = 0; outer < shape.outer; outer += kOuters) {
      const std::size_t outers = std::min(kOuters, shape.outer - outer);
      const std::byte* const part = rows + outer * sizeof(T);
      const auto row = [&](std::size_t i) { return part + static_cast<std::ptrdiff_t>(i) * shape.from_inner_bytes; };
      const std::byte* const next = outer + kOuters < shape.outer ? part + kStagedRowBytes
                                    : inner_end < shape.inner
                                        ? rows + static_cast<std::ptrdiff_t>(inners) * shape.from_inner_bytes
                                        : part;
      for (std::size_t i = 0; i < inners; ++i)
        copy_far_row(near + i * kStrideBytes, row(i), outers * sizeof(T),
                     i + ahead < inners
                         ? row(i + ahead)
                         : next + static_cast<std::ptrdiff_t>(i + ahead - inners) * shape.from_inner_bytes);
      detail::transpose_near<T, kIsMove, kStreams>(
          near, to + static_cast<std::ptrdiff_t>(outer) * shape.to_outer_bytes + inner * sizeof(T),
          {outers, inners, static_cast<std::ptrdiff_t>(kStrideBytes), shape.to_outer_bytes}, work, memory.streams,
          update_row);
    }
  }
}

}  // namespace penstock::kernels
