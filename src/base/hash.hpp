// Hashes of arguments. Equal in all processes of one run of a program; not stable between versions.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace penstock::base {

inline constexpr std::uint64_t kSeed = 0x9e3779b97f4a7c15u;

/// The hash of the sequence that `seed` is the hash of, followed by `word`.
constexpr std::uint64_t mix(std::uint64_t seed, std::uint64_t word) {
  seed = (std::rotl(seed, 27) ^ word) * 0xff51afd7ed558ccdu;
  return seed ^ seed >> 32;
}
inline std::uint64_t mix(std::uint64_t seed, std::string_view text) {
  seed = mix(seed, text.size());
  for (; !text.empty(); text.remove_prefix(text.size() < 8 ? text.size() : 8)) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data(), text.size() < 8 ? text.size() : 8);
    seed = mix(seed, word);
  }
  return seed;
}

}  // namespace penstock::base
