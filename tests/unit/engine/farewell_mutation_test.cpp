// Tests what a rank does when another one has left: breaks each answer of the rank that has left, and each message that
// ranks send each other because of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "broken_network.hpp"

namespace penstock::engine::mutation::farewell {
namespace {

constexpr int kLeaving = 2;
constexpr int kFailing = 1;
constexpr std::uint64_t kBytes = 4000;  // the transport waits for the receiver

enum class Leaves : std::uint8_t {
  at_once,            ///< the others wait for its messages
  after_its_part,     ///< what it has sent is received
  before_a_long_one,  ///< the others wait until it receives theirs
  before_a_failure,   ///< of an operation that it has completed
};

class RankWithALeaver final : public Rank {
 public:
  RankWithALeaver(int rank, Leaves when, Network& network)
      : Rank(rank, network, kBytes, kSize * kBytes + 1), when_(when) {
    if (rank == kLeaving) operations_ = first_missed();
  }

  void take_turn(int turn) override {
    if (has_left_) return;
    if (rank_ == kFailing && when_ == Leaves::before_a_failure && turn > 0 && turn < kAsleepTurns) return;
    Rank::take_turn(turn);
    if (rank_ != kLeaving || !Rank::is_over()) return;
    has_left_ = true;
    engine_.reset();
  }
  bool is_over() const override {
    if (rank_ == kLeaving) return has_left_;
    // After a death the engine stays active. A long message is left in flight.
    return !run_ && next_ == operations_ &&
           (when_ == Leaves::before_a_long_one || !engine_->needs_polling(Caller::application));
  }

 private:
  static constexpr int kAsleepTurns = 20;

  std::uint64_t first_missed() const { return when_ == Leaves::after_its_part ? 2 : 1; }
  void start_first() override {
    if (when_ != Leaves::before_a_failure) return start_later(0);
    PlanBuilder builder("test/fails", rank_, kSize);
    std::vector<StepId> received;
    for (int peer = 0; peer < kSize; ++peer) {
      if (peer == rank_) continue;
      builder.send({0, 1, Buffer::input}, peer, 0);
      received.push_back(builder.recv({static_cast<std::uint64_t>(peer), 1, Buffer::output}, peer, 0));
    }
    builder.reduce({0, 1, Buffer::input}, {kSize, 1, Buffer::output}, received);
    const bool fails = rank_ == kFailing;
    const auto op = std::make_shared<const UserOp>(UserOp{.combine = [fails](ConstBytes, Bytes) {
      if (fails) throw Error(ErrorCode::internal, "on purpose");
    }});
    run_ = engine_->start(std::make_shared<const Plan>(std::move(builder).finish(1, kSize + 1)), {input_, output_},
                          {.user = op}, kSignature);
  }
  void start_later(std::uint64_t operation) override {
    PlanBuilder builder("test/goes_on", rank_, kSize);
    const bool is_last = operation + 1 == first_missed() && when_ == Leaves::after_its_part;
    const std::uint64_t bytes = operation > 0 && when_ == Leaves::before_a_long_one ? kBytes : 1;
    for (int peer = 0; peer < kSize; ++peer) {
      const Region to{static_cast<std::uint64_t>(peer) * bytes, bytes, Buffer::output};
      if (peer == rank_) {
        builder.copy({0, bytes, Buffer::input}, to);
        continue;
      }
      // It takes nothing in its last operation, and does not wait.
      if (!is_last || peer != kLeaving) builder.send({0, bytes, Buffer::input}, peer, 0);
      if (!is_last || rank_ != kLeaving) builder.recv(to, peer, 0);
    }
    input_[0] = static_cast<std::byte>(operation * 10 + static_cast<std::uint64_t>(rank_));
    run_ = engine_->start(std::make_shared<const Plan>(std::move(builder).finish(bytes, kSize * bytes)),
                          {input_, output_}, {}, kSignature);
  }
  bool is_right(std::uint64_t operation, const std::optional<Error>& error) const override {
    if (operation >= first_missed())
      return error && error->code() == ErrorCode::peer_failed && error->rank() == kLeaving;
    if (operation > 0 || rank_ != kFailing || when_ != Leaves::before_a_failure) return !error;
    return error && error->message().find("on purpose") != std::string::npos;
  }
  bool has_right_data(std::uint64_t operation) const override {
    for (std::uint64_t peer = 0; peer < kSize; ++peer)
      if (output_[peer] != static_cast<std::byte>(operation * 10 + peer) && rank_ != kLeaving) return false;
    return true;
  }

  const Leaves when_;
  bool has_left_ = false;
};

Outcome outcome(Leaves when, Network& network) {
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int rank = 0; rank < kSize; ++rank) ranks.push_back(std::make_unique<RankWithALeaver>(rank, when, network));
  return outcome_of(ranks, network, kLeaving);
}

/// Whether it shows that the call is broken: what is left of the failed operations is not settled.
bool is_found(const Mutation& broken, Leaves when) {
  const bool is_first = broken.call.what == Owed::farewell && broken.call.nth == 0;
  if (broken.way == Way::all_omitted) return is_first;
  if (when == Leaves::before_a_long_one) return false;  // that stays in flight, and nobody waits for more
  if (broken.way == Way::of_another_rank)
    return is_first && (when != Leaves::before_a_failure || broken.call.rank != kFailing);
  return broken.call.what == Owed::list && broken.call.peer != kLeaving;
}

/// Whether a call waits for what is left in flight: the rank never hears that nobody receives it.
bool is_hung(const Mutation& broken, Leaves when) {
  return when == Leaves::before_a_long_one && is_found(broken, when);
}

class FarewellMutations : public testing::TestWithParam<Leaves> {
 protected:
  void SetUp() override { ASSERT_EQ(outcome(GetParam(), whole_).complaint, ""); }

  Network whole_;  ///< nothing is broken
};

TEST_P(FarewellMutations, HangNoCallIfAnyAnswerComes) {
  int farewells = 0;
  for (const Owed& call : whole_.owed) {
    if (!call.is_packet() || call.what == Owed::counts) continue;
    farewells += call.what == Owed::farewell ? 1 : 0;
    std::vector<Way> ways{Way::omitted};
    if (call.what == Owed::probe || call.what == Owed::farewell) ways.push_back(Way::all_omitted);
    if (call.what == Owed::farewell) ways.push_back(Way::of_another_rank);
    for (const Way way : ways) {
      const Mutation broken{call, way};
      SCOPED_TRACE(text_of(broken));
      Network network{.mutation = broken};
      const Outcome found = outcome(GetParam(), network);
      EXPECT_TRUE(network.is_applied);
      EXPECT_EQ(found.complaint != "", is_found(broken, GetParam())) << found.complaint;
      EXPECT_FALSE(found.has_wrong_data);
      EXPECT_EQ(found.failed_at_last, kSize - (is_hung(broken, GetParam()) ? 2 : 1)) << found.complaint;
    }
  }
  EXPECT_GT(farewells, 1);
}

TEST_P(FarewellMutations, WhatIsToldAgainOrLateHarmsNobody) {
  expect_harmless_again_and_late(whole_.owed, [&](Network& network) { return outcome(GetParam(), network); });
}

std::string name_of_moment(const testing::TestParamInfo<Leaves>& moment) {
  constexpr std::array kNames{"at_once", "after_its_part", "before_a_long_one", "before_a_failure"};
  return kNames[static_cast<std::size_t>(moment.param)];
}

INSTANTIATE_TEST_SUITE_P(, FarewellMutations,
                         testing::Values(Leaves::at_once, Leaves::after_its_part, Leaves::before_a_long_one,
                                         Leaves::before_a_failure),
                         name_of_moment);

}  // namespace
}  // namespace penstock::engine::mutation::farewell
