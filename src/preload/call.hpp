// A collective call of the program, with MPI's arguments, and what it is for Penstock.
#pragma once

#include PENSTOCK_MPI_HEADER

#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <type_traits>
#include <vector>

#include "penstock/collective.hpp"
#include "penstock/datatype.hpp"

namespace penstock::preload {

/// The send or receive arguments. Lists are null where the operation has none.
struct Side {
  const void* buffer = nullptr;
  std::int64_t count = 0;
  MPI_Datatype type = MPI_DATATYPE_NULL;
  const void* counts = nullptr;
  const void* displacements = nullptr;
  const MPI_Datatype* types = nullptr;   ///< if has_datatypes(), with displacements in bytes; otherwise `type` counts
  bool has_large_counts = false;         ///< of MPI_Count, not of int
  bool has_large_displacements = false;  ///< of MPI_Aint, not of int

  std::int64_t count_of(std::size_t block) const {
    return has_large_counts ? static_cast<const MPI_Count*>(counts)[block] : static_cast<const int*>(counts)[block];
  }
  std::int64_t displacement_of(std::size_t block) const {
    return has_large_displacements ? static_cast<const MPI_Aint*>(displacements)[block]
                                   : static_cast<const int*>(displacements)[block];
  }
  MPI_Datatype type_of(std::size_t block) const { return types == nullptr ? type : types[block]; }
};

template <typename Count>
Side side(const void* buffer, Count count, MPI_Datatype type) {
  return {.buffer = buffer, .count = count, .type = type};
}

template <typename Count, typename Displacement>
Side side(const void* buffer, const Count* counts, const Displacement* displacements, MPI_Datatype type) {
  return {.buffer = buffer,
          .type = type,
          .counts = counts,
          .displacements = displacements,
          .has_large_counts = !std::is_same_v<Count, int>,
          .has_large_displacements = !std::is_same_v<Displacement, int>};
}

template <typename Count, typename Displacement>
Side side(const void* buffer, const Count* counts, const Displacement* displacements, const MPI_Datatype* types) {
  return {.buffer = buffer,
          .counts = counts,
          .displacements = displacements,
          .types = types,
          .has_large_counts = !std::is_same_v<Count, int>,
          .has_large_displacements = !std::is_same_v<Displacement, int>};
}

struct Call {
  CollectiveKind kind = CollectiveKind::barrier;
  MPI_Comm comm = MPI_COMM_NULL;
  Side send{};
  Side receive{};
  MPI_Op op = MPI_OP_NULL;
  int root = 0;
};

/// The communicator of a call.
struct Members {
  int rank = 0;
  int ranks = 1;
  const Graph* graph = nullptr;  ///< once the communicator is prepared, if it has neighbours
};

/// The call as Penstock runs it: on bytes or elements, or on items of datatypes.
struct Translated {
  Collective collective{};
  ConstBytes input{};
  Bytes output{};
  struct Items {
    SendItems send{};
    ReceiveItems receive{};
  };
  std::unique_ptr<Items> items{};  ///< in place of input and output
  /// What Comm::run_again() needs, if it is all of the collective.
  std::optional<PlainCall> plain{};
};

/// Why a call is left to MPI whatever its buffers hold, without the work for a translation: a reduction that Penstock
/// does not know, or nothing to move or to reduce. nullptr for other calls. Equal on all ranks for correct calls.
const char* why_always_native(const Call& call);

/// Returns nullptr, or why the call is left to MPI. For correct calls the answer is equal on all ranks: it depends on
/// what MPI wants to be equal. A call that MPI refuses is left to MPI, which reports it.
const char* translate(const Call& call, const Members& members, Translated& translated);

/// How long a call's lists are; 0 for a side that has none, or is not significant on this rank.
struct ListLengths {
  std::size_t sent = 0;
  std::size_t received = 0;
};
/// Of a call that translate() has accepted.
ListLengths list_lengths(const Call& call, const Members& members);

/// The bytes that this rank sends, or receives where it sends none; 0 if that is not known.
std::uint64_t payload_bytes(const Call& call, const Members& members);

/// Whether each rank knows by its own arguments how much all ranks move.
constexpr bool knows_lengths(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::gatherv:
    case CollectiveKind::scatterv:
    case CollectiveKind::alltoallv:
    case CollectiveKind::alltoallw:
    case CollectiveKind::neighbor_allgather:
    case CollectiveKind::neighbor_allgatherv:
    case CollectiveKind::neighbor_alltoall:
    case CollectiveKind::neighbor_alltoallv:
    case CollectiveKind::neighbor_alltoallw: return false;
    default: return true;
  }
}

/// The length of the call by what MPI wants to be equal on all ranks: of a block, or where it has a list of blocks that
/// all ranks know, of all together. Between two ranks also where only both ends of a block know its length: of the
/// longer of the two that they exchange. nullopt for others than knows_lengths().
std::optional<std::uint64_t> agreed_bytes(const Call& call, const Members& members);

/// Whether each rank knows what it moves itself in a call of which others may know nothing, see block_bytes().
constexpr bool has_own_lists(CollectiveKind kind) {
  return kind == CollectiveKind::gatherv || kind == CollectiveKind::scatterv || kind == CollectiveKind::alltoallv ||
         kind == CollectiveKind::alltoallw;
}

/// What a rank sends and receives of each block; empty where the arguments are not significant on it.
struct BlockBytes {
  bool in_place = false;
  std::vector<int> sent{};
  std::vector<int> received{};
};
inline std::uint64_t bytes_of(const std::vector<int>& blocks) {
  return std::accumulate(blocks.begin(), blocks.end(), std::uint64_t{0});
}

/// Of a call that has_own_lists(). nullopt if MPI refuses the lists, or all blocks together exceed an int.
std::optional<BlockBytes> block_bytes(const Call& call, const Members& members);

/// Whether no rank can leave the call before all ranks have entered it, as every rank knows from its own arguments.
bool synchronises(const Call& call);

}  // namespace penstock::preload
