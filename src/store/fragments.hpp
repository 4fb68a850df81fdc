// Where the bytes of a version lie: disjoint fragments by offset. Kept in blocks that never change, so that a copy
// shares them all, and a version shares with its predecessor what it did not write.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace penstock::store {

struct Fragment {
  std::uint64_t offset_bytes = 0;
  std::uint64_t size_bytes = 0;
  std::uint64_t source_offset_bytes = 0;
  std::uint32_t source = 0;  ///< what this number stands for is the owner's business

  std::uint64_t end_bytes() const { return offset_bytes + size_bytes; }
};

class Fragments {
 public:
  std::size_t count() const { return count_; }

  /// Puts ascending, disjoint fragments of at least one byte in place of what lies there.
  void place(std::span<const Fragment> run);
  /// Removes what lies in [offset, offset + size).
  void clear(std::uint64_t offset_bytes, std::uint64_t size_bytes);
  void clear_all();

  /// Gives all sources other numbers: `numbers` by the present ones.
  void renumber(std::span<const std::uint32_t> numbers);

  template <typename Visitor>
  void for_each(const Visitor& visitor) const {
    for (const auto& block : blocks_) {
      for (const Fragment& fragment : *block) visitor(fragment);
    }
  }

  /// Calls visitor(fragment) for those that touch [offset, end), in order.
  template <typename Visitor>
  void for_each_in(std::uint64_t offset_bytes, std::uint64_t end_bytes, const Visitor& visitor) const {
    for (std::size_t block = block_of(offset_bytes); block < blocks_.size(); ++block) {
      for (std::size_t i = first_behind(*blocks_[block], offset_bytes); i < blocks_[block]->size(); ++i) {
        const Fragment& fragment = (*blocks_[block])[i];
        if (fragment.offset_bytes >= end_bytes) return;
        visitor(fragment);
      }
    }
  }

 private:
  using Block = std::vector<Fragment>;

  /// The last block that begins at or before an offset, or the first one.
  std::size_t block_of(std::uint64_t offset_bytes) const;
  /// The first fragment of a block that ends behind an offset.
  static std::size_t first_behind(const Block& block, std::uint64_t offset_bytes);
  /// Puts the fragments in place of blocks [first, last).
  void replace(std::size_t first, std::size_t last, Block fragments);

  std::vector<std::shared_ptr<const Block>> blocks_;  ///< none is empty
  std::size_t count_ = 0;
};

}  // namespace penstock::store
