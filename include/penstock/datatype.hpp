// MPI's derived datatypes, flattened: items that have holes in memory, or another order in memory than in a message.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "penstock/collective.hpp"
#include "penstock/export.hpp"
#include "penstock/types.hpp"

namespace penstock {

/// The layout of one item: MPI's type map without the element types. A handle: copies share the pieces, which never
/// change. make_datatype in <penstock/mpi.hpp> makes one from an MPI_Datatype.
class PENSTOCK_API Datatype {
 public:
  struct Piece {
    std::int64_t offset_bytes = 0;  ///< from the address of the item; may be negative
    std::int64_t size_bytes = 0;
  };

  /// One byte.
  Datatype();
  /// `pieces` have the order in which they are sent; adjacent ones are merged. The next item begins `extent_bytes`
  /// behind the address of this one. Throws Error(invalid_argument) for a negative size.
  Datatype(std::vector<Piece> pieces, std::int64_t extent_bytes);

  std::span<const Piece> pieces() const;
  std::int64_t extent_bytes() const;
  std::uint64_t size_bytes() const;  ///< of the data in an item
  std::int64_t begin_bytes() const;  ///< offset of the lowest piece from the address of the item; 0 without pieces
  std::int64_t end_bytes() const;    ///< end of the highest piece
  /// Whether consecutive items have no holes, and the order in memory is that of the message.
  bool is_contiguous() const;
  /// Whether the pieces can be absolute addresses (MPI_BOTTOM): all of them lie above the page of the null pointer.
  bool is_absolute() const;

  /// Copy `count` items to and from contiguous memory of count * size_bytes() bytes. `items` may be null if the pieces
  /// are absolute addresses. Local, any thread.
  void pack(const void* items, std::uint64_t count, Bytes packed) const;
  void unpack(ConstBytes packed, void* items, std::uint64_t count) const;

 private:
  struct Data;
  std::shared_ptr<const Data> data_;
};

/// What a rank sends in a collective on items. Each block has `count` items, from `data` on. If MPI's operation has
/// lists on this side, `blocks` gives counts in items and displacements in extents. Ignored if MPI ignores the
/// corresponding arguments.
struct SendItems {
  const void* data = nullptr;
  std::uint64_t count = 0;
  Datatype datatype{};
  Blocks blocks{};  ///< of operations with has_send_counts()
  /// Of operations with has_datatypes(): one per block, instead of `datatype`. The displacements of `blocks` are then
  /// in bytes.
  std::vector<Datatype> datatypes{};
};

/// What a rank receives, likewise.
struct ReceiveItems {
  void* data = nullptr;
  std::uint64_t count = 0;
  Datatype datatype{};
  Blocks blocks{};                    ///< of operations with has_receive_counts()
  std::vector<Datatype> datatypes{};  ///< as in SendItems
};

}  // namespace penstock
