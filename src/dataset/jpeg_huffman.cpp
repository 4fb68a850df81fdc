#include "dataset/jpeg_huffman.hpp"

#include <bit>
#include <cstring>

#include <jerror.h>

namespace penstock::dataset {

namespace {

using Bits = JpegHuffman::Bits;
using Block = JpegHuffman::Block;
using Table = JpegHuffman::Table;

// The sanitizers cannot look behind the resolvers of such functions.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define PENSTOCK_SHIFT_CLONES __attribute__((target_clones("bmi2", "default")))
#else
#define PENSTOCK_SHIFT_CLONES
#endif

constexpr int kCoefficients = DCTSIZE2;
constexpr std::uint32_t kEndOfBlock = 128;
// A full buffer suffices for so many look-ups, and for the value that belongs to the last one.
constexpr int kLookUpsOfBuffer = (56 - 15) / JpegHuffman::kLookUpBits;

constexpr std::uint8_t kNaturalOrder[kCoefficients] = {0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,
                                                       12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6,  7,  14, 21, 28,
                                                       35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51,
                                                       58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63};

std::uint32_t entry_of(std::uint32_t symbol, std::uint32_t code_bits, bool dc) {
  const std::uint32_t value_bits = dc ? symbol : symbol & 15;
  std::uint32_t zeros = dc ? 0 : symbol >> 4;
  if (!dc && value_bits == 0 && zeros < 15) zeros = kEndOfBlock;
  return (code_bits + value_bits) | code_bits << 8 | value_bits << 16 | zeros << 24;
}

// Fills the buffer with 56 bits or more. What lies beyond `count` may be there already: the same bits come again.
// Giesen, "Reading bits in far too many ways", variant 4.
[[gnu::always_inline]] inline void fill(Bits& bits) {
  std::uint64_t word = 0;
  std::memcpy(&word, bits.next, sizeof word);
  if constexpr (std::endian::native == std::endian::little) word = __builtin_bswap64(word);
  bits.buffer |= word >> bits.count;
  bits.next += (63 - bits.count) >> 3;
  bits.count |= 56;
}

std::uint32_t long_code(const Table& table, std::uint64_t buffer, bool dc) {
  for (unsigned length = JpegHuffman::kLookUpBits + 1; length <= 16; ++length) {
    const auto code = static_cast<std::int32_t>(buffer >> (64 - length));
    if (code <= table.max_code[length])
      return entry_of(table.made_of.huffval[(table.first_value[length] + code) & 255], length, dc);
  }
  return 0;
}

int value_of(std::uint32_t bits, std::uint32_t size) {
  return size > 0 && bits >> (size - 1) == 0 ? static_cast<int>(bits) + 1 - (1 << size) : static_cast<int>(bits);
}

void pair_up(Table& table) {
  constexpr std::uint32_t kBits = JpegHuffman::kLookUpBits, kMask = (1U << kBits) - 1;
  struct Coefficient {
    std::uint32_t length = 0, zeros = 0;
    int value = 0;
  };
  const auto read = [&](std::uint32_t next, std::uint32_t known) -> Coefficient {
    const std::uint32_t entry = table.entries[next], length = entry & 255, size = entry >> 16 & 255;
    if (length == 0 || length > known) return {};
    return {length, entry >> 24, value_of(next >> (kBits - length) & ((1U << size) - 1), size)};
  };
  const auto low_half = [](int value) { return std::uint64_t{static_cast<std::uint16_t>(value)}; };
  for (std::uint32_t next = 0; next <= kMask; ++next) {
    const Coefficient first = read(next, kBits);
    std::uint64_t& pair = table.pairs[next];
    if (first.length == 0) {
      pair = std::uint64_t{table.entries[next]} << 32;
    } else if (first.zeros == kEndOfBlock) {
      pair = first.length | std::uint64_t{kEndOfBlock} << 8;  // and 0 in a place where it is already
    } else {
      const Coefficient second = read(next << first.length & kMask, kBits - first.length);
      const bool end = second.zeros == kEndOfBlock;
      const std::uint64_t place = first.zeros + 1, next_place = place + (end ? 0 : second.zeros);
      const std::uint64_t advance = second.length == 0 ? place : end ? place + kEndOfBlock : next_place + 1;
      pair = (first.length + second.length) | advance << 8 | std::uint64_t{first.zeros} << 16 | next_place << 24 |
             low_half(first.value) << 32 | low_half(second.value) << 48;
    }
  }
}

/// The entry of the next code, or 0 if there is no such code.
[[gnu::always_inline]] inline std::uint32_t look_up(const Table& table, const Bits& bits, bool dc) {
  const std::uint32_t entry = table.entries[bits.buffer >> (64 - JpegHuffman::kLookUpBits)];
  return __builtin_expect(entry != 0, 1) ? entry : long_code(table, bits.buffer, dc);
}

/// Takes a code and its value out of the buffer (ITU-T T.81, F.2.2.1: EXTEND).
[[gnu::always_inline]] inline int take(Bits& bits, std::uint32_t entry) {
  const std::uint64_t value = bits.buffer << (entry >> 8 & 63);
  const unsigned size = entry >> 16 & 63;
  const int magnitude = static_cast<int>(value >> 1 >> (63 - size));
  const int negative = static_cast<int>(~static_cast<std::int64_t>(value) >> 63);
  bits.buffer <<= entry & 63;
  bits.count -= entry & 63;
  return magnitude + (negative & (1 - (1 << size)));
}

/// False if there is a code that nobody has defined, or more coefficients than a block has.
[[gnu::always_inline]] inline bool decode_block(Bits& bits, const Table& dc, const Table& ac, unsigned& last_dc,
                                                JCOEF* block) {
  fill(bits);
  std::uint32_t entry = look_up(dc, bits, true);
  if (entry == 0) return false;
  last_dc += static_cast<unsigned>(take(bits, entry));
  block[0] = static_cast<JCOEF>(last_dc);
  unsigned at = 1;
  do {
    fill(bits);
    for (int i = 0; i < kLookUpsOfBuffer; ++i) {
      const std::uint64_t pair = ac.pairs[bits.buffer >> (64 - JpegHuffman::kLookUpBits)];
      const unsigned length = pair & 63, second = at + (pair >> 24 & 255);
      // What follows the last coefficient is another block's.
      if (__builtin_expect(length != 0 && second < kCoefficients, 1)) {
        block[kNaturalOrder[second]] = static_cast<JCOEF>(pair >> 48);
        block[kNaturalOrder[at + (pair >> 16 & 255)]] = static_cast<JCOEF>(pair >> 32 & 0xffff);
        at += pair >> 8 & 255;
        bits.buffer <<= length;
        bits.count -= length;
        if (at >= kCoefficients) return true;
        continue;
      }
      entry = length == 0 ? static_cast<std::uint32_t>(pair >> 32) : 0;
      if (entry == 0) {
        fill(bits);
        entry = look_up(ac, bits, false);
        if (entry == 0) return false;
      }
      at += entry >> 24;
      const int value = take(bits, entry);
      if (at >= kCoefficients) return at > kEndOfBlock;
      block[kNaturalOrder[at++]] = static_cast<JCOEF>(value);
      break;
    }
  } while (at < kCoefficients);
  return true;
}

PENSTOCK_SHIFT_CLONES bool decode_blocks(Bits& given, const Block* blocks, int count, unsigned* last_dc, JBLOCKROW* to,
                                         JCOEF* unused) {
  Bits bits = given;
  for (int i = 0; i < count; ++i) {
    const Block& block = blocks[i];
    if (!decode_block(bits, *block.dc, *block.ac, last_dc[block.component], to == nullptr ? unused : *to[i]))
      return false;
  }
  given = bits;
  return true;
}

}  // namespace

void JpegHuffman::reserve(std::size_t encoded_bytes) {
  constexpr std::size_t kKeptBytes = std::size_t{16} << 20;
  const std::size_t needed = encoded_bytes + kPaddingBytes;
  if (bytes_.size() < needed || (bytes_.size() > kKeptBytes && needed <= kKeptBytes)) {
    bytes_ = {};
    bytes_.resize(needed);
  }
}

bool JpegHuffman::begin(jpeg_decompress_struct& info) {
  info_ = nullptr;
  const bool baseline = info.data_precision == 8 && !info.progressive_mode && !info.arith_code && info.Ss == 0 &&
                        info.Se == DCTSIZE2 - 1 && info.Ah == 0 && info.Al == 0;
  // With several scans, libjpeg has decoded all of them by now.
  if (!baseline || info.unread_marker != 0 || info.comps_in_scan != info.num_components ||
      info.blocks_in_MCU > D_MAX_BLOCKS_IN_MCU || bytes_.size() < info.src->bytes_in_buffer + kPaddingBytes)
    return false;
  block_count_ = info.blocks_in_MCU;
  for (int i = 0; i < block_count_; ++i) {
    const int component = info.MCU_membership[i];
    const jpeg_component_info& its = *info.cur_comp_info[component];
    const JHUFF_TBL* dc = info.dc_huff_tbl_ptrs[its.dc_tbl_no];
    const JHUFF_TBL* ac = info.ac_huff_tbl_ptrs[its.ac_tbl_no];
    if (dc == nullptr || ac == nullptr) return false;
    blocks_[i] = {&dc_[its.dc_tbl_no], &ac_[its.ac_tbl_no], component};
    prepare(dc_[its.dc_tbl_no], made_dc_[its.dc_tbl_no], *dc, true);
    prepare(ac_[its.ac_tbl_no], made_ac_[its.ac_tbl_no], *ac, false);
  }
  info_ = &info;
  end_ = info.src->next_input_byte + info.src->bytes_in_buffer;
  until_restart_ = info.restart_interval;
  next_restart_ = 0;
  read_segment(info.src->next_input_byte);
  return true;
}

/// Most files have the same tables as the one before. libjpeg has checked them.
void JpegHuffman::prepare(Table& table, bool& made, const JHUFF_TBL& given, bool dc) {
  if (made && std::memcmp(table.made_of.bits, given.bits, sizeof given.bits) == 0 &&
      std::memcmp(table.made_of.huffval, given.huffval, sizeof given.huffval) == 0)
    return;
  made = true;
  table.made_of = given;
  std::memset(table.entries, 0, sizeof table.entries);
  std::uint32_t code = 0;
  int value = 0;
  for (unsigned length = 1; length <= 16; ++length, code <<= 1) {
    table.first_value[length] = value - static_cast<std::int32_t>(code);
    for (int i = 0; i < given.bits[length] && value < 256; ++i, ++value, ++code) {
      if (length > kLookUpBits || code >> length != 0) continue;
      const unsigned free_bits = kLookUpBits - length;
      const std::uint32_t entry = entry_of(given.huffval[value], length, dc);
      for (std::uint32_t rest = 0; rest < 1U << free_bits; ++rest) table.entries[code << free_bits | rest] = entry;
    }
    table.max_code[length] = given.bits[length] > 0 ? static_cast<std::int32_t>(code) - 1 : -1;
  }
  if (!dc) pair_up(table);
}

/// Copies up to the next marker, without the zeros that are stuffed behind bytes of 0xff.
void JpegHuffman::read_segment(const std::uint8_t* begin) {
  std::uint8_t* to = bytes_.data();
  const std::uint8_t* from = begin;
  for (;;) {
    const auto* found =
        static_cast<const std::uint8_t*>(std::memchr(from, 0xff, static_cast<std::size_t>(end_ - from)));
    const std::uint8_t* stop = found == nullptr ? end_ : found;
    std::memcpy(to, from, static_cast<std::size_t>(stop - from));
    to += stop - from;
    marker_ = stop;
    if (found == nullptr || end_ - found < 2 || found[1] != 0) break;
    *to++ = 0xff;
    from = found + 2;
  }
  size_bytes_ = static_cast<std::size_t>(to - bytes_.data());
  std::memset(to, 0, kPaddingBytes);
  bits_ = {bytes_.data(), 0, 0};
  for (unsigned& dc : last_dc_) dc = 0;
  // libjpeg goes on from here once all blocks are decoded.
  info_->src->next_input_byte = marker_;
  info_->src->bytes_in_buffer = static_cast<std::size_t>(end_ - marker_);
}

int JpegHuffman::restart() {
  while (end_ - marker_ >= 2 && marker_[1] == 0xff) ++marker_;
  if (end_ - marker_ < 2) return JWRN_JPEG_EOF;
  if (marker_[1] != JPEG_RST0 + next_restart_) return JWRN_MUST_RESYNC;
  next_restart_ = (next_restart_ + 1) % 8;
  until_restart_ = info_->restart_interval;
  read_segment(marker_ + 2);
  return 0;
}

int JpegHuffman::decode(JBLOCKROW* blocks) {
  if (info_->restart_interval > 0) {
    if (until_restart_ == 0)
      if (const int failure = restart()) return failure;
    --until_restart_;
  }
  if (!decode_blocks(bits_, blocks_, block_count_, last_dc_, blocks, unused_)) return JWRN_HUFF_BAD_CODE;
  // The padding holds more than an MCU can take.
  static_assert(kPaddingBytes > D_MAX_BLOCKS_IN_MCU * kCoefficients * 4 + 2 * sizeof(std::uint64_t));
  const std::size_t taken_bits = static_cast<std::size_t>(bits_.next - bytes_.data()) * 8 - bits_.count;
  if (taken_bits > size_bytes_ * 8) return marker_ == end_ ? JWRN_JPEG_EOF : JWRN_HIT_MARKER;
  return 0;
}

}  // namespace penstock::dataset
