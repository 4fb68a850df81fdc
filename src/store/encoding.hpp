// Writes and reads the bytes of small objects: little-endian numbers, sealed by a checksum at the end.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "penstock/error.hpp"
#include "penstock/types.hpp"
#include "store/checksum.hpp"

namespace penstock::store {

static_assert(std::endian::native == std::endian::little, "numbers are stored as they lie in memory");

/// Builds the bytes of a small object, field by field.
class Encoder {
 public:
  template <typename Number>
  void number(Number value) {
    static_assert(std::is_integral_v<Number>);
    raw(std::as_bytes(std::span(&value, 1)));
  }
  /// LEB128: groups of 7 bits, lowest first, so that small numbers take one byte.
  void compact(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_.push_back(static_cast<std::byte>(value | 0x80));
    bytes_.push_back(static_cast<std::byte>(value));
  }
  /// As compact, with zigzag encoding: numbers near 0 take one byte, negative ones too.
  void compact_signed(std::int64_t value) {
    compact((static_cast<std::uint64_t>(value) << 1) ^ static_cast<std::uint64_t>(value >> 63));
  }
  void text(std::string_view value) {
    number(static_cast<std::uint32_t>(value.size()));
    raw(std::as_bytes(std::span(value.data(), value.size())));
  }
  void sum(const Checksum& value) {
    number(value.low);
    number(value.high);
  }
  void raw(ConstBytes value) {
    const std::size_t at = bytes_.size();
    bytes_.resize(at + value.size());  // not insert(): GCC 12 gives a false warning for it
    if (!value.empty()) std::memcpy(bytes_.data() + at, value.data(), value.size());
  }

  const std::vector<std::byte>& bytes() const { return bytes_; }
  std::vector<std::byte> take() { return std::move(bytes_); }

  /// Appends the checksum of everything before it, and takes the bytes.
  std::vector<std::byte> seal() {
    sum(checksum(ConstBytes(bytes_)));
    return std::move(bytes_);
  }

 private:
  std::vector<std::byte> bytes_;
};

/// Reads what an Encoder wrote, field by field. The caller owns `bytes` and `source`. Throws Error(corrupt), naming
/// `source`, if the bytes end early.
class Decoder {
 public:
  Decoder(ConstBytes bytes, std::string_view source) : bytes_(bytes), source_(source) {}

  template <typename Number>
  Number number() {
    Number value;
    std::memcpy(&value, raw(sizeof value).data(), sizeof value);
    return value;
  }
  std::uint64_t compact() {
    std::uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
      const auto group = static_cast<std::uint64_t>(raw(1)[0]);
      if (shift == 63 && group > 1) fail("has a number beyond 64 bits");
      value |= (group & 0x7f) << shift;
      if (group < 0x80) return value;
    }
  }
  std::int64_t compact_signed() {
    const std::uint64_t value = compact();
    return static_cast<std::int64_t>((value >> 1) ^ (~(value & 1) + 1));
  }
  std::string text() {
    const ConstBytes value = raw(number<std::uint32_t>());
    return {reinterpret_cast<const char*>(value.data()), value.size()};
  }
  Checksum sum() {
    const auto low = number<std::uint64_t>();
    return {low, number<std::uint64_t>()};
  }
  ConstBytes raw(std::uint64_t size_bytes) {
    if (size_bytes > bytes_.size() - at_) fail("ends at byte " + std::to_string(bytes_.size()) + "; expected more");
    at_ += size_bytes;
    return bytes_.subspan(at_ - size_bytes, size_bytes);
  }
  /// A count of entries of at least `each_bytes` that follow. Throws if they do not fit into the remaining bytes, so
  /// that a damaged count cannot exhaust the memory.
  std::uint64_t count(std::uint64_t each_bytes) { return bounded(number<std::uint64_t>(), each_bytes); }
  /// As count, for one that Encoder::compact wrote.
  std::uint64_t compact_count(std::uint64_t each_bytes) { return bounded(compact(), each_bytes); }
  /// Throws if bytes are left.
  void end() const {
    if (at_ != bytes_.size()) fail("goes on after its end at byte " + std::to_string(at_));
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorCode::corrupt, std::string(source_) + " " + what);
  }

 private:
  std::uint64_t bounded(std::uint64_t count, std::uint64_t each_bytes) const {
    if (count > (bytes_.size() - at_) / each_bytes) fail("counts " + std::to_string(count) + " entries, more than fit");
    return count;
  }

  ConstBytes bytes_;
  std::string_view source_;
  std::size_t at_ = 0;
};

/// Verifies the checksum that Encoder::seal appended, and returns the bytes before it. Throws Error(corrupt), naming
/// `source`.
inline ConstBytes unseal(ConstBytes sealed, std::string_view source) {
  constexpr std::size_t kSum = 16;
  if (sealed.size() < kSum) {
    throw Error(ErrorCode::corrupt, std::string(source) + " has " + std::to_string(sealed.size()) +
                                        " bytes; expected at least " + std::to_string(kSum));
  }
  const ConstBytes content = sealed.first(sealed.size() - kSum);
  const Checksum expected = Decoder(sealed.last(kSum), source).sum();
  const Checksum found = checksum(content);
  if (found != expected) {
    throw Error(ErrorCode::corrupt, std::string(source) + " is damaged: bytes 0 to " + std::to_string(content.size()) +
                                        " have checksum " + to_string(found) + "; expected " + to_string(expected));
  }
  return content;
}

}  // namespace penstock::store
