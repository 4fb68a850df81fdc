// Tests that nothing hangs after a failure between nodes because of what each rank then does for the others: breaks
// each such message, receive and withdrawal in turn, and something must be seen to hang.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "broken_network.hpp"

namespace penstock::engine::mutation::failures {
namespace {

constexpr int kFailing = 1;
constexpr int kSender = 2;                   ///< completes the operation without the second messages
constexpr std::uint64_t kFirstBytes = 4000;  // the transport waits for the receiver
constexpr std::uint64_t kSecondBytes = 40;
constexpr std::uint64_t kOutputBytes = kSize * (kFirstBytes + kSecondBytes) + 2;

enum class Fails : std::uint8_t { before_it_starts, in_the_middle, at_the_end };

bool completes(int rank, Fails when) {
  return rank != kFailing && (when == Fails::at_the_end || (when == Fails::in_the_middle && rank == kSender));
}

/// All send each other a long message, compute, and send each other a short one, but to kSender; then they compute.
std::shared_ptr<const Plan> plan_that_fails(int rank) {
  PlanBuilder builder("test/two_rounds", rank, kSize);
  std::vector<StepId> before;
  const auto round = [&](std::uint32_t tag, std::uint64_t bytes, std::uint64_t begin, bool receives) {
    std::vector<StepId> received = before;
    for (int peer = 0; peer < kSize; ++peer) {
      if (peer == rank) continue;
      const std::uint64_t at = begin + static_cast<std::uint64_t>(peer) * bytes;
      if (receives) received.push_back(builder.recv({at, bytes, Buffer::output}, peer, tag, before));
      if (tag == 0 || peer != kSender) builder.send({0, bytes, Buffer::input}, peer, tag, before);
    }
    before = {builder.reduce({0, 1, Buffer::input}, {kOutputBytes - 1 - tag, 1, Buffer::output}, received)};
  };
  round(0, kFirstBytes, 0, true);
  round(1, kSecondBytes, kSize * kFirstBytes, rank != kSender);
  return std::make_shared<const Plan>(std::move(builder).finish(kFirstBytes, kOutputBytes));
}

/// Its first operation fails.
class FailingRank final : public Rank {
 public:
  FailingRank(int rank, Fails when, Network& network) : Rank(rank, network, kFirstBytes, kOutputBytes), when_(when) {}

 private:
  void start_first() override {
    if (rank_ == kFailing && when_ == Fails::before_it_starts) return engine_->fail_next("on purpose");
    const int last = rank_ != kFailing ? 2 : when_ == Fails::in_the_middle ? 0 : 1;
    const auto op =
        std::make_shared<const UserOp>(UserOp{.combine = [last, calls = std::make_shared<int>(0)](ConstBytes, Bytes) {
          if ((*calls)++ == last) throw Error(ErrorCode::internal, "on purpose");
        }});
    run_ = engine_->start(plan_that_fails(rank_), {input_, output_}, {.user = op}, kSignature);
  }
  bool is_right(std::uint64_t operation, const std::optional<Error>& error) const override {
    if (operation > 0) return !error;
    return error ? error->message().find("on purpose") != std::string::npos : completes(rank_, when_);
  }

  const Fails when_;
};

std::string what_hangs(Fails when, Network& network) {
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int rank = 0; rank < kSize; ++rank) ranks.push_back(std::make_unique<FailingRank>(rank, when, network));
  return outcome_of(ranks, network).complaint;
}

/// All that must be noticed. `whole`: the run that is not broken.
std::vector<Mutation> mutations_of(const Network& whole, Fails when) {
  std::vector<Mutation> mutations;
  for (const Owed& each : whole.owed) {
    const auto add = [&](std::initializer_list<Way> ways, std::size_t item = 0) {
      for (const Way way : ways) mutations.push_back({each, way, item});
    };
    switch (each.what) {
      case Owed::notice:
        add({Way::under_another_tag});
        if (!completes(each.peer, when)) add({Way::omitted});  // else the list says it
        break;
      case Owed::counts:
        if (each.of == 0) add({Way::omitted, Way::under_another_tag, Way::one_less, Way::one_more});
        break;
      case Owed::recount:
      case Owed::recounted:
      case Owed::probe:
      case Owed::farewell: break;
      case Owed::sink: add({Way::omitted, Way::under_another_tag, Way::fewer_bytes}); break;
      case Owed::withdrawal: add({Way::omitted}); break;
      case Owed::list: {
        add({Way::omitted, Way::under_another_tag, Way::one_more});
        const std::vector<SentMessage>& list = whole.lists.at(each);
        for (std::size_t item = 0; item < list.size(); ++item) {
          add({Way::another_tag_told}, item);
          // What has been received need not be told.
          const Owed sink{Owed::sink, each.peer, each.rank, static_cast<std::uint64_t>(list[item].tag), 0};
          if (whole.calls.contains(sink)) add({Way::one_less, Way::fewer_bytes}, item);
        }
      }
    }
  }
  return mutations;
}

class FailureMutations : public testing::TestWithParam<Fails> {};

TEST_P(FailureMutations, AreAllFound) {
  Network whole;
  ASSERT_EQ(what_hangs(GetParam(), whole), "");
  const std::vector<Mutation> mutations = mutations_of(whole, GetParam());
  for (const Mutation& each : mutations) {
    SCOPED_TRACE(text_of(each));
    Network network{.mutation = each};
    EXPECT_NE(what_hangs(GetParam(), network), "");
    EXPECT_TRUE(network.is_applied);
  }
  for (const auto what : {Owed::notice, Owed::list, Owed::counts, Owed::sink, Owed::withdrawal}) {
    const bool is_rare = what == Owed::sink || what == Owed::withdrawal;
    EXPECT_EQ(std::ranges::count(mutations, what, [](const Mutation& each) { return each.call.what; }) == 0,
              is_rare && GetParam() == Fails::at_the_end)
        << "kind " << what;
  }
}

// A rank may hear again what it knows, at any time: also when the operation is settled and not over. And it may hear it
// when all others can do nothing more without it.
TEST_P(FailureMutations, WhatIsToldAgainOrLateHarmsNobody) {
  Network whole;
  ASSERT_EQ(what_hangs(GetParam(), whole), "");
  for (const Owed& each : whole.owed) {
    for (const Way way : {Way::again, Way::late}) {
      if (!each.is_packet()) continue;
      const Mutation harmless{each, way};
      SCOPED_TRACE(text_of(harmless));
      Network network{.mutation = harmless};
      EXPECT_EQ(what_hangs(GetParam(), network), "");
      EXPECT_TRUE(network.is_applied);
    }
  }
}

std::string name_of_moment(const testing::TestParamInfo<Fails>& moment) {
  constexpr std::array kNames{"before_it_starts", "in_the_middle", "at_the_end"};
  return kNames[static_cast<std::size_t>(moment.param)];
}

INSTANTIATE_TEST_SUITE_P(, FailureMutations,
                         testing::Values(Fails::before_it_starts, Fails::in_the_middle, Fails::at_the_end),
                         name_of_moment);

}  // namespace
}  // namespace penstock::engine::mutation::failures
