// A collective call of the program, with MPI's arguments, and what it is for Penstock.
#pragma once

#include PENSTOCK_MPI_HEADER

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

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
  const MPI_Datatype* types = nullptr;  ///< of alltoallw, whose displacements are in bytes; otherwise `type` counts
  bool is_large = false;                ///< the lists are of MPI_Count and MPI_Aint, not of int

  std::int64_t count_of(std::size_t rank) const {
    return is_large ? static_cast<const MPI_Count*>(counts)[rank] : static_cast<const int*>(counts)[rank];
  }
  std::int64_t displacement_of(std::size_t rank) const {
    return is_large ? static_cast<const MPI_Aint*>(displacements)[rank] : static_cast<const int*>(displacements)[rank];
  }
  MPI_Datatype type_of(std::size_t rank) const { return types == nullptr ? type : types[rank]; }
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
          .is_large = !std::is_same_v<Count, int>};
}

template <typename Count, typename Displacement>
Side side(const void* buffer, const Count* counts, const Displacement* displacements, const MPI_Datatype* types) {
  return {.buffer = buffer,
          .counts = counts,
          .displacements = displacements,
          .types = types,
          .is_large = !std::is_same_v<Count, int>};
}

struct Call {
  CollectiveKind kind;
  MPI_Comm comm;
  Side send{};
  Side receive{};
  MPI_Op op = MPI_OP_NULL;
  int root = 0;
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
};

/// Returns nullptr, or why the call is left to MPI. For correct calls the answer is equal on all ranks: it depends on
/// what MPI wants to be equal. A call that MPI refuses is left to MPI, which reports it.
const char* translate(const Call& call, int rank, int ranks, Translated& translated);

/// The bytes that this rank sends, or receives where it sends none; 0 if that is not known.
std::uint64_t payload_bytes(const Call& call, int rank, int ranks);

/// Whether no rank can leave the call before all ranks have entered it, as every rank knows from its own arguments.
bool synchronises(const Call& call);

}  // namespace penstock::preload
