// Decodes MPI's datatypes by their envelopes. MPI 4.1, section 5.1.13, lists the arguments of each constructor.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "mpi/check.hpp"
#include "penstock/datatype.hpp"
#include "penstock/error.hpp"
#include "penstock/mpi.hpp"

namespace penstock::mpi {
namespace {

using Piece = Datatype::Piece;
using Integers = std::vector<std::int64_t>;

struct Contents {
  int combiner = MPI_COMBINER_NAMED;
  Integers integers;  ///< int and MPI_Count arguments, in the order of the constructor's arguments
  Integers addresses;
  std::vector<MPI_Datatype> types;
};

bool is_derived(int combiner) {
  switch (combiner) {
    case MPI_COMBINER_NAMED:
    case MPI_COMBINER_F90_REAL:
    case MPI_COMBINER_F90_COMPLEX:
    case MPI_COMBINER_F90_INTEGER: return false;
    default: return true;
  }
}

#if MPI_VERSION >= 4
/// How many of the large counts are int arguments in the constructor without large counts; the others are addresses.
std::size_t counts_that_are_integers(int combiner, const Integers& counts) {
  if (counts.empty()) return 0;  // the constructor without large counts
  switch (combiner) {
    case MPI_COMBINER_RESIZED: return 0;
    case MPI_COMBINER_HVECTOR:
    case MPI_COMBINER_HINDEXED_BLOCK: return 2;
    case MPI_COMBINER_HINDEXED:
    case MPI_COMBINER_STRUCT: return 1 + static_cast<std::size_t>(counts.at(0));
    default: return counts.size();
  }
}

Contents contents_of(MPI_Datatype datatype) {
  Contents result;
  MPI_Count integers = 0;
  MPI_Count addresses = 0;
  MPI_Count counts = 0;
  MPI_Count types = 0;
  check(MPI_Type_get_envelope_c(datatype, &integers, &addresses, &counts, &types, &result.combiner),
        "MPI_Type_get_envelope_c");
  if (!is_derived(result.combiner)) return result;
  std::vector<int> small(static_cast<std::size_t>(integers));
  std::vector<MPI_Aint> places(static_cast<std::size_t>(addresses));
  std::vector<MPI_Count> large(static_cast<std::size_t>(counts));
  result.types.resize(static_cast<std::size_t>(types));
  check(MPI_Type_get_contents_c(datatype, integers, addresses, counts, types, small.data(), places.data(), large.data(),
                                result.types.data()),
        "MPI_Type_get_contents_c");
  result.addresses.assign(places.begin(), places.end());
  const Integers all(large.begin(), large.end());
  const auto split = all.begin() + static_cast<std::ptrdiff_t>(counts_that_are_integers(result.combiner, all));
  // The dimensions (darray: and size and rank before them) come before the counts, the order behind them.
  std::size_t leading = small.size();
  if (!all.empty() && result.combiner == MPI_COMBINER_SUBARRAY) leading = 1;
  if (!all.empty() && result.combiner == MPI_COMBINER_DARRAY) leading = 3;
  const auto middle = small.begin() + static_cast<std::ptrdiff_t>(leading);
  result.integers.assign(small.begin(), middle);
  result.integers.insert(result.integers.end(), all.begin(), split);
  result.integers.insert(result.integers.end(), middle, small.end());
  result.addresses.insert(result.addresses.end(), split, all.end());
  return result;
}
#else
Contents contents_of(MPI_Datatype datatype) {
  Contents result;
  int integers = 0;
  int addresses = 0;
  int types = 0;
  check(MPI_Type_get_envelope(datatype, &integers, &addresses, &types, &result.combiner), "MPI_Type_get_envelope");
  if (!is_derived(result.combiner)) return result;
  std::vector<int> small(static_cast<std::size_t>(integers));
  std::vector<MPI_Aint> places(static_cast<std::size_t>(addresses));
  result.types.resize(static_cast<std::size_t>(types));
  check(MPI_Type_get_contents(datatype, integers, addresses, types, small.data(), places.data(), result.types.data()),
        "MPI_Type_get_contents");
  result.integers.assign(small.begin(), small.end());
  result.addresses.assign(places.begin(), places.end());
  return result;
}
#endif

std::int64_t extent_of(MPI_Datatype datatype) {
  MPI_Aint lower = 0;
  MPI_Aint extent = 0;
  check(MPI_Type_get_extent(datatype, &lower, &extent), "MPI_Type_get_extent");
  return extent;
}

/// Of the named types only pairs have holes, and only this one has a hole between its members.
Datatype named(MPI_Datatype datatype) {
  MPI_Aint lower = 0;
  MPI_Aint extent = 0;
  MPI_Count size = 0;
  check(MPI_Type_get_true_extent(datatype, &lower, &extent), "MPI_Type_get_true_extent");
  check(MPI_Type_size_x(datatype, &size), "MPI_Type_size_x");
  if (size == extent) return {{{lower, size}}, extent_of(datatype)};
  struct ShortInt {
    short value;
    int place;
  };
  if (datatype == MPI_SHORT_INT)
    return {{{0, sizeof(short)}, {offsetof(ShortInt, place), sizeof(int)}}, extent_of(datatype)};
  throw Error(ErrorCode::unsupported, "a predefined MPI datatype has " + std::to_string(size) + " bytes of data in " +
                                          std::to_string(extent) +
                                          ", and Penstock does not know where its holes are; make a struct type of "
                                          "its members by MPI_Type_create_struct");
}

/// The pieces of `old`, repeated at each of `offsets`, in that order.
std::vector<Piece> at(const Datatype& old, std::span<const std::int64_t> offsets_bytes) {
  std::vector<Piece> pieces;
  pieces.reserve(offsets_bytes.size() * old.pieces().size());
  for (const std::int64_t offset : offsets_bytes)
    for (const Piece& piece : old.pieces()) pieces.push_back({offset + piece.offset_bytes, piece.size_bytes});
  return pieces;
}

/// `count` consecutive items as one item.
Datatype run(const Datatype& old, std::int64_t count) {
  Integers offsets(static_cast<std::size_t>(std::max<std::int64_t>(count, 0)));
  for (std::size_t i = 0; i < offsets.size(); ++i) offsets[i] = static_cast<std::int64_t>(i) * old.extent_bytes();
  return {at(old, offsets), old.extent_bytes() * count};
}

void append(std::vector<Piece>& pieces, const Datatype& old, std::int64_t length, std::int64_t offset_bytes) {
  const Datatype block = run(old, length);
  const std::vector<Piece> placed = at(block, std::span(&offset_bytes, 1));
  pieces.insert(pieces.end(), placed.begin(), placed.end());
}

/// Reads the arguments of a constructor.
struct Builder {
  const Contents& from;
  const std::vector<Datatype>& olds;

  std::int64_t integer(std::size_t i) const { return from.integers.at(i); }
  std::size_t length(std::size_t i) const { return static_cast<std::size_t>(integer(i)); }
  /// A displacement: in bytes if the constructor has addresses, otherwise in extents of the old type.
  std::int64_t displacement(std::size_t address, std::size_t integer_index) const {
    return from.addresses.empty() ? integer(integer_index) * olds.front().extent_bytes() : from.addresses.at(address);
  }

  std::vector<Piece> vector() const {
    Integers offsets(length(0));
    const std::int64_t stride_bytes = offsets.empty() ? 0 : displacement(0, 2);
    for (std::size_t i = 0; i < offsets.size(); ++i) offsets[i] = static_cast<std::int64_t>(i) * stride_bytes;
    return at(run(olds.front(), integer(1)), offsets);
  }

  std::vector<Piece> indexed() const {
    const std::size_t count = length(0);
    std::vector<Piece> pieces;
    for (std::size_t i = 0; i < count; ++i)
      append(pieces, olds.front(), integer(1 + i), displacement(i, 1 + count + i));
    return pieces;
  }

  std::vector<Piece> indexed_block() const {
    Integers offsets(length(0));
    for (std::size_t i = 0; i < offsets.size(); ++i) offsets[i] = displacement(i, 2 + i);
    return at(run(olds.front(), integer(1)), offsets);
  }

  std::vector<Piece> structure() const {
    std::vector<Piece> pieces;
    for (std::size_t i = 0; i < length(0); ++i) append(pieces, olds.at(i), integer(1 + i), from.addresses.at(i));
    return pieces;
  }

  /// The last dimension varies fastest in C's order, the first one in Fortran's.
  std::vector<Piece> array(const Integers& sizes, const std::vector<Integers>& indices, bool is_fortran) const {
    Datatype result = olds.front();
    std::int64_t stride_bytes = result.extent_bytes();
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const std::size_t dimension = is_fortran ? i : sizes.size() - 1 - i;
      Integers offsets = indices[dimension];
      for (std::int64_t& offset : offsets) offset *= stride_bytes;
      stride_bytes *= sizes[dimension];
      result = Datatype(at(result, offsets), stride_bytes);
    }
    return {result.pieces().begin(), result.pieces().end()};
  }

  std::vector<Piece> subarray() const {
    const std::size_t dimensions = length(0);
    Integers sizes;
    std::vector<Integers> indices;
    for (std::size_t i = 0; i < dimensions; ++i) {
      sizes.push_back(integer(1 + i));
      indices.emplace_back(length(1 + dimensions + i));
      std::iota(indices.back().begin(), indices.back().end(), integer(1 + 2 * dimensions + i));
    }
    return array(sizes, indices, integer(1 + 3 * dimensions) == MPI_ORDER_FORTRAN);
  }

  std::vector<Piece> darray() const {
    const std::size_t dimensions = length(2);
    const auto argument = [&](std::size_t which, std::size_t dimension) {
      return integer(3 + which * dimensions + dimension);
    };
    Integers sizes;
    std::vector<Integers> indices(dimensions);
    // The ranks of the grid are in row-major order, for any order of the array.
    std::int64_t rank = integer(1);
    for (std::size_t dimension = dimensions; dimension-- > 0;) {
      const std::int64_t processes = argument(3, dimension);
      indices[dimension] =
          owned(argument(0, dimension), argument(1, dimension), argument(2, dimension), processes, rank % processes);
      rank /= processes;
    }
    for (std::size_t dimension = 0; dimension < dimensions; ++dimension) sizes.push_back(argument(0, dimension));
    return array(sizes, indices, integer(3 + 4 * dimensions) == MPI_ORDER_FORTRAN);
  }

  /// The indices of one dimension of a distributed array that belong to grid coordinate `place`.
  static Integers owned(std::int64_t extent, std::int64_t distribution, std::int64_t block, std::int64_t processes,
                        std::int64_t place) {
    if (distribution == MPI_DISTRIBUTE_NONE) {
      block = std::max<std::int64_t>(extent, 1);
    } else if (block == MPI_DISTRIBUTE_DFLT_DARG) {
      block = distribution == MPI_DISTRIBUTE_BLOCK ? (extent + processes - 1) / processes : 1;
    }
    Integers indices;
    for (std::int64_t i = 0; i < extent; ++i)
      if (distribution == MPI_DISTRIBUTE_NONE || i / block % processes == place) indices.push_back(i);
    return indices;
  }
};

Datatype flattened(MPI_Datatype datatype);

/// The caller must free the datatypes that MPI returns, except for predefined ones.
std::vector<Datatype> flattened_olds(const std::vector<MPI_Datatype>& types) {
  std::vector<Datatype> olds;
  for (MPI_Datatype type : types) {
    olds.push_back(flattened(type));
    if (is_derived(contents_of(type).combiner)) check(MPI_Type_free(&type), "MPI_Type_free");
  }
  return olds;
}

Datatype flattened(MPI_Datatype datatype) {
  const Contents contents = contents_of(datatype);
  if (!is_derived(contents.combiner)) return named(datatype);
  const std::vector<Datatype> olds = flattened_olds(contents.types);
  const Builder build{contents, olds};
  const auto pieces = [&]() -> std::vector<Piece> {
    switch (contents.combiner) {
      case MPI_COMBINER_DUP:
      case MPI_COMBINER_RESIZED: return {olds.at(0).pieces().begin(), olds.at(0).pieces().end()};
      case MPI_COMBINER_CONTIGUOUS: {
        const Datatype items = run(olds.at(0), build.integer(0));
        return {items.pieces().begin(), items.pieces().end()};
      }
      case MPI_COMBINER_VECTOR:
      case MPI_COMBINER_HVECTOR: return build.vector();
      case MPI_COMBINER_INDEXED:
      case MPI_COMBINER_HINDEXED: return build.indexed();
      case MPI_COMBINER_INDEXED_BLOCK:
      case MPI_COMBINER_HINDEXED_BLOCK: return build.indexed_block();
      case MPI_COMBINER_STRUCT: return build.structure();
      case MPI_COMBINER_SUBARRAY: return build.subarray();
      case MPI_COMBINER_DARRAY: return build.darray();
      default:
        throw Error(ErrorCode::unsupported,
                    "an MPI datatype was made by constructor " + std::to_string(contents.combiner) +
                        ", which is none of MPI 4's (contiguous, vector, indexed, struct, subarray, darray, …)");
    }
  };
  return {pieces(), extent_of(datatype)};
}

extern "C" int forget_flattened(MPI_Datatype, int, void* kept, void*) {
  delete static_cast<Datatype*>(kept);
  return MPI_SUCCESS;
}

/// The attribute that caches the flattened datatype. Duplicates do not inherit it.
int attribute() {
  static const int key = [] {
    int made = MPI_KEYVAL_INVALID;
    check(MPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, forget_flattened, &made, nullptr), "MPI_Type_create_keyval");
    return made;
  }();
  return key;
}

}  // namespace
}  // namespace penstock::mpi

namespace penstock {

Datatype make_datatype(MPI_Datatype datatype) {
  mpi::require_running();
  if (datatype == MPI_DATATYPE_NULL)
    throw Error(ErrorCode::invalid_argument, "the datatype is MPI_DATATYPE_NULL; expected one that has been made");
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  void* kept = nullptr;
  int is_kept = 0;
  mpi::check(MPI_Type_get_attr(datatype, mpi::attribute(), &kept, &is_kept), "MPI_Type_get_attr");
  if (is_kept != 0) return *static_cast<const Datatype*>(kept);
  auto made = std::make_unique<Datatype>(mpi::flattened(datatype));
  Datatype result = *made;
  mpi::check(MPI_Type_set_attr(datatype, mpi::attribute(), made.get()), "MPI_Type_set_attr");
  static_cast<void>(made.release());  // forget_flattened deletes it
  return result;
}

}  // namespace penstock
