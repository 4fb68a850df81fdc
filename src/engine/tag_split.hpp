// The tags of the transport under which the messages of a communicator travel.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace penstock::engine {

/// A tag names the slot of the operation, a few bits of its signature, and the tag of the message in the plan. The same
/// on all ranks. docs/design/network.md says why a message is never taken for another one.
class TagSplit {
 public:
  static constexpr int kControlTag = 0;
  static constexpr std::uint32_t kMostSlots = 512;  ///< what OperationTable remembers is longer

  /// `most_slots`: a power of two, at least 2.
  explicit TagSplit(int max_tag, std::uint32_t most_slots = kMostSlots) {
    const int bits = std::bit_width(static_cast<std::uint32_t>(max_tag)) - 1;
    plan_bits_ = std::min(kMostPlanBits, bits - kLeastOthers);
    slot_bits_ =
        std::min((bits - plan_bits_) * 2 / 3, static_cast<int>(std::bit_width(std::min(most_slots, kMostSlots))) - 1);
    signature_bits_ = bits - plan_bits_ - slot_bits_;
  }

  /// Operations whose sequences differ by a multiple of this share their tags.
  std::uint64_t slots() const { return std::uint64_t{1} << slot_bits_; }
  /// Consecutive operations with different slots: half of them. Those of one epoch, and of the next one, share no tags.
  std::uint64_t operations_per_epoch() const { return slots() / 2; }
  std::uint64_t epoch(std::uint64_t sequence) const { return sequence >> (slot_bits_ - 1); }
  /// Messages from one rank to another that an operation can have in flight at a time.
  std::uint32_t plan_tags() const { return std::uint32_t{1} << plan_bits_; }

  int tag(std::uint64_t sequence, std::uint64_t signature, std::uint32_t plan_tag) const {
    const std::uint64_t slot = sequence & (slots() - 1);
    const std::uint64_t check = (signature * 0x9E3779B97F4A7C15u) >> (64 - signature_bits_);
    return 1 + static_cast<int>(((slot << signature_bits_ | check) << plan_bits_) | plan_tag);
  }
  std::uint32_t plan_tag(int tag) const { return static_cast<std::uint32_t>(tag - 1) & (plan_tags() - 1); }
  /// The operation of this epoch to which the tag belongs.
  std::uint64_t sequence(std::uint64_t epoch, int tag) const {
    const std::uint64_t slot = static_cast<std::uint64_t>(tag - 1) >> (plan_bits_ + signature_bits_);
    return epoch * operations_per_epoch() + (slot & (operations_per_epoch() - 1));
  }

 private:
  static constexpr int kMostPlanBits = 12;
  static constexpr int kLeastOthers = 5;  ///< bits for slots and signatures, if tags are short

  int plan_bits_ = 0;
  int slot_bits_ = 0;
  int signature_bits_ = 0;
};

}  // namespace penstock::engine
