// XXH3-128 checksums.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "penstock/types.hpp"

namespace penstock::checkpoint {

/// In canonical (big-endian) byte order, equal on all machines.
using Digest = std::array<std::byte, 16>;

Digest digest(ConstBytes data);
Digest digest(std::string_view text);
std::string to_hex(const Digest& digest);
/// Throws Error(corrupt) unless `hex` is 32 hexadecimal digits in lower case.
Digest digest_from_hex(std::string_view hex);

}  // namespace penstock::checkpoint
