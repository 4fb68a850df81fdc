// The simplest array to save: a vector whose contents follow from the step.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "unit/checkpoint/arrays.hpp"
#include "unit/checkpoint/ranks.hpp"

namespace penstock::checkpoint::test {

inline constexpr std::uint64_t kFrozenSeed = 4711;

/// float32, evenly distributed.
struct Vector {
  int rank_number;
  Layout layout;
  std::vector<std::byte> data;
  std::vector<std::byte> frozen;
  std::vector<CheckpointArray> arrays;

  Vector(const Rank& rank, std::uint64_t step, std::int64_t elements = 1000)
      : rank_number(rank.rank()),
        layout(Layout::even({elements}, rank.ranks())),
        data(local_part(layout, rank.rank(), 4, step)),
        arrays{{"v", DType::float32, layout, data}} {}

  /// Behind it another vector, which is equal in all steps. So a blob has both kinds of chunks.
  Vector& with_frozen() {
    frozen = local_part(layout, rank_number, 4, kFrozenSeed);
    arrays.push_back({"frozen", DType::float32, layout, frozen});
    return *this;
  }
};

inline std::vector<std::byte> copy_of(const RestoredArray& array) { return {array.local.begin(), array.local.end()}; }

inline void expect_vector(const Restored& restored, std::uint64_t step, std::int64_t elements = 1000) {
  EXPECT_EQ(restored.step, step);
  ASSERT_GE(restored.arrays.size(), 1u);
  EXPECT_EQ(copy_of(restored.arrays[0]), local_part(Layout::whole({elements}), 0, 4, restored.step));
  if (restored.arrays.size() > 1) {
    EXPECT_EQ(copy_of(restored.arrays[1]), local_part(Layout::whole({elements}), 0, 4, kFrozenSeed));
  }
}

inline std::vector<std::uint64_t> complete_steps(const Tier& tier) {
  std::vector<std::uint64_t> steps;
  for (const auto& [version, holding] : tier.list()) {
    if (holding.complete()) steps.push_back(version.step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

inline std::vector<std::uint64_t> complete_steps(const std::shared_ptr<store::Backend>& backend) {
  return complete_steps(*folder_tier(backend));
}

inline std::shared_ptr<store::Backend> memory() { return store::open_backend("memory:"); }

}  // namespace penstock::checkpoint::test
