// Long messages in fragments: complete, given up by the sender, and cancelled by the receiver.
#include "engine/fragments.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "engine/local_transport.hpp"
#include "plan/eager.hpp"

namespace penstock::engine {
namespace {

constexpr int kTag = 3;
constexpr std::uint64_t kEager = plan::kEagerBytes;

std::vector<std::byte> message(std::uint64_t size_bytes, int seed) {
  std::vector<std::byte> bytes(size_bytes);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 251 + seed);
  return bytes;
}

class PartsOf : public testing::TestWithParam<std::uint64_t> {
 protected:
  std::vector<std::unique_ptr<Transport>> transports_ = make_local_transports({0, 1});
  Transport& sender_ = *transports_[0];
  Transport& receiver_ = *transports_[1];
};
INSTANTIATE_TEST_SUITE_P(, PartsOf,
                         testing::Values(1, kEager - 1, kEager, kEager + 1, 2 * kEager, 2 * kEager + 1, 3 * kEager - 7,
                                         4 * kEager, 4 * kEager + 1, 9 * kEager));

TEST_P(PartsOf, ArriveAsOneMessageInOrder) {
  const std::vector<std::byte> one = message(GetParam(), 1);
  const std::vector<std::byte> other = message(GetParam(), 2);
  std::vector<std::byte> to(GetParam());
  std::vector<std::byte> to_other(GetParam());
  Fragments sending, sending_other, receiving, receiving_other;
  receiving.irecv(receiver_, to, 0, kTag);
  EXPECT_EQ(receiving.test(receiver_), std::nullopt);
  sending.isend(sender_, one, 1, kTag);
  sending_other.isend(sender_, other, 1, kTag);
  receiving_other.irecv(receiver_, to_other, 0, kTag);
  EXPECT_EQ(receiving.test(receiver_), GetParam());
  EXPECT_EQ(receiving_other.test(receiver_), GetParam());
  EXPECT_EQ(sending.test(sender_), GetParam());
  EXPECT_EQ(sending_other.test(sender_), GetParam());
  EXPECT_EQ(to, one);
  EXPECT_EQ(to_other, other);
}

TEST_P(PartsOf, AreCompleteWithAnEmptyMessageInTheirPlace) {
  std::vector<std::byte> to(GetParam());
  Fragments sending, receiving;
  receiving.irecv(receiver_, to, 0, kTag);
  sending.isend(sender_, {}, 1, kTag);
  EXPECT_EQ(receiving.test(receiver_), 0u);
  EXPECT_EQ(sending.test(sender_), 0u);

  // Nothing is left for the next message with the same tag.
  const std::vector<std::byte> next = message(GetParam(), 5);
  receiving.irecv(receiver_, to, 0, kTag);
  sending.isend(sender_, next, 1, kTag);
  EXPECT_EQ(receiving.test(receiver_), GetParam());
  EXPECT_EQ(to, next);
}

TEST_P(PartsOf, MayBeReceivedElsewhereOnceWithdrawn) {
  const std::vector<std::byte> sent = message(GetParam(), 3);
  std::vector<std::byte> to(GetParam());
  std::vector<std::byte> elsewhere(GetParam());
  Fragments sending, receiving;
  receiving.irecv(receiver_, to, 0, kTag);
  ASSERT_TRUE(receiving.withdraw(receiver_));
  Fragments rest = receiving;
  rest.irecv_rest(receiver_, elsewhere, 0, kTag);
  sending.isend(sender_, sent, 1, kTag);
  EXPECT_EQ(rest.test(receiver_), GetParam());
  EXPECT_EQ(elsewhere, sent);
  EXPECT_EQ(to, std::vector<std::byte>(GetParam()));
}

TEST_P(PartsOf, LeaveNothingToWithdrawOnceTheyHaveCome) {
  const std::vector<std::byte> sent = message(GetParam(), 4);
  std::vector<std::byte> to(GetParam());
  Fragments sending, receiving;
  receiving.irecv(receiver_, to, 0, kTag);
  sending.isend(sender_, sent, 1, kTag);
  EXPECT_FALSE(receiving.withdraw(receiver_));
  EXPECT_EQ(to, sent);
}

TEST(Fragments, AreReceivedElsewhereFromTheFirstOneThatHasNotCome) {
  auto transports = make_local_transports({0, 1});
  constexpr std::uint64_t kSize = 3 * kEager - 7;
  const std::vector<std::byte> sent = message(kSize, 6);
  std::vector<std::byte> to(kSize);
  std::vector<std::byte> elsewhere(kSize);
  Fragments receiving;
  receiving.irecv(*transports[1], to, 0, kTag);
  const ConstBytes bytes = sent;
  const std::uint64_t first = kSize / 3;
  const auto handle = transports[0]->isend(bytes.first(first), 1, kTag);
  ASSERT_TRUE(receiving.withdraw(*transports[1]));
  receiving.irecv_rest(*transports[1], elsewhere, 0, kTag);
  const std::uint64_t second = kSize * 2 / 3;
  const auto middle = transports[0]->isend(bytes.subspan(first, second - first), 1, kTag);
  const auto last = transports[0]->isend(bytes.subspan(second), 1, kTag);
  EXPECT_TRUE(receiving.test(*transports[1]));
  for (const auto sending : {handle, middle, last}) EXPECT_TRUE(transports[0]->test(sending));
  std::copy(to.begin(), to.begin() + static_cast<std::ptrdiff_t>(first), elsewhere.begin());
  EXPECT_EQ(elsewhere, sent);
}

}  // namespace
}  // namespace penstock::engine
