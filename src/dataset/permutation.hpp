// A pseudo-random permutation that is computed, not stored.
#pragma once

#include <array>
#include <cstdint>

namespace penstock::dataset {

/// A bijection of [0, size) with key (seed, epoch): a Feistel network over the next larger even power of two, applied
/// again until the result is below `size` ("cycle walking": Black and Rogaway, "Ciphers with Arbitrary Finite Domains",
/// CT-RSA 2002). Its values never change, since saved states rely on them. Immutable and thread-safe.
class Permutation {
 public:
  Permutation(std::uint64_t seed, std::uint64_t epoch, std::uint64_t size);
  std::uint64_t operator()(std::uint64_t position) const;
  std::uint64_t inverse(std::uint64_t value) const;

 private:
  static constexpr int kRounds = 6;
  std::uint64_t size_;
  int half_bits_;
  std::uint64_t half_mask_;
  std::array<std::uint64_t, kRounds> keys_;
};

}  // namespace penstock::dataset
