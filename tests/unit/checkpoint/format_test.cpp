// Checkpoints of earlier versions stay readable. Penstock 0.1 wrote tests/data/checkpoint-v1: steps 1, 2, 3, and step 2
// once more. A changed format gets a new number and a new folder.
#include <filesystem>

#include "penstock/checkpoint.hpp"
#include "unit/checkpoint/vector.hpp"
#include "unit/store/temporary_directory.hpp"

namespace penstock::checkpoint::test {
namespace {

namespace fs = std::filesystem;

void expect_step(Checkpointer& checkpointer, std::optional<std::uint64_t> step, std::uint64_t found, double factor) {
  RestoreOptions options;
  options.step = step;
  const Restored restored = checkpointer.restore(options);
  EXPECT_EQ(restored.step, found);
  ASSERT_EQ(restored.arrays.size(), 1u);
  ASSERT_EQ(restored.arrays[0].local.size(), 500 * sizeof(double));
  std::vector<double> values(500);
  std::memcpy(values.data(), restored.arrays[0].local.data(), restored.arrays[0].local.size());
  for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], static_cast<double>(i) * factor);
}

TEST(CheckpointFormat, OfVersion01IsReadAndSavedOn) {
  const TemporaryDirectory directory;
  const fs::path place = fs::path(directory.path()) / "place";
  fs::copy(fs::path(PENSTOCK_TEST_DATA) / "checkpoint-v1", place, fs::copy_options::recursive);
  CheckpointerOptions options;
  options.keep = 2;
  Checkpointer checkpointer("file://" + place.string(), options);
  EXPECT_EQ(checkpointer.steps(), (std::vector<std::uint64_t>{1, 2, 3}));
  expect_step(checkpointer, std::nullopt, 3, 3);
  expect_step(checkpointer, 2, 2, 4);
  expect_step(checkpointer, 1, 1, 1);

  const std::vector<double> zeros(500);
  const auto save = [&](std::uint64_t step) {
    checkpointer.save(step, {{"a", DType::float64, Layout::whole({500}), std::as_bytes(std::span(zeros))}})
        .wait(CheckpointLevel::drained);
    checkpointer.finish();
  };
  save(2);  // goes back
  expect_step(checkpointer, std::nullopt, 2, 0);
  EXPECT_EQ(checkpointer.steps(), (std::vector<std::uint64_t>{1, 2, 3}));
  save(3);
  EXPECT_EQ(checkpointer.steps(), (std::vector<std::uint64_t>{2, 3}));
  expect_step(checkpointer, std::nullopt, 3, 0);
}

}  // namespace
}  // namespace penstock::checkpoint::test
