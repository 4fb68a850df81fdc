// XXH3-128 checksums.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "penstock/types.hpp"

namespace penstock::checkpoint {

/// In canonical (big-endian) byte order, the same on every machine.
using Digest = std::array<std::byte, 16>;

Digest digest(ConstBytes data);
Digest digest(std::string_view text);
std::string to_hex(const Digest& digest);
/// Throws corrupt for anything but 32 hexadecimal digits.
Digest digest_from_hex(std::string_view hex);

}  // namespace penstock::checkpoint
