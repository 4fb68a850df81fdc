// Huffman decoding of baseline JPEG images, in place of libjpeg's.
#pragma once

#include <cstddef>
#include <cstdint>
// jpeglib.h needs it first.
#include <cstdio>
#include <vector>

#include <jpeglib.h>

namespace penstock::dataset {

/// Makes the coefficients of one image, MCU after MCU. One table look-up gives up to two coefficients with their
/// values, where libjpeg takes two steps for each one; and the stuffed bytes are removed beforehand, so that the bit
/// buffer is filled without a branch.
///
/// Throws nothing, as it is called by libjpeg, except for reserve().
class JpegHuffman {
 public:
  /// Takes memory for a file of so many bytes, once its header was read.
  void reserve(std::size_t encoded_bytes);
  /// After jpeg_start_decompress. False if libjpeg must decode the image: it is not baseline, has its coefficients
  /// already, or its data is not in one piece in memory.
  bool begin(jpeg_decompress_struct& info);
  /// The next MCU. `blocks` hold zeros; null: nobody needs the values. Gives 0, or the number of the warning that
  /// libjpeg would give.
  int decode(JBLOCKROW* blocks);

  static constexpr int kLookUpBits = 10;
  struct Table {
    /// By the next bits. Bits 0 to 7: length of the code and the value; 8 to 15: of the code; 16 to 23: of the value;
    /// 24 to 31: coefficients of 0 before it. 0 if the code is longer than the look-up.
    std::uint32_t entries[1 << kLookUpBits];
    /// Of one or two coefficients that the next bits hold with their values. Bits 0 to 7: length; 8 to 15: how far the
    /// place in the block advances; 16 to 23 and 24 to 31: places from there; 32 to 47 and 48 to 63: values. 0 if the
    /// bits do not suffice for one.
    std::uint64_t pairs[1 << kLookUpBits];
    std::int32_t max_code[17];  ///< by the length of the code; -1: there is none
    std::int32_t first_value[17];
    JHUFF_TBL made_of;
  };
  /// Of the bytes of a scan.
  struct Bits {
    const std::uint8_t* next;
    std::uint64_t buffer;  ///< the next bits come first
    unsigned count;        ///< of its bits that are valid
  };
  struct Block {
    const Table* dc;
    const Table* ac;
    int component;
  };

 private:
  static constexpr std::size_t kPaddingBytes = 4096;

  void prepare(Table& table, bool& made, const JHUFF_TBL& given, bool dc);
  void read_segment(const std::uint8_t* begin);
  int restart();

  std::vector<std::uint8_t> bytes_;  ///< up to the next marker, then zeros
  std::size_t size_bytes_ = 0;
  const std::uint8_t* marker_ = nullptr;
  const std::uint8_t* end_ = nullptr;
  jpeg_decompress_struct* info_ = nullptr;
  Bits bits_{};
  unsigned last_dc_[MAX_COMPS_IN_SCAN] = {};
  Block blocks_[D_MAX_BLOCKS_IN_MCU] = {};
  int block_count_ = 0;
  unsigned until_restart_ = 0;
  unsigned next_restart_ = 0;
  JBLOCK unused_ = {};
  Table dc_[NUM_HUFF_TBLS];
  Table ac_[NUM_HUFF_TBLS];
  bool made_dc_[NUM_HUFF_TBLS] = {};
  bool made_ac_[NUM_HUFF_TBLS] = {};
};

}  // namespace penstock::dataset
