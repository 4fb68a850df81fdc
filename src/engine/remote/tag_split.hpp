// The tags of the transport under which the messages of a communicator travel.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "base/hash.hpp"

namespace penstock::engine {

/// A tag names the slot of the operation, and holds the tag of the message in the plan combined with a hash of the
/// signature. Equal on all ranks. docs/design/network.md says why a message never matches the receive of another one.
class TagSplit {
 public:
  static constexpr int kControlTag = 0;
  static constexpr std::uint32_t kMostSlots = 512;  ///< OperationTable remembers more operations

  /// `most_slots`: a power of two, at least 2.
  explicit TagSplit(int max_tag, std::uint32_t most_slots = kMostSlots) {
    const int bits = std::bit_width(static_cast<std::uint32_t>(max_tag)) - 1;
    const int most_slot_bits = static_cast<int>(std::bit_width(std::min(most_slots, kMostSlots))) - 1;
    slot_bits_ = std::min(bits / 3, most_slot_bits);
    message_bits_ = bits - slot_bits_;
  }

  /// Operations whose sequences differ by a multiple of this share a slot.
  std::uint64_t slots() const { return std::uint64_t{1} << slot_bits_; }
  /// Consecutive operations with different slots: half of them. Those of one epoch, and of the next one, share no tags.
  std::uint64_t operations_per_epoch() const { return slots() / 2; }
  std::uint64_t epoch(std::uint64_t sequence) const { return sequence >> (slot_bits_ - 1); }
  /// Messages from one rank to another that an operation can have in flight at a time.
  std::uint32_t plan_tags() const { return std::uint32_t{1} << std::min(kMostPlanBits, message_bits_); }

  /// The plan's tag is combined with the hash by exclusive or. So messages of one operation have different tags, and
  /// two signatures share tags only if their hashes differ by less than the largest tag of the plans: a plan of few
  /// messages leaves most bits to the signature. The sequence is hashed, too: a pair of calls that once had the same
  /// hash has others next time.
  int tag(std::uint64_t sequence, std::uint64_t signature, std::uint32_t plan_tag) const {
    const std::uint64_t slot = sequence & (slots() - 1);
    return 1 + static_cast<int>(slot << message_bits_ | (hash(sequence, signature) ^ plan_tag));
  }
  std::uint32_t plan_tag(std::uint64_t sequence, std::uint64_t signature, int tag) const {
    const std::uint64_t mask = (std::uint64_t{1} << message_bits_) - 1;
    return static_cast<std::uint32_t>((static_cast<std::uint64_t>(tag - 1) & mask) ^ hash(sequence, signature));
  }
  bool is_of(std::uint64_t sequence, int tag) const {
    return tag > kControlTag && static_cast<std::uint64_t>(tag - 1) >> message_bits_ == (sequence & (slots() - 1));
  }
  /// The operation of this epoch to which the tag belongs.
  std::uint64_t sequence(std::uint64_t epoch, int tag) const {
    const std::uint64_t slot = static_cast<std::uint64_t>(tag - 1) >> message_bits_;
    return epoch * operations_per_epoch() + (slot & (operations_per_epoch() - 1));
  }

 private:
  static constexpr int kMostPlanBits = 12;

  std::uint64_t hash(std::uint64_t sequence, std::uint64_t signature) const {
    return base::mix(base::mix(base::kSeed, signature), sequence) >> (64 - message_bits_);
  }

  int slot_bits_ = 0;
  int message_bits_ = 0;
};

}  // namespace penstock::engine
