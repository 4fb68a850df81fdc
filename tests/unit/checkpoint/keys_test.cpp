#include "checkpoint/keys.hpp"

#include "unit/checkpoint/vector.hpp"

namespace penstock::checkpoint::test {
namespace {

TEST(Keys, EveryNameIsReadBack) {
  const auto tier = memory();
  const Version old{12, 0, 3};
  const Version version{18446744073709551615u, 7, 4};
  const std::string keys[] = {data_key(old, 0),     manifest_key(old),     data_key(version, 2),
                              data_key(version, 1), manifest_key(version), abandoned_key(version),
                              "checkpoints/other",  "checkpoints/step-1.x"};
  EXPECT_EQ(keys[0], "checkpoints/step-00000000000000000012.3.rank-0.data");
  EXPECT_EQ(keys[4], "checkpoints/step-18446744073709551615.7-4.manifest.json");
  for (const std::string& key : keys) ASSERT_TRUE(tier->put_if_absent(key, {}));
  const std::map<Version, Holding> versions = list_versions(*tier);
  ASSERT_EQ(versions.size(), 2u);
  EXPECT_EQ(versions.at(old).ranks, std::vector<int>{0});
  EXPECT_TRUE(versions.at(old).complete());
  EXPECT_EQ(versions.at(version).ranks, (std::vector<int>{1, 2}));
  EXPECT_TRUE(versions.at(version).manifest);
  EXPECT_FALSE(versions.at(version).complete());
}

TEST(Keys, VersionsAreInTheOrderOfTheSaves) {
  // Attempt 1 at step 2 of Penstock 0.1 was saved after step 3 or before it; only the order of the steps is known.
  const std::vector<Version> ascending = {{1, 0, 0}, {2, 0, 1}, {3, 0, 0}, {9, 1, 0}, {4, 1, 1}, {1, 2, 0}};
  EXPECT_TRUE(std::is_sorted(ascending.begin(), ascending.end()));
  EXPECT_EQ(std::set<Version>(ascending.begin(), ascending.end()).size(), ascending.size());
}

TEST(Keys, TheLineIsWhatNoNewerVersionSuperseded) {
  Random random(5);
  for (int trial = 0; trial < 300; ++trial) {
    std::set<Version> versions;
    for (std::int64_t left = between(random, 0, 12); left > 0; --left) {
      const auto number = [&](std::int64_t last) { return static_cast<std::uint64_t>(between(random, 0, last)); };
      versions.insert({number(6), number(2), number(20)});
    }
    std::set<Version> line;
    for (const Version& version : versions) {
      const bool superseded = std::any_of(versions.begin(), versions.end(), [&](const Version& other) {
        return version < other && other.step <= version.step;
      });
      if (!superseded) line.insert(version);
    }
    EXPECT_EQ(line_of(versions), line);
    const std::vector<Version> ordered = by_preference(versions);
    EXPECT_EQ(std::set<Version>(ordered.begin(), ordered.end()), versions);
    if (versions.empty()) continue;
    EXPECT_EQ(ordered.back(), *versions.rbegin());
    const auto behind = ordered.end() - static_cast<std::ptrdiff_t>(line.size());
    EXPECT_EQ(std::set<Version>(behind, ordered.end()), line);
    EXPECT_TRUE(std::is_sorted(ordered.begin(), behind));
    EXPECT_TRUE(std::is_sorted(behind, ordered.end()));
  }
}

}  // namespace
}  // namespace penstock::checkpoint::test
