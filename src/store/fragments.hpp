// An ordered set of disjoint fragments: where the bytes of a version lie. It consists of immutable blocks, so a copy
// shares all of them, and a version shares with its predecessor what it did not write.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace penstock::store {

/// A range of a blob whose bytes lie in one source.
struct Fragment {
  std::uint64_t offset_bytes = 0;
  std::uint64_t size_bytes = 0;
  std::uint64_t source_offset_bytes = 0;
  std::uint32_t source = 0;  ///< a number; the owner of the fragments defines its meaning

  std::uint64_t end_bytes() const { return offset_bytes + size_bytes; }
};

/// Copies are cheap: they share blocks. A const object may be read by several threads at once.
class Fragments {
 public:
  std::size_t count() const { return count_; }

  /// Inserts `run`, replacing the parts of fragments that it covers. `run` is ascending and disjoint, and no fragment
  /// in it is empty.
  void place(std::span<const Fragment> run);
  /// Removes the parts of fragments in [offset, offset + size).
  void clear(std::uint64_t offset_bytes, std::uint64_t size_bytes);
  void clear_all();

  /// Replaces each source s by numbers[s].
  void renumber(std::span<const std::uint32_t> numbers);

  template <typename Visitor>
  void for_each(const Visitor& visitor) const {
    for (const auto& block : blocks_) {
      for (const Fragment& fragment : *block) visitor(fragment);
    }
  }

  /// Calls visitor(fragment) for fragments that overlap [offset, end), in order.
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

  /// The last block that begins at or before an offset; the first block if there is none.
  std::size_t block_of(std::uint64_t offset_bytes) const;
  /// The first fragment in a block whose end is greater than an offset.
  static std::size_t first_behind(const Block& block, std::uint64_t offset_bytes);
  /// Replaces blocks [first, last) by blocks of these fragments.
  void replace(std::size_t first, std::size_t last, Block fragments);

  std::vector<std::shared_ptr<const Block>> blocks_;  ///< none is empty
  std::size_t count_ = 0;
};

}  // namespace penstock::store
