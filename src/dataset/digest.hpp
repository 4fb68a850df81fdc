// Digests of lists of samples.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/types.hpp"
#include "store/checksum.hpp"

namespace penstock::dataset {

/// Of texts and bytes; each counts with its length, so that no two lists look alike.
class Digest {
 public:
  void add(ConstBytes bytes) {
    const std::uint64_t size = bytes.size();
    append({reinterpret_cast<const std::byte*>(&size), sizeof size});
    if (size <= kBlockBytes) return append(bytes);
    const store::Checksum sum = store::checksum(bytes);
    append({reinterpret_cast<const std::byte*>(&sum), sizeof sum});
  }
  void add(std::string_view text) { add(std::as_bytes(std::span(text.data(), text.size()))); }
  std::string text() {
    flush();
    return store::to_string(sum_);
  }

 private:
  static constexpr std::size_t kBlockBytes = 4096;

  void append(ConstBytes bytes) {
    block_.insert(block_.end(), bytes.begin(), bytes.end());
    if (block_.size() >= kBlockBytes) flush();
  }
  void flush() {
    const ConstBytes pieces[] = {{reinterpret_cast<const std::byte*>(&sum_), sizeof sum_}, block_};
    sum_ = store::checksum(pieces);
    block_.clear();
  }

  store::Checksum sum_;
  std::vector<std::byte> block_;
};

}  // namespace penstock::dataset
