// A naive reference for collectives. The elements of all dtypes are small whole numbers, so any order of combination
// gives the same result.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "penstock/collective.hpp"
#include "simulate.hpp"

namespace penstock::conformance {

/// The value of an element. Only complex types use `imag`.
struct Number {
  std::int64_t real = 0;
  std::int64_t imag = 0;
  friend bool operator==(const Number&, const Number&) = default;
};

/// Convert between values and elements of the dtype. An element that is not a whole number decodes to a value that no
/// Number encodes.
std::vector<std::byte> encode(DType dtype, const std::vector<Number>& values);
std::vector<Number> decode(DType dtype, ConstBytes bytes);

/// Element `index` of the contribution of `rank`. It differs from its neighbours, and is never zero if op is prod.
Number contribution(const Collective& collective, int rank, std::uint64_t index);

/// The arguments of `rank`. If the operation has counts, `collective.count` gives blocks of several sizes, some of them
/// empty, at unordered displacements with gaps. Neighbourhood collectives get graph_of(size).
Collective request_of(const Collective& collective, int rank, int size);

/// The neighbours of neighbourhood collectives: random ones, with edges that lead back, several edges between two
/// ranks, unequal degrees and places without a neighbour; or for some sizes a grid with periodic and open dimensions.
std::shared_ptr<const Graph> graph_of(int size);

/// The buffers of all ranks before and after the operation, as MPI defines it. Outputs that the operation does not read
/// begin as garbage.
std::vector<plan::RankMemory> memory_before(const Collective& collective, int size);
std::vector<plan::RankMemory> memory_after(const Collective& collective, int size);

}  // namespace penstock::conformance
