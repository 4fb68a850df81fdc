// Items that lie in memory with holes, or in another order than they are sent: MPI's derived datatypes, flattened.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "penstock/collective.hpp"
#include "penstock/export.hpp"
#include "penstock/types.hpp"

namespace penstock {

/// What one item is made of, as MPI's type map with the element types left out. A handle: copies share the pieces,
/// which never change. make_datatype in <penstock/mpi.hpp> gives that of an MPI_Datatype.
class PENSTOCK_API Datatype {
 public:
  struct Piece {
    std::int64_t offset_bytes = 0;  ///< from the address of the item; may be negative
    std::int64_t size_bytes = 0;
  };

  /// One byte.
  Datatype();
  /// The pieces in the order in which they are sent; neighbours that touch become one. The next item begins
  /// `extent_bytes` behind the address of this one. Throws Error(invalid_argument) for a negative size.
  Datatype(std::vector<Piece> pieces, std::int64_t extent_bytes);

  std::span<const Piece> pieces() const;
  std::int64_t extent_bytes() const;
  std::uint64_t size_bytes() const;  ///< of the data in an item
  std::int64_t begin_bytes() const;  ///< of the piece that lies first, from the address of the item; 0 without pieces
  std::int64_t end_bytes() const;    ///< behind the piece that lies last
  /// Whether items that follow each other in memory do so without holes, in the order in which they are sent.
  bool is_contiguous() const;
  /// Whether the pieces can be absolute addresses (MPI_BOTTOM): all lie behind the page of the null pointer.
  bool is_absolute() const;

  /// Copies `count` items from and to contiguous memory of count * size_bytes(). `items` may be null where the pieces
  /// have absolute addresses. Local; any thread.
  void pack(const void* items, std::uint64_t count, Bytes packed) const;
  void unpack(ConstBytes packed, void* items, std::uint64_t count) const;

 private:
  struct Data;
  std::shared_ptr<const Data> data_;
};

/// What a rank sends in a collective on items: `count` of them to (as) each block, from `data` on; or as `blocks` says,
/// in items and extents, where MPI's operation has lists. Means nothing where MPI's arguments would mean nothing.
struct SendItems {
  const void* data = nullptr;
  std::uint64_t count = 0;
  Datatype datatype{};
  Blocks blocks{};  ///< scatterv and alltoallv
};

/// What a rank receives.
struct ReceiveItems {
  void* data = nullptr;
  std::uint64_t count = 0;
  Datatype datatype{};
  Blocks blocks{};  ///< gatherv, allgatherv and alltoallv
};

}  // namespace penstock
