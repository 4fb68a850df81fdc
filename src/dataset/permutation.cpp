#include "dataset/permutation.hpp"

#include <algorithm>
#include <bit>
#include <cassert>

namespace penstock::dataset {

namespace {

// The finalizer of SplitMix64: every input bit reaches every output bit.
std::uint64_t split_mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// With fewer bits the rounds mix too little.
constexpr int kMinHalfBits = 3;

}  // namespace

Permutation::Permutation(std::uint64_t seed, std::uint64_t epoch, std::uint64_t size) : size_(size) {
  const int bits = size > 1 ? std::bit_width(size - 1) : 1;
  half_bits_ = std::max(kMinHalfBits, (bits + 1) / 2);
  half_mask_ = (std::uint64_t{1} << half_bits_) - 1;
  std::uint64_t key = split_mix(split_mix(seed) ^ epoch);
  for (std::uint64_t& k : keys_) k = key = split_mix(key);
}

std::uint64_t Permutation::operator()(std::uint64_t position) const {
  assert(position < size_);
  std::uint64_t x = position;
  do {
    std::uint64_t left = x >> half_bits_;
    std::uint64_t right = x & half_mask_;
    for (std::uint64_t key : keys_) {
      const std::uint64_t next = left ^ (split_mix(right ^ key) & half_mask_);
      left = right;
      right = next;
    }
    x = left << half_bits_ | right;
  } while (x >= size_);
  return x;
}

std::uint64_t Permutation::inverse(std::uint64_t value) const {
  assert(value < size_);
  std::uint64_t x = value;
  do {
    std::uint64_t left = x >> half_bits_;
    std::uint64_t right = x & half_mask_;
    for (auto key = keys_.rbegin(); key != keys_.rend(); ++key) {
      const std::uint64_t before = right ^ (split_mix(left ^ *key) & half_mask_);
      right = left;
      left = before;
    }
    x = left << half_bits_ | right;
  } while (x >= size_);
  return x;
}

}  // namespace penstock::dataset
