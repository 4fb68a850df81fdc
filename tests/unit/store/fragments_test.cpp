// Compares random writes, cuts and copies with an array that has the origin of every byte.
#include "store/fragments.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

namespace penstock::store {
namespace {

constexpr std::uint64_t kNothing = ~std::uint64_t{0};

/// The source of each byte and the offset in it, or none.
using Model = std::vector<std::pair<std::uint64_t, std::uint64_t>>;

void expect_same(const Fragments& fragments, const Model& model, const char* what) {
  Model found(model.size(), {kNothing, kNothing});
  std::uint64_t end = 0;
  std::size_t count = 0;
  fragments.for_each([&](const Fragment& fragment) {
    EXPECT_GT(fragment.size_bytes, 0u) << what;
    EXPECT_GE(fragment.offset_bytes, end) << what;
    end = fragment.end_bytes();
    ++count;
    for (std::uint64_t i = 0; i < fragment.size_bytes; ++i) {
      found[fragment.offset_bytes + i] = {fragment.source, fragment.source_offset_bytes + i};
    }
  });
  EXPECT_EQ(count, fragments.count()) << what;
  EXPECT_TRUE(found == model) << what;
}

void write(Fragments& fragments, Model& model, const std::vector<Fragment>& run) {
  fragments.place(run);
  for (const Fragment& fragment : run) {
    for (std::uint64_t i = 0; i < fragment.size_bytes; ++i) {
      model[fragment.offset_bytes + i] = {fragment.source, fragment.source_offset_bytes + i};
    }
  }
}

class FragmentsOfManySizes : public testing::TestWithParam<std::uint64_t> {};

TEST_P(FragmentsOfManySizes, AreWhatWasWrittenLast) {
  const std::uint64_t mean_bytes = GetParam();
  constexpr std::uint64_t kSize = 60'000;
  std::mt19937 random(static_cast<unsigned>(mean_bytes));
  Fragments fragments;
  Model model(kSize, {kNothing, kNothing});
  for (std::uint32_t step = 0; step < 120; ++step) {
    const Fragments before = fragments;
    const Model model_before = model;
    if (random() % 8 == 0) {
      const std::uint64_t offset = random() % kSize;
      const std::uint64_t size = random() % std::min(kSize - offset, 40 * mean_bytes) + 1;
      fragments.clear(offset, std::min(size, kSize - offset));
      std::fill_n(model.begin() + static_cast<std::ptrdiff_t>(offset), std::min(size, kSize - offset),
                  std::pair{kNothing, kNothing});
    } else {
      // Dense rows, rows with gaps of all sizes, and single rows.
      const std::uint64_t gap =
          random() % 3 == 0 ? 0 : random() % (random() % 2 == 0 ? 2 * mean_bytes : kSize / 10) + 1;
      const std::uint64_t most = random() % 4 == 0 ? 1 : kSize;
      std::vector<Fragment> run;
      std::uint64_t source_offset = 0;
      for (std::uint64_t at = random() % kSize; at < kSize && run.size() < most;) {
        const std::uint64_t size = std::min(random() % (2 * mean_bytes) + 1, kSize - at);
        run.push_back({at, size, source_offset, step});
        source_offset += size + (random() % 2);
        at += size + gap;
      }
      write(fragments, model, run);
    }
    expect_same(fragments, model, "after a step");
    expect_same(before, model_before, "a copy from before");
    // A visit of any range returns exactly the fragments that overlap it.
    const std::uint64_t from = random() % kSize;
    const std::uint64_t to = from + random() % (kSize - from) + 1;
    std::vector<std::uint64_t> expected;
    fragments.for_each([&](const Fragment& f) {
      if (f.end_bytes() > from && f.offset_bytes < to) expected.push_back(f.offset_bytes);
    });
    std::vector<std::uint64_t> seen;
    fragments.for_each_in(from, to, [&](const Fragment& f) { seen.push_back(f.offset_bytes); });
    EXPECT_EQ(seen, expected);
    if (testing::Test::HasFailure()) FAIL() << "step " << step;
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, FragmentsOfManySizes, testing::Values(1, 7, 40, 700));

TEST(Fragments, OfOneWriteThatTouchAreOne) {
  Fragments fragments;
  const Fragment run[] = {{10, 5, 0, 3}, {15, 5, 5, 3}, {20, 5, 11, 3}};
  fragments.place(run);
  EXPECT_EQ(fragments.count(), 2u);
}

}  // namespace
}  // namespace penstock::store
