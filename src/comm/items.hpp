// Collectives on items of datatypes: what a rank sends and receives as contiguous bytes, packed where it is not.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "penstock/collective.hpp"
#include "penstock/datatype.hpp"
#include "penstock/types.hpp"

namespace penstock::comm {

/// All items of one side of a call.
class ItemMemory {
 public:
  ItemMemory() = default;
  /// `count` items in each of `block_count` blocks that follow each other, or what `blocks` says. Throws
  /// Error(invalid_argument) for more than 2^63 bytes and for items at null.
  ItemMemory(const Datatype& datatype, std::byte* data, std::uint64_t count, std::uint64_t block_count,
             const Blocks& blocks);

  /// The items themselves, or memory for them; valid as long as this or what it was moved to.
  Bytes bytes() const { return bytes_; }
  /// Where the blocks lie in bytes(), in bytes.
  const Blocks& blocks() const { return blocks_; }
  void pack() const;
  void unpack() const;

 private:
  struct Place {
    std::int64_t displacement_extents = 0;
    std::uint64_t count = 0;
  };

  /// Calls action(address of the first item, count, their bytes) for each place.
  void for_places(const std::function<void(std::byte*, std::uint64_t, Bytes)>& action) const;

  Datatype datatype_{};
  std::byte* data_ = nullptr;
  std::vector<Place> places_;
  std::unique_ptr<std::byte[]> packed_;  ///< none: the items are contiguous
  Bytes bytes_;
  Blocks blocks_;
};

/// A call on items as one on bytes.
struct ItemCall {
  Collective collective;
  ItemMemory send;
  ItemMemory receive;
  bool unpacks = false;  ///< whether the call changes what is received
};

/// Packs what this rank contributes. Of `collective` counts, blocks and dtype mean nothing. Throws
/// Error(invalid_argument) for operations that compute, lists that are missing, and two sides of different sizes.
ItemCall item_call(Collective collective, int rank, int ranks, const SendItems& send, const ReceiveItems& receive);

/// What is left to do when the operation is complete. Thread-safe.
class Unpacking {
 public:
  explicit Unpacking(ItemCall call) : call_(std::move(call)) {}
  /// The first time unless it has been dropped: puts what came where it belongs.
  void finish();
  /// The operation has failed.
  void drop() noexcept;

 private:
  std::mutex mutex_;
  bool is_open_ = true;
  ItemCall call_;  ///< its memory is the operation's
};

}  // namespace penstock::comm
