// Collectives on items of datatypes, turned into collectives on contiguous bytes; other items are packed.
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

/// The items of one side of a call.
class ItemMemory {
 public:
  ItemMemory() = default;
  /// `count` items in each of `block_count` consecutive blocks. Throws Error(invalid_argument) for more than 2^63
  /// bytes, and if `data` is null.
  ItemMemory(const Datatype& datatype, std::byte* data, std::uint64_t count, std::uint64_t block_count);
  /// The same for lists. `datatypes`: one per block, with displacements in bytes; empty: all have `datatype`.
  ItemMemory(const Datatype& datatype, std::byte* data, const Blocks& blocks, const std::vector<Datatype>& datatypes);

  /// The items themselves if they are contiguous, otherwise memory for packing them. Valid while this object lives.
  Bytes bytes() const { return bytes_; }
  /// The blocks in bytes(), with counts and displacements in bytes.
  const Blocks& blocks() const { return blocks_; }
  void pack() const;
  void unpack() const;

 private:
  struct Place {
    Datatype datatype{};
    std::int64_t displacement_bytes = 0;
    std::uint64_t count = 0;
    std::uint64_t size_bytes = 0;
  };

  /// Of which part of the memory bytes() consists, and whether it is packed.
  void lay_out(bool has_lists);
  /// Calls action(datatype, address of the first item, count, their bytes) for each block.
  void for_places(const std::function<void(const Datatype&, std::byte*, std::uint64_t, Bytes)>& action) const;

  std::byte* data_ = nullptr;
  std::vector<Place> places_;
  std::unique_ptr<std::byte[]> packed_;  ///< nullptr: the items are contiguous
  Bytes bytes_;
  Blocks blocks_;
};

/// A call on items as a call on bytes.
struct ItemCall {
  Collective collective;
  ItemMemory send;
  ItemMemory receive;
  bool unpacks = false;  ///< whether received items must be unpacked
};

/// Packs this rank's contribution. Ignores counts, blocks and dtype of `collective`. Throws Error(invalid_argument) for
/// operations that compute, missing lists, and two sides of different sizes.
ItemCall item_call(Collective collective, int rank, int ranks, const SendItems& send, const ReceiveItems& receive);

/// Unpacks the received items when the operation is complete. Thread-safe.
class Unpacking {
 public:
  explicit Unpacking(ItemCall call) : call_(std::move(call)) {}
  /// The first call unpacks, unless drop() came first.
  void finish();
  /// The operation has failed: nothing is unpacked.
  void drop() noexcept;

 private:
  std::mutex mutex_;
  bool is_open_ = true;
  ItemCall call_;  ///< owns the memory of the operation
};

}  // namespace penstock::comm
