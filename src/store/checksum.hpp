// XXH3-128, the checksum of all stored bytes.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "penstock/types.hpp"

namespace penstock::store {

struct Checksum {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  friend bool operator==(const Checksum&, const Checksum&) = default;
};

Checksum checksum(ConstBytes data);
/// The checksum of the pieces, one after another.
Checksum checksum(std::span<const ConstBytes> pieces);
/// 32 hexadecimal digits, as `xxh128sum` prints them.
std::string to_string(const Checksum& sum);

}  // namespace penstock::store
