#include "host/node_names.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace penstock::host {
namespace {

std::vector<std::int32_t> numbered(const std::vector<std::uint64_t>& names) {
  std::vector<std::int32_t> scratch(names.size());
  std::vector<std::int32_t> numbers(names.size());
  number_nodes(names, scratch, numbers);
  return numbers;
}

TEST(NodeNames, NumbersNodesByFirstAppearance) {
  EXPECT_EQ(numbered({}), std::vector<std::int32_t>{});
  EXPECT_EQ(numbered({9}), std::vector<std::int32_t>{0});
  EXPECT_EQ(numbered({9, 9, 3, 9, 3, 7}), (std::vector<std::int32_t>{0, 0, 1, 0, 1, 2}));
  EXPECT_EQ(numbered({1, 2, 3, 2, 1}), (std::vector<std::int32_t>{0, 1, 2, 1, 0}));
}

TEST(NodeNames, AProcessHasOneName) { EXPECT_EQ(node_of_process(), node_of_process()); }

}  // namespace
}  // namespace penstock::host
