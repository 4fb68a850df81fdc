// The simplest array to save: a vector whose contents follow from the step.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "unit/checkpoint/arrays.hpp"
#include "unit/checkpoint/ranks.hpp"

namespace penstock::checkpoint::test {

/// float32, evenly distributed.
struct Vector {
  Layout layout;
  std::vector<std::byte> data;
  std::vector<CheckpointArray> arrays;

  Vector(const Rank& rank, std::uint64_t step, std::int64_t elements = 1000)
      : layout(Layout::even({elements}, rank.ranks())),
        data(local_part(layout, rank.rank(), 4, step)),
        arrays{{"v", DType::float32, layout, data}} {}
};

inline std::vector<std::byte> copy_of(const RestoredArray& array) { return {array.local.begin(), array.local.end()}; }

inline void expect_vector(const Restored& restored, std::uint64_t step, std::int64_t elements = 1000) {
  EXPECT_EQ(restored.step, step);
  ASSERT_EQ(restored.arrays.size(), 1u);
  EXPECT_EQ(copy_of(restored.arrays[0]), local_part(Layout::whole({elements}), 0, 4, restored.step));
}

inline std::vector<std::uint64_t> complete_steps(const store::Backend& backend) {
  std::vector<std::uint64_t> steps;
  for (const auto& [version, holding] : list_versions(backend)) {
    if (holding.complete()) steps.push_back(version.step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

inline std::shared_ptr<store::Backend> memory() { return store::open_backend("memory:"); }

}  // namespace penstock::checkpoint::test
