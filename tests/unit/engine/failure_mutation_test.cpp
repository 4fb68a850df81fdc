// Tests that nothing hangs after a failure between nodes because of what each rank then does for the others: breaks
// each such message, receive and withdrawal in turn, and something must be seen to hang.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "broken_network.hpp"
#include "calls.hpp"

namespace penstock::engine::mutation::failures {
namespace {

constexpr int kFailing = 1;
constexpr int kSender = 2;                   ///< completes the operation without the second messages
constexpr std::uint64_t kFirstBytes = 4000;  // the transport waits for the receiver
constexpr std::uint64_t kSecondBytes = 40;
constexpr std::uint64_t kOutputBytes = kSize * (kFirstBytes + kSecondBytes) + 2;

enum class Fails : std::uint8_t { before_it_starts, in_the_middle, at_the_end };

struct Moment {
  const char* name;
  Fails when{};
  /// None: the ranks start their operations, and one fails by an operation of the user. Else they are in blocking calls
  /// by the fast path.
  std::optional<Network::Throwing> throwing{};
  std::set<Owed::What> lacks{};  ///< no rank makes such calls then

  bool completes(int rank) const {
    return rank != kFailing && (when == Fails::at_the_end || (when == Fails::in_the_middle && rank == kSender));
  }
};

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
  FailingRank(int rank, const Moment& moment, Network& network)
      : Rank(rank, network, kFirstBytes, kOutputBytes), moment_(moment) {}

  bool is_over() const override { return !is_calling() && Rank::is_over(); }
  std::uint64_t short_calls() const { return engine_->short_calls(); }

 private:
  void start_first() override {
    if (rank_ == kFailing && moment_.when == Fails::before_it_starts) return engine_->fail_next("on purpose");
    const int last = rank_ != kFailing ? 2 : moment_.when == Fails::in_the_middle ? 0 : 1;
    const auto op =
        std::make_shared<const UserOp>(UserOp{.combine = [last, calls = std::make_shared<int>(0)](ConstBytes, Bytes) {
          if ((*calls)++ == last) throw Error(ErrorCode::internal, "on purpose");
        }});
    run_ = engine_->start(plan_that_fails(rank_), {input_, output_}, {.user = op}, kSignature);
  }
  std::optional<Error> failure_of_call() override {
    const auto plan = next_ == 1 ? plan_that_fails(rank_) : exchange_in_place_plan(rank_);
    return failure_of_run(*engine_, plan, {input_, output_}, {}, kSignature);
  }
  bool is_right(std::uint64_t operation, const std::optional<Error>& error) const override {
    if (operation > 0) return !error;
    if (error) return error->message().find("on purpose") != std::string::npos;
    return moment_.throwing ? rank_ != kFailing : moment_.completes(rank_);
  }

  const Moment& moment_;
};

std::string what_hangs(const Moment& moment, Network& network) {
  Ranks ranks;
  for (int rank = 0; rank < kSize; ++rank) ranks.push_back(std::make_unique<FailingRank>(rank, moment, network));
  if (!moment.throwing) return outcome_of(ranks, network).complaint;
  network.throwing = moment.throwing;
  std::string complaint = outcome_of_calls(ranks, network).complaint;
  for (const auto& rank : ranks) EXPECT_GE(static_cast<const FailingRank&>(*rank).short_calls(), 1u);
  return complaint;
}

/// All that must be noticed. `whole`: the run that is not broken.
std::vector<Mutation> mutations_of(const Network& whole, const Moment& moment) {
  std::vector<Mutation> mutations;
  // Then the receiver has received one less for a while.
  const auto has_sink_for = [&](const Owed& counts) {
    return std::ranges::any_of(whole.owed, [&](const Owed& each) {
      return each.what == Owed::sink && each.rank == counts.peer && each.peer == counts.rank;
    });
  };
  for (const Owed& each : whole.owed) {
    const auto add = [&](std::initializer_list<Way> ways, std::size_t item = 0) {
      for (const Way way : ways) mutations.push_back({each, way, item});
    };
    switch (each.what) {
      case Owed::notice:
        add({Way::under_another_tag});
        if (!whole.completed.contains(each.peer)) add({Way::omitted});  // else the list says it
        break;
      case Owed::counts:
        if (each.of > 0) break;
        add({Way::omitted, Way::under_another_tag, Way::one_more});
        if (!moment.throwing || !has_sink_for(each)) add({Way::one_less});
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

class FailureMutations : public testing::TestWithParam<Moment> {};

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
    const auto is_it = [&](const Mutation& each) { return each.call.what == what; };
    EXPECT_EQ(std::ranges::none_of(mutations, is_it), GetParam().lacks.contains(what))
        << "kind " << static_cast<int>(what);
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

INSTANTIATE_TEST_SUITE_P(
    , FailureMutations,
    testing::Values(Moment{"before_it_starts", Fails::before_it_starts}, Moment{"in_the_middle", Fails::in_the_middle},
                    Moment{"at_the_end", Fails::at_the_end, {}, {Owed::sink, Owed::withdrawal}},
                    Moment{"first_send_throws", {}, Network::Throwing{kFailing, true, 0}},
                    Moment{"second_send_throws", {}, Network::Throwing{kFailing, true, 1}},
                    Moment{"last_send_throws", {}, Network::Throwing{kFailing, true, 2}},
                    Moment{"last_receive_throws", {}, Network::Throwing{kFailing, false, 3}, {Owed::withdrawal}}),
    [](const auto& moment) { return std::string(moment.param.name); });

}  // namespace
}  // namespace penstock::engine::mutation::failures
