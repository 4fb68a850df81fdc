#include "checkpoint/digest.hpp"

#include "penstock/error.hpp"
#include "store/checksum.hpp"

namespace penstock::checkpoint {

namespace {

constexpr std::string_view kHexDigits = "0123456789abcdef";

}  // namespace

Digest digest(ConstBytes data) {
  const store::Checksum sum = store::checksum(data);
  Digest result;
  for (std::size_t i = 0; i < 8; ++i) {
    result[i] = static_cast<std::byte>(sum.high >> (56 - 8 * i));
    result[8 + i] = static_cast<std::byte>(sum.low >> (56 - 8 * i));
  }
  return result;
}

Digest digest(std::string_view text) { return digest(std::as_bytes(std::span(text.data(), text.size()))); }

std::string to_hex(const Digest& digest) {
  std::string hex;
  for (const std::byte byte : digest) {
    hex += kHexDigits[static_cast<std::size_t>(byte >> 4)];
    hex += kHexDigits[static_cast<std::size_t>(byte & std::byte{15})];
  }
  return hex;
}

Digest digest_from_hex(std::string_view hex) {
  Digest result;
  bool valid = hex.size() == 2 * result.size();
  for (std::size_t i = 0; valid && i < result.size(); ++i) {
    const std::size_t high = kHexDigits.find(hex[2 * i]);
    const std::size_t low = kHexDigits.find(hex[2 * i + 1]);
    valid = high != std::string_view::npos && low != std::string_view::npos;
    if (valid) result[i] = static_cast<std::byte>(high << 4 | low);
  }
  if (!valid) {
    throw Error(ErrorCode::corrupt,
                "'" + std::string(hex) + "' is not a checksum; expected 32 hexadecimal digits in lower case");
  }
  return result;
}

}  // namespace penstock::checkpoint
