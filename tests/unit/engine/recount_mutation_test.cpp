// Tests what ranks tell each other about a message that no rank receives: breaks each question, answer and receive of
// it in turn. Such a message must never be taken for another one.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "broken_network.hpp"
#include "calls.hpp"

namespace penstock::engine::mutation::recount {
namespace {

constexpr int kDeaf = 0;     ///< has no step for what kSender sends it
constexpr int kSender = 1;   // of the message that no rank receives
constexpr int kFailing = 2;  ///< if one fails the operation after all
constexpr std::uint64_t kBytes = 40;

enum class Fails : std::uint8_t {
  never,
  at_once,  ///< while the others ask for the message
  late,     ///< when they have received it
};

struct Moment {
  const char* name;
  Fails when{};
  bool is_called = false;  ///< the ranks are in blocking calls by the fast path; else they start their operations
};

class DeafRank final : public Rank {
 public:
  DeafRank(int rank, const Moment& moment, Network& network)
      : Rank(rank, network, kBytes, kSize * kBytes + 1), moment_(moment) {}

  void take_turn(int turn) override {
    const bool sleeps = rank_ == kFailing && moment_.when == Fails::late && turn > 0 && turn < kAsleepTurns;
    if (!sleeps) Rank::take_turn(turn);
  }
  bool is_over() const override { return !is_calling() && Rank::is_over(); }
  std::uint64_t short_calls() const { return engine_->short_calls(); }

 private:
  static constexpr int kAsleepTurns = 50;

  /// With `computes`, all compute at the end.
  std::shared_ptr<const Plan> plan_of_the_deaf(bool computes) const {
    PlanBuilder builder("test/deaf", rank_, kSize);
    std::vector<StepId> received;
    for (int peer = 0; peer < kSize; ++peer) {
      if (peer == rank_) continue;
      builder.send({0, kBytes, Buffer::input}, peer, 0);
      const Region to{static_cast<std::uint64_t>(peer) * kBytes, kBytes, Buffer::output};
      if (rank_ != kDeaf || peer != kSender) received.push_back(builder.recv(to, peer, 0));
    }
    if (computes) builder.reduce({0, 1, Buffer::input}, {kSize * kBytes, 1, Buffer::output}, received);
    return std::make_shared<const Plan>(std::move(builder).finish(kBytes, kSize * kBytes + 1));
  }
  void start_first() override {
    const bool fails = rank_ == kFailing && moment_.when != Fails::never;
    const auto op = std::make_shared<const UserOp>(UserOp{.combine = [fails](ConstBytes, Bytes) {
      if (fails) throw Error(ErrorCode::internal, "on purpose");
    }});
    run_ = engine_->start(plan_of_the_deaf(true), {input_, output_}, {.user = op}, kSignature);
  }
  std::optional<Error> failure_of_call() override {
    const auto plan = next_ == 1 ? plan_of_the_deaf(false) : exchange_in_place_plan(rank_);
    return failure_of_run(*engine_, plan, {input_, output_}, {}, kSignature);
  }
  bool is_right(std::uint64_t operation, const std::optional<Error>& error) const override {
    if (operation > 0 || moment_.when == Fails::never) return !error;
    // In calls, it sends no message to one of the others.
    const bool may_fail = rank_ == kFailing || moment_.is_called;
    if (error) return may_fail && error->message().find("on purpose") != std::string::npos;
    return rank_ != kFailing;
  }

  const Moment& moment_;
};

Outcome outcome(const Moment& moment, Network& network) {
  Ranks ranks;
  for (int rank = 0; rank < kSize; ++rank) ranks.push_back(std::make_unique<DeafRank>(rank, moment, network));
  if (!moment.is_called) return outcome_of(ranks, network);
  if (moment.when != Fails::never) network.throwing = Network::Throwing{kFailing, true, 1};
  const Outcome found = outcome_of_calls(ranks, network);
  for (const auto& rank : ranks) EXPECT_GE(static_cast<const DeafRank&>(*rank).short_calls(), 1u);
  return found;
}

/// Whether it shows that the call is broken.
bool is_found(const Mutation& broken, Fails when) {
  const bool is_question = broken.call.what == Owed::recount || broken.call.what == Owed::recounted;
  if (!is_question || when == Fails::never) return true;
  // The settlement of the failure receives the message, too.
  return when == Fails::late && broken.way != Way::omitted && broken.way != Way::of_another_epoch;
}

/// Whether both ranks see that what they count differs, so that nobody uses the communicator any more.
bool is_given_up(const Mutation& broken, Fails when) {
  return (broken.call.what == Owed::counts && broken.way == Way::one_more) ||
         (broken.call.what == Owed::recounted && broken.way == Way::one_less && when == Fails::never);
}

std::vector<Mutation> mutations_of(const Network& whole, Fails when) {
  std::vector<Mutation> mutations;
  for (const Owed& call : whole.owed) {
    const auto add = [&](std::initializer_list<Way> ways, std::size_t item = 0) {
      for (const Way way : ways) mutations.push_back({call, way, item});
    };
    const bool is_list_of_it = call.what == Owed::list && call.rank == kSender && call.peer == kDeaf;
    switch (call.what) {
      case Owed::counts:
        if (call.of == 0) add({Way::omitted, Way::of_another_epoch, Way::one_less, Way::one_more});
        break;
      case Owed::recount: add({Way::omitted, Way::of_another_epoch}); break;
      case Owed::list:
      case Owed::recounted:
        // Other lists: FailureMutations.
        if (call.what == Owed::list && (!is_list_of_it || when != Fails::at_once)) break;
        add({Way::omitted, Way::of_another_epoch});
        if (call.items > 0) add({Way::one_more});
        for (std::size_t item = 0; item < call.items; ++item)
          add({Way::one_less, Way::another_tag_told, Way::fewer_bytes}, item);
        break;
      case Owed::sink: add({Way::omitted, Way::under_another_tag, Way::fewer_bytes}); break;
      default: break;
    }
  }
  return mutations;
}

class RecountMutations : public testing::TestWithParam<Moment> {
 protected:
  void SetUp() override { ASSERT_EQ(outcome(GetParam(), whole_).complaint, ""); }

  Network whole_;  ///< nothing is broken
};

TEST_P(RecountMutations, AreFoundAndNeverGiveWrongData) {
  const std::vector<Mutation> mutations = mutations_of(whole_, GetParam().when);
  for (const Mutation& broken : mutations) {
    SCOPED_TRACE(text_of(broken));
    Network network{.mutation = broken};
    const Outcome found = outcome(GetParam(), network);
    EXPECT_TRUE(network.is_applied);
    EXPECT_EQ(found.complaint != "", is_found(broken, GetParam().when)) << found.complaint;
    EXPECT_FALSE(found.has_wrong_data);
    if (is_given_up(broken, GetParam().when)) {
      EXPECT_EQ(found.failed_at_last, kSize) << found.complaint;
    }
  }
  for (const auto what : {Owed::counts, Owed::recount, Owed::recounted, Owed::sink})
    EXPECT_TRUE(std::ranges::any_of(mutations, [&](const Mutation& each) { return each.call.what == what; })) << what;
}

// It is late until all ranks can do nothing more without it: those that run ahead are two epochs further.
TEST_P(RecountMutations, WhatIsToldAgainOrLateHarmsNobody) {
  expect_harmless_again_and_late(whole_.owed, [&](Network& network) { return outcome(GetParam(), network); });
}

INSTANTIATE_TEST_SUITE_P(, RecountMutations,
                         testing::Values(Moment{"never", Fails::never}, Moment{"at_once", Fails::at_once},
                                         Moment{"late", Fails::late}, Moment{"never_in_calls", Fails::never, true},
                                         Moment{"at_once_in_calls", Fails::at_once, true}),
                         [](const auto& moment) { return std::string(moment.param.name); });

}  // namespace
}  // namespace penstock::engine::mutation::recount
