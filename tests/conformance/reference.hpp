// What a collective must give, computed the naive way, and elements of every dtype as small whole numbers, for which
// any order of combination gives the same result.
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/collective.hpp"
#include "plan/simulate.hpp"

namespace penstock::conformance {

/// An element's value; `imag` is used by complex types only.
struct Number {
  std::int64_t real = 0;
  std::int64_t imag = 0;
  friend bool operator==(const Number&, const Number&) = default;
};

/// The value as an element of the dtype, and back. What is no whole number decodes to something no Number encodes to.
std::vector<std::byte> encode(DType dtype, const std::vector<Number>& values);
std::vector<Number> decode(DType dtype, ConstBytes bytes);

/// Element `index` of what `rank` contributes; unlike its neighbours, and never zero where op is prod.
Number contribution(const Collective& collective, int rank, std::uint64_t index);

/// The operation as `rank` asks for it: where it has counts, `collective.count` stands for blocks of several sizes,
/// some of them empty, at displacements that are in no order and leave gaps.
Collective request_of(const Collective& collective, int rank, int size);

/// The buffers of all ranks before and after the operation, as MPI defines it. Outputs that do not count before are
/// garbage.
std::vector<plan::RankMemory> memory_before(const Collective& collective, int size);
std::vector<plan::RankMemory> memory_after(const Collective& collective, int size);

}  // namespace penstock::conformance
