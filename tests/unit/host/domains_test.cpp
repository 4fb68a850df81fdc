// The third level of the hierarchy: ranks derive global domains from their local_domains.
#include "host/domains.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace penstock::host {
namespace {

using Numbers = std::vector<std::int32_t>;

TEST(Domains, AreNumberedOverAllNodes) {
  EXPECT_EQ(domains_of_ranks(Numbers{0, 0, 1, 1, 0, 0}, Numbers{7, 9, 7, 7, 9, 7}), (Numbers{0, 1, 2, 2, 1, 0}));
}

TEST(Domains, ANodeWithARankAnywhereIsUndivided) {
  EXPECT_EQ(domains_of_ranks(Numbers{0, 0, 0, 1, 1, 1}, Numbers{7, 9, 9, 7, -1, 9}), (Numbers{0, 1, 1, 2, 2, 2}));
}

TEST(Domains, AreLeftOutWhereTheyTellNothing) {
  EXPECT_TRUE(domains_of_ranks(Numbers{0, 0, 1, 1}, Numbers{7, 7, 9, 9}).empty()) << "one per node";
  EXPECT_TRUE(domains_of_ranks(Numbers{0, 0, 1, 1}, Numbers{1, 2, 1, 2}).empty()) << "one per rank";
  EXPECT_TRUE(domains_of_ranks(Numbers{0, 0}, Numbers{-1, 3}).empty());
  EXPECT_TRUE(domains_of_ranks(Numbers{}, Numbers{}).empty());
}

}  // namespace
}  // namespace penstock::host
