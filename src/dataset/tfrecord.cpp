// TFRecord files: little-endian length (8 bytes), its masked CRC-32C (4), the content, its masked CRC-32C (4).
#include <array>
#include <cstdint>
#include <cstring>
#include <string>

#include "penstock/error.hpp"
#include "penstock/sample_index.hpp"

namespace penstock {

namespace {

constexpr std::uint64_t kHeaderBytes = 12;
constexpr std::uint64_t kFrameBytes = 16;

// Tables for eight bytes at a time (Kounavis and Berry, "A Systematic Approach to Building High Performance
// Software-Based CRC Generators", ISCC 2005).
using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78u : 0u);
    tables[0][byte] = crc;
  }
  for (std::size_t k = 1; k < 8; ++k)
    for (std::size_t byte = 0; byte < 256; ++byte)
      tables[k][byte] = (tables[k - 1][byte] >> 8) ^ tables[0][tables[k - 1][byte] & 255];
  return tables;
}

constexpr Tables kTables = make_tables();

std::uint32_t crc32c(ConstBytes bytes) {
  std::uint32_t crc = ~0u;
  const std::byte* p = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; left -= 8, p += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, p, sizeof word);
    word ^= crc;
    crc = 0;
    for (std::size_t k = 0; k < 8; ++k) crc ^= kTables[7 - k][(word >> (8 * k)) & 255];
  }
  for (; left > 0; --left, ++p) crc = (crc >> 8) ^ kTables[0][(crc ^ std::to_integer<std::uint32_t>(*p)) & 255];
  return ~crc;
}

void check(ConstBytes bytes, const std::byte* stored, const char* what) {
  std::uint32_t expected = 0;
  std::memcpy(&expected, stored, sizeof expected);
  const std::uint32_t crc = crc32c(bytes);
  if (((crc >> 15) | (crc << 17)) + 0xA282EAD8u != expected)
    throw Error(ErrorCode::corrupt, std::string("is a TFRecord with a wrong checksum of its ") + what);
}

}  // namespace

std::uint64_t tfrecord_size_bytes(ConstBytes header) {
  if (header.size() < kHeaderBytes)
    throw Error(ErrorCode::corrupt, "is a TFRecord that is cut off after " + std::to_string(header.size()) + " bytes");
  check(header.first(8), header.data() + 8, "length");
  std::uint64_t size = 0;
  std::memcpy(&size, header.data(), sizeof size);
  if (size > ~std::uint64_t{0} - kFrameBytes)
    throw Error(ErrorCode::corrupt, "is a TFRecord of " + std::to_string(size) + " bytes");
  return size + kFrameBytes;
}

ConstBytes tfrecord_content(ConstBytes record) {
  if (tfrecord_size_bytes(record) != record.size())
    throw Error(ErrorCode::corrupt, "is a TFRecord of another length than " + std::to_string(record.size()) + " bytes");
  const ConstBytes content = record.subspan(kHeaderBytes, record.size() - kFrameBytes);
  check(content, content.data() + content.size(), "content");
  return content;
}

}  // namespace penstock
