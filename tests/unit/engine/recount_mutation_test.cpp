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

class DeafRank final : public Rank {
 public:
  DeafRank(int rank, Fails when, Network& network) : Rank(rank, network, kBytes, kSize * kBytes + 1), when_(when) {}

  void take_turn(int turn) override {
    const bool sleeps = rank_ == kFailing && when_ == Fails::late && turn > 0 && turn < kAsleepTurns;
    if (!sleeps) Rank::take_turn(turn);
  }

 private:
  static constexpr int kAsleepTurns = 50;

  void start_first() override {
    PlanBuilder builder("test/deaf", rank_, kSize);
    std::vector<StepId> received;
    for (int peer = 0; peer < kSize; ++peer) {
      if (peer == rank_) continue;
      builder.send({0, kBytes, Buffer::input}, peer, 0);
      const Region to{static_cast<std::uint64_t>(peer) * kBytes, kBytes, Buffer::output};
      if (rank_ != kDeaf || peer != kSender) received.push_back(builder.recv(to, peer, 0));
    }
    builder.reduce({0, 1, Buffer::input}, {kSize * kBytes, 1, Buffer::output}, received);
    const bool fails = rank_ == kFailing && when_ != Fails::never;
    const auto op = std::make_shared<const UserOp>(UserOp{.combine = [fails](ConstBytes, Bytes) {
      if (fails) throw Error(ErrorCode::internal, "on purpose");
    }});
    run_ = engine_->start(std::make_shared<const Plan>(std::move(builder).finish(kBytes, kSize * kBytes + 1)),
                          {input_, output_}, {.user = op}, kSignature);
  }
  bool is_right(std::uint64_t operation, const std::optional<Error>& error) const override {
    if (operation > 0 || rank_ != kFailing || when_ == Fails::never) return !error;
    return error && error->message().find("on purpose") != std::string::npos;
  }

  const Fails when_;
};

Outcome outcome(Fails when, Network& network) {
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int rank = 0; rank < kSize; ++rank) ranks.push_back(std::make_unique<DeafRank>(rank, when, network));
  return outcome_of(ranks, network);
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

class RecountMutations : public testing::TestWithParam<Fails> {
 protected:
  void SetUp() override { ASSERT_EQ(outcome(GetParam(), whole_).complaint, ""); }

  Network whole_;  ///< nothing is broken
};

TEST_P(RecountMutations, AreFoundAndNeverGiveWrongData) {
  const std::vector<Mutation> mutations = mutations_of(whole_, GetParam());
  for (const Mutation& broken : mutations) {
    SCOPED_TRACE(text_of(broken));
    Network network{.mutation = broken};
    const Outcome found = outcome(GetParam(), network);
    EXPECT_TRUE(network.is_applied);
    EXPECT_EQ(found.complaint != "", is_found(broken, GetParam())) << found.complaint;
    EXPECT_FALSE(found.has_wrong_data);
    if (is_given_up(broken, GetParam())) {
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

std::string name_of_moment(const testing::TestParamInfo<Fails>& moment) {
  constexpr std::array kNames{"never", "at_once", "late"};
  return kNames[static_cast<std::size_t>(moment.param)];
}

INSTANTIATE_TEST_SUITE_P(, RecountMutations, testing::Values(Fails::never, Fails::at_once, Fails::late),
                         name_of_moment);

}  // namespace
}  // namespace penstock::engine::mutation::recount
