// Messages between nodes: matched by the transport, and settled after failures, whatever comes late.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>

#include "calls.hpp"
#include "engine/remote/message_counts.hpp"
#include "engine/remote/settlement.hpp"
#include "engine/remote/tag_split.hpp"
#include "eventually.hpp"
#include "make_engine.hpp"
#include "plans.hpp"
#include "ranks.hpp"
#include "takes_all.hpp"
#include "wrapped_transport.hpp"

namespace penstock::engine {
namespace {

TEST(TagSplit, KeepsOperationsAndMessagesApart) {
  for (const std::uint32_t most : {2u, 4u, 512u}) {
    const TagSplit split((1 << 28) - 1, most);
    EXPECT_EQ(split.slots(), most);
    for (std::uint64_t sequence = 0; sequence < 3 * most; ++sequence) {
      EXPECT_EQ(split.epoch(sequence), sequence / (most / 2));
      EXPECT_EQ(split.sequence(split.epoch(sequence), split.tag(sequence, 7, 5)), sequence);
    }
  }
  for (const int max_tag : {32767, 65535, (1 << 22) - 1, (1 << 28) - 1, 2147483647}) {
    const TagSplit split(max_tag);
    EXPECT_GE(split.slots(), 16u) << max_tag;
    std::set<int> tags;
    const std::uint64_t slots = std::min<std::uint64_t>(split.slots(), 16);
    for (std::uint64_t sequence = 0; sequence < slots; ++sequence)
      for (const std::uint32_t plan_tag : {0u, 1u, split.plan_tags() - 1}) {
        const int tag = split.tag(sequence, 7, plan_tag);
        EXPECT_GT(tag, TagSplit::kControlTag);
        EXPECT_LE(tag, max_tag);
        EXPECT_EQ(split.plan_tag(sequence, 7, tag), plan_tag);
        tags.insert(tag);
      }
    EXPECT_EQ(tags.size(), 3 * slots);
    EXPECT_GT(split.tag(split.slots() - 1, ~std::uint64_t{0}, split.plan_tags() - 1), 0);
    EXPECT_LE(split.tag(split.slots() - 1, 1, split.plan_tags() - 1), max_tag);
  }
}

// What docs/design/network.md promises for two calls that differ: how often a message of one matches a receive of the
// other.
TEST(TagSplit, TellsSignaturesApart) {
  for (const int max_tag : {32767, (1 << 28) - 1, 2147483647})
    for (const std::uint32_t plan_tags : {1u, 8u}) {
      const TagSplit split(max_tag);
      const int message_bits = static_cast<int>(std::bit_width(static_cast<std::uint32_t>(max_tag))) - 1 -
                               static_cast<int>(std::bit_width(split.slots()) - 1);
      std::uint64_t matches = 0;
      constexpr std::uint64_t kPairs = 1 << 18;
      for (std::uint64_t i = 0; i < kPairs; ++i) {
        std::set<int> sent;
        for (std::uint32_t tag = 0; tag < plan_tags; ++tag) sent.insert(split.tag(i, i, tag));
        for (std::uint32_t tag = 0; tag < plan_tags; ++tag) matches += sent.count(split.tag(i, i + 1, tag));
      }
      const std::uint64_t expected = kPairs * plan_tags * plan_tags >> message_bits;
      EXPECT_LE(matches, 2 * expected + 32) << max_tag << " " << plan_tags;
    }
}

TEST(Settlement, SinksWhatWasSentAndNotReceived) {
  const auto any_source = [](int) { return true; };
  Settlement settlement;
  settlement.hear(1, {{.tag = 3, .bytes = 30}, {.tag = 4, .bytes = 40}});
  EXPECT_TRUE(settlement.take_missing(any_source).empty());
  settlement.end({{1, 3}, {2, 3}}, {1, 2, 5});
  auto missing = settlement.take_missing(any_source);
  ASSERT_EQ(missing.size(), 1u);
  EXPECT_EQ(missing[0].source, 1);
  EXPECT_EQ(missing[0].message.tag, 4);
  settlement.hear(2, {{.tag = 3, .bytes = 30}});
  settlement.hear(2, {{.tag = 9, .bytes = 30}});  // told again
  settlement.give_up(5);
  EXPECT_TRUE(settlement.take_missing(any_source).empty());
  EXPECT_FALSE(settlement.is_settled());
  settlement.has_sunk();
  EXPECT_TRUE(settlement.is_settled());
}

TEST(MessageCounts, TellsWhatWasSentUpToAnEpoch) {
  MessageCounts sender;
  MessageCounts receiver;
  for (const std::uint64_t epoch : {0, 1, 0, 1, 1}) sender.note_sent(epoch);
  for (const std::uint64_t epoch : {1, 0, 1, 1}) receiver.note_received(epoch);
  EXPECT_EQ(sender.may_post_before(), 2u);
  ASSERT_TRUE(sender.has_news(0));
  receiver.hear(sender.tell(0));
  EXPECT_FALSE(sender.has_news(0));
  EXPECT_EQ(receiver.heard().sent, 2u);
  EXPECT_EQ(receiver.received_of_heard(), 1u);  // one is missing
  receiver.note_received(0);
  EXPECT_EQ(receiver.received_of_heard(), 2u);
  receiver.clear_heard();
  EXPECT_EQ(receiver.may_post_before(), 2u);  // it has told nothing yet
  ASSERT_TRUE(receiver.has_news(0));
  sender.hear(receiver.tell(0));
  EXPECT_EQ(receiver.may_post_before(), 3u);
  EXPECT_EQ(sender.heard().sent, 0u);
  sender.clear_heard();
  EXPECT_EQ(sender.may_post_before(), 3u);
  sender.note_sent(2);
  receiver.note_received(2);
  receiver.hear(sender.tell(1));
  EXPECT_FALSE(sender.has_news(1));
  EXPECT_TRUE(sender.has_news(2));
  EXPECT_EQ(receiver.heard().sent, 5u);
  EXPECT_EQ(receiver.received_of_heard(), 5u);
  receiver.clear_heard();
  // Long nothing.
  receiver.hear(sender.tell(40));
  EXPECT_FALSE(sender.has_news(41));
  sender.ask(40);
  EXPECT_EQ(sender.asked_before(), 0u);
  sender.ask(41);
  EXPECT_EQ(sender.asked_before(), 42u);
  EXPECT_EQ(receiver.heard().sent, 6u);
  EXPECT_EQ(receiver.received_of_heard(), 6u);
  EXPECT_FALSE(sender.may_have_sent_in(40));
  EXPECT_TRUE(sender.may_have_sent_in(2));
}

/// Tags that are enough, and those of an MPI that has the fewest; what is complete is found at once, or late.
struct NetworkSetting {
  int max_tag;
  std::uint64_t shuffle_seed;
  int progress_threads;
  std::uint32_t slots = 512;
};

class Remote : public testing::TestWithParam<NetworkSetting> {
 protected:
  RanksOptions ranks(std::vector<std::int32_t> nodes) {
    RanksOptions options = ranks_of(std::move(nodes));
    options.transport.max_tag = GetParam().max_tag;
    options.transport.shuffle_seed = GetParam().shuffle_seed;
    options.transport.rendezvous_bytes = 1000;
    options.transport.left_over = &left_over_;
    options.engine.progress_threads = GetParam().progress_threads;
    options.engine.operation_slots = GetParam().slots;
    return options;
  }
  static std::uint32_t slots() {
    return static_cast<std::uint32_t>(TagSplit(GetParam().max_tag, GetParam().slots).slots());
  }
  /// An operation in each slot of the tags: those before are settled then.
  void reuse_all_slots(Engine& engine, int rank) {
    const int size = engine.team().size();
    for (std::uint64_t i = 0; i <= slots(); ++i) {
      std::vector<std::uint32_t> in(500, static_cast<std::uint32_t>(rank + 1));
      std::vector<std::uint32_t> out(500);
      engine.start(allreduce_plan(rank, size, 2000), {bytes_of(in), bytes_of(out)}, kAddUint32, 1)->wait();
      ASSERT_EQ(out[499], static_cast<std::uint32_t>(size * (size + 1) / 2));
    }
  }
  void TearDown() override { EXPECT_EQ(left_over_.load(), 0u); }

  std::atomic<std::size_t> left_over_{0};
};
INSTANTIATE_TEST_SUITE_P(, Remote,
                         testing::Values(NetworkSetting{32767, 0, 0}, NetworkSetting{32767, 1, 0},
                                         NetworkSetting{32767, 2, 1}, NetworkSetting{(1 << 23) - 1, 3, 0},
                                         NetworkSetting{(1 << 23) - 1, 4, 1}, NetworkSetting{32767, 5, 0, 2},
                                         NetworkSetting{32767, 6, 1, 2}, NetworkSetting{32767, 7, 0, 4},
                                         NetworkSetting{32767, 0, 1, 4}),
                         [](const auto& setting) {
                           return "tags_" + std::to_string(setting.param.max_tag) + "_seed_" +
                                  std::to_string(setting.param.shuffle_seed) + "_slots_" +
                                  std::to_string(setting.param.slots);
                         });

TEST_P(Remote, MoreMessagesThanTagsAndMoreOperationsThanSlots) {
  constexpr std::uint32_t kMessages = 600;
  run_ranks(ranks({0, 1, 2}), [&](Engine& engine, int rank) {
    std::vector<std::shared_ptr<engine::Run>> runs;
    std::vector<std::vector<std::uint32_t>> in;
    std::vector<std::vector<std::uint32_t>> out(12, std::vector<std::uint32_t>(kMessages));
    const auto plan = messages_plan(rank, 3, kMessages, 4);
    for (std::uint32_t i = 0; i < out.size(); ++i) {
      in.emplace_back(kMessages);
      for (std::uint32_t k = 0; k < kMessages; ++k) in[i][k] = static_cast<std::uint32_t>(rank) << 24 | i << 16 | k;
    }
    for (std::uint32_t i = 0; i < out.size(); ++i)
      runs.push_back(engine.start(plan, {bytes_of(std::as_const(in[i])), bytes_of(out[i])}, {}, 7));
    for (const auto& run : runs) run->wait();
    const auto left = static_cast<std::uint32_t>((rank + 2) % 3);
    for (std::uint32_t i = 0; i < out.size(); ++i)
      for (std::uint32_t k = 0; k < kMessages; ++k) ASSERT_EQ(out[i][k], left << 24 | i << 16 | k);
  });
}

// Blocking calls poll for messages before they wait. Ranks come late, and some fail.
TEST_P(Remote, BlockingCallsAndFailuresBetweenThem) {
  constexpr int kSize = 3;
  constexpr std::uint32_t kOperations = 300;
  run_ranks(ranks({0, 0, 1}), [&](Engine& engine, int rank) {
    std::mt19937 random(static_cast<std::mt19937::result_type>(rank));
    const auto plan = alltoall_plan(rank, kSize, 8);
    for (std::uint32_t i = 0; i < kOperations; ++i) {
      if (random() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
      const bool some_fails = i % 11 == 10;
      const int failing = some_fails ? static_cast<int>(i / 11 % kSize) : -1;
      if (rank == failing) {
        engine.fail_next("late");
        continue;
      }
      const std::vector<std::uint64_t> in(kSize, std::uint64_t{i} << 8 | static_cast<std::uint64_t>(rank));
      std::vector<std::uint64_t> out(kSize);
      const auto error = failure_of_run(engine, plan, {bytes_of(in), bytes_of(out)});
      if (some_fails) {
        ASSERT_TRUE(error) << i;
        ASSERT_EQ(error->code(), ErrorCode::peer_failed) << error->what();
        ASSERT_EQ(error->rank(), failing) << error->what();
        continue;
      }
      ASSERT_FALSE(error) << error->what();
      for (std::uint64_t peer = 0; peer < kSize; ++peer) ASSERT_EQ(out[peer], std::uint64_t{i} << 8 | peer);
    }
    reuse_all_slots(engine, rank);
  });
}

// Rank 0 has blocking calls alone, each of which is complete at once. Rank 1 of its node has gone.
TEST(BlockingCalls, NoticeARankThatHasGone) {
  run_ranks(ranks_of({0, 0, 1}), [](Engine& engine, int rank) {
    if (rank == 1) return;
    PlanBuilder builder("test/one_way", rank, 3);
    const Region region{0, 8, rank == 0 ? Buffer::input : Buffer::output};
    rank == 0 ? builder.send(region, 2, 0) : builder.recv(region, 0, 0);
    const auto plan = std::make_shared<const Plan>(std::move(builder).finish(rank == 0 ? 8 : 0, rank == 0 ? 0 : 8));
    std::vector<std::uint64_t> memory(1);
    const Bindings bindings =
        rank == 0 ? Bindings{bytes_of(std::as_const(memory)), {}} : Bindings{{}, bytes_of(memory)};
    std::optional<Error> error;
    const auto end = std::chrono::steady_clock::now() + test::kHung;
    while (!error && std::chrono::steady_clock::now() < end) error = failure_of_run(engine, plan, bindings);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::peer_failed) << error->what();
    EXPECT_EQ(error->rank(), 1);
  });
}

// Rank 0 is as far ahead as it can be when rank 1 comes, which fails some of the operations.
TEST_P(Remote, FailuresOfARankThatComesLate) {
  constexpr std::uint32_t kOperations = 60;
  std::atomic<bool> all_sent{false};
  run_ranks(ranks({0, 1}), [&](Engine& engine, int rank) {
    PlanBuilder builder("test/one_way", rank, 2);
    for (std::uint32_t tag = 0; tag < 3; ++tag) {
      const Region region{tag * 100, 100, rank == 0 ? Buffer::input : Buffer::output};
      rank == 0 ? builder.send(region, 1, tag) : builder.recv(region, 0, tag);
    }
    const auto plan = std::make_shared<const Plan>(std::move(builder).finish(rank == 0 ? 300 : 0, rank == 0 ? 0 : 300));
    while (rank == 1 && !all_sent.load()) std::this_thread::yield();
    for (std::uint32_t i = 0; i < kOperations; ++i) {
      if (rank == 0 && i == std::min(slots(), kOperations) - 1) all_sent.store(true);
      std::vector<std::uint32_t> memory(75, rank == 0 ? i : ~0u);
      if (rank == 0) {
        static_cast<void>(failure_of(*engine.start(plan, {bytes_of(std::as_const(memory)), {}}, {}, 7)));
      } else if (i % 7 == 3) {
        engine.fail_next("late");
      } else {
        const auto error = failure_of(*engine.start(plan, {{}, bytes_of(memory)}, {}, 7));
        ASSERT_FALSE(error) << error->what();
        ASSERT_EQ(memory, std::vector<std::uint32_t>(75, i));
      }
    }
    reuse_all_slots(engine, rank);
  });
}

// Failures in the middle, ranks that come late, and plans that do not fit: what goes wrong is told to all who have not
// completed it, and every other operation has its own data.
TEST_P(Remote, FailuresOfAllKinds) {
  constexpr int kSize = 4;
  constexpr std::uint32_t kOperations = 40;
  std::vector<RandomPlans> cases;
  for (std::uint32_t i = 0; i < 3; ++i) cases.emplace_back(kSize, 30, 4, i == 0 ? 16 : i == 1 ? 700 : 5000, i + 10);
  enum Kind { right, refused, thrown, other_signature, other_size, kinds };
  run_ranks(ranks({0, 1, 2, 1}), [&](Engine& engine, int rank) {
    const auto me = static_cast<std::size_t>(rank);
    std::mt19937 mine(static_cast<std::uint32_t>(rank));
    std::mt19937 shared(99);  // decides alike on all ranks
    struct Started {
      std::uint32_t operation;
      Kind kind;
      std::unique_ptr<std::vector<std::uint32_t>> in;
      std::unique_ptr<std::vector<std::uint32_t>> out;
      std::shared_ptr<engine::Run> run;
    };
    std::vector<Started> started;
    const auto finish = [&] {
      for (Started& one : started) {
        const auto error = failure_of(*one.run);
        const std::vector<std::uint32_t>& expected = cases[one.operation % cases.size()].outputs[me];
        if (error) {
          EXPECT_NE(one.kind, right) << one.operation << ": " << error->what();
        } else if (one.kind == right) {
          EXPECT_EQ(*one.out, expected) << one.operation;
        }
        one.in.reset();
        one.out.reset();
      }
      started.clear();
    };
    for (std::uint32_t i = 0; i < kOperations; ++i) {
      const RandomPlans& one = cases[i % cases.size()];
      const auto kind = shared() % 2 == 0 ? right : static_cast<Kind>(shared() % kinds);
      const bool by_me = static_cast<int>(shared() % kSize) == rank;
      if (mine() % 8 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(mine() % 3));
      if (kind == refused && by_me) {
        engine.fail_next("on purpose");
      } else {
        Started next{i, kind, std::make_unique<std::vector<std::uint32_t>>(one.inputs[me]),
                     std::make_unique<std::vector<std::uint32_t>>(one.inputs[me].size()), nullptr};
        auto plan = one.plans[me];
        if (kind == other_size && by_me) {
          Plan changed = *plan;
          for (Step& step : changed.steps)
            if (step.kind == StepKind::send && step.from.size_bytes > 4) {
              step.from.size_bytes -= 4;
              break;
            }
          plan = std::make_shared<const Plan>(std::move(changed));
        }
        Arithmetic arithmetic = kAddUint32;
        if (kind == thrown && by_me)
          arithmetic = {.user = std::make_shared<const UserOp>(
                            UserOp{.combine = [](ConstBytes, Bytes) { throw Error(ErrorCode::internal, "thrown"); }})};
        next.run = engine.start(plan, {bytes_of(std::as_const(*next.in)), bytes_of(*next.out)}, arithmetic,
                                kind == other_signature && by_me ? 1000 : i);
        started.push_back(std::move(next));
      }
      if (mine() % 4 == 0) finish();
    }
    finish();
    reuse_all_slots(engine, rank);
  });
}

// Same signature, plans that do not fit: neither rank has completed it, and none of their messages meet.
TEST_P(Remote, PlansThatDoNotFitAreFound) {
  run_ranks(ranks({0, 1}), [&](Engine& engine, int rank) {
    PlanBuilder builder("test/unfit", rank, 2);
    const std::uint32_t tag = rank == 0 ? 3 : 5;
    if (rank == 0) builder.send({0, 8, Buffer::input}, 1, 4);
    builder.send({0, 8, Buffer::input}, 1 - rank, tag);
    builder.recv({0, 8, Buffer::output}, 1 - rank, tag);
    const auto plan = std::make_shared<const Plan>(std::move(builder).finish(8, 8));
    if (GetParam().max_tag > 1 << 20) {
      std::vector<std::uint32_t> in(2);
      std::vector<std::uint32_t> out(2);
      const auto error = failure_of(*engine.start(plan, {bytes_of(std::as_const(in)), bytes_of(out)}, {}, 7));
      ASSERT_TRUE(error);
      EXPECT_EQ(error->code(), ErrorCode::mismatch) << error->what();
    }
    reuse_all_slots(engine, rank);
  });
}

/// Every rank sends a number to every other one. Without a receive from `skipped`.
std::shared_ptr<const Plan> exchange_without_plan(int rank, int size, int skipped) {
  PlanBuilder builder("test/exchange", rank, size);
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    builder.send({0, 4, Buffer::input}, peer, 0);
    if (peer != skipped) builder.recv({static_cast<std::uint64_t>(peer) * 4, 4, Buffer::output}, peer, 0);
  }
  return std::make_shared<const Plan>(std::move(builder).finish(4, static_cast<std::uint64_t>(size) * 4));
}

// The ranks complete operations of which one does not take what another one has sent, and use the same tags again.
TEST_P(Remote, WhatNobodyTakesIsNotTakenForAnotherMessage) {
  constexpr int kSize = 3;
  for (std::uint32_t seed = 0; seed < 3; seed += fewer_if_sanitized(3))
    run_ranks(ranks({0, 1, 2}), [&](Engine& engine, int rank) {
      std::mt19937 shared(seed);
      std::mt19937 mine(seed * 100 + static_cast<std::uint32_t>(rank));
      const std::uint32_t count = std::min(8 * slots() + 20, 2 * slots() + 100);
      struct Started {
        std::uint32_t operation = 0;
        int skipped = -1;
        bool may_fail = false;
        std::vector<std::uint32_t> in = std::vector<std::uint32_t>(1);
        std::vector<std::uint32_t> out = std::vector<std::uint32_t>(kSize, ~0u);
        std::shared_ptr<engine::Run> run;
      };
      std::vector<std::unique_ptr<Started>> started;
      const auto finish = [&] {
        for (const auto& one : started) {
          const auto error = failure_of(*one->run);
          if (error) {
            EXPECT_TRUE(one->may_fail) << one->operation << ": " << error->what();
            continue;
          }
          for (int peer = 0; peer < kSize; ++peer) {
            if (peer == rank || peer == one->skipped) continue;
            EXPECT_EQ(one->out[static_cast<std::size_t>(peer)], one->operation * 10 + static_cast<std::uint32_t>(peer))
                << "operation " << one->operation << " on rank " << rank << " from rank " << peer;
          }
        }
        started.clear();
      };
      for (std::uint32_t i = 0; i < count; ++i) {
        const bool is_mistaken = shared() % 4 == 0 && i + slots() < count;
        const int receiver = static_cast<int>(shared() % kSize);
        const int sender = static_cast<int>((static_cast<unsigned>(receiver) + 1 + shared() % 2) % kSize);
        const bool fails = shared() % 16 == 0;
        const int failing = static_cast<int>(shared() % kSize);
        if (mine() % 32 == 0) std::this_thread::sleep_for(std::chrono::microseconds(mine() % 2000));
        if (fails && failing == rank) {
          engine.fail_next("on purpose");
          continue;
        }
        auto next = std::make_unique<Started>();
        next->operation = i;
        next->may_fail = fails || is_mistaken;  // a rank that waits long asks its peers, and finds the mistake
        next->skipped = is_mistaken && receiver == rank ? sender : -1;
        next->in[0] = i * 10 + static_cast<std::uint32_t>(rank);
        next->run = engine.start(exchange_without_plan(rank, kSize, next->skipped),
                                 {bytes_of(std::as_const(next->in)), bytes_of(next->out)}, {}, 7);
        started.push_back(std::move(next));
        if (mine() % 4 == 0) finish();
      }
      finish();
      reuse_all_slots(engine, rank);
      reuse_all_slots(engine, rank);
    });
}

// One way, and nothing back: the sender is ahead.
TEST_P(Remote, WhatALateRankDoesNotTakeIsNotTakenForAnotherMessage) {
  std::atomic<bool> all_sent{false};
  run_ranks(ranks({0, 1}), [&](Engine& engine, int rank) {
    const std::uint32_t count = std::min(3 * slots(), slots() + 50);
    while (rank == 1 && !all_sent.load()) std::this_thread::yield();
    for (std::uint32_t i = 0; i < count; ++i) {
      if (rank == 0 && i == slots() - 1) all_sent.store(true);
      const bool is_taken = i % 5 != 1;
      PlanBuilder builder("test/one_way", rank, 2);
      if (rank == 0) builder.send({0, 4, Buffer::input}, 1, 0);
      if (rank == 1 && is_taken) builder.recv({0, 4, Buffer::output}, 0, 0);
      const auto plan = std::make_shared<const Plan>(std::move(builder).finish(rank == 0 ? 4 : 0, rank == 0 ? 0 : 4));
      std::vector<std::uint32_t> memory(1, rank == 0 ? i : ~0u);
      const auto error = rank == 0 ? failure_of(*engine.start(plan, {bytes_of(std::as_const(memory)), {}}, {}, 7))
                                   : failure_of(*engine.start(plan, {{}, bytes_of(memory)}, {}, 7));
      ASSERT_FALSE(error) << error->what();
      ASSERT_EQ(memory[0], rank == 0 || is_taken ? i : ~0u);
    }
    reuse_all_slots(engine, rank);
    reuse_all_slots(engine, rank);
  });
}

/// Rank 0 sends to rank 1, in one message.
std::shared_ptr<const Plan> one_way_plan(int rank, std::uint64_t bytes) {
  PlanBuilder builder("test/one_way", rank, 2);
  if (rank == 0) builder.send({0, bytes, Buffer::input}, 1, 0);
  if (rank == 1) builder.recv({0, bytes, Buffer::output}, 0, 0);
  return std::make_shared<const Plan>(std::move(builder).finish(rank == 0 ? bytes : 0, rank == 0 ? 0 : bytes));
}

/// Short: the transport sends it without asking the receiver. Long: the transport waits for the receiver.
constexpr std::uint64_t kShortBytes = 400;
constexpr std::uint64_t kLongBytes = 4000;

std::optional<Error> failure_of_send(Engine& engine, std::uint64_t bytes) {
  const std::vector<std::uint32_t> data(bytes / 4, 1);
  return failure_of(*engine.start(one_way_plan(0, bytes), {bytes_of(data), {}}, {}, 7));
}

/// Fewer settings: an error comes at the failure detector's third check.
class Leaving : public Remote {};
INSTANTIATE_TEST_SUITE_P(, Leaving,
                         testing::Values(NetworkSetting{32767, 0, 0, 4}, NetworkSetting{(1 << 23) - 1, 4, 1}),
                         [](const auto& setting) { return "slots_" + std::to_string(setting.param.slots); });

// However many follow, and although none of them tells that it has received them.
TEST_P(Leaving, ShortMessagesToARankThatHasLeftComplete) {
  run_ranks(ranks({0, 1}), [&](Engine& engine, int rank) {
    for (std::uint32_t i = 0; rank == 0 && i < 3 * slots(); ++i) {
      const auto error = failure_of_send(engine, kShortBytes);
      ASSERT_FALSE(error) << error->what();
    }
  });
  left_over_ = 0;
}

TEST_P(Leaving, ALongMessageToARankThatHasLeftIsAnError) {
  std::atomic<bool> has_left{false};
  for (const bool starts_before : {true, false}) {
    auto transports = make_local_transports({0, 1}, ranks({0, 1}).transport);
    std::thread leaving([&] {
      auto engine = make_engine(std::move(transports[1]), ranks({0, 1}).engine);
      std::vector<std::uint32_t> received(kShortBytes / 4);
      engine->start(one_way_plan(1, kShortBytes), {{}, bytes_of(received)}, {}, 7)->wait();
      if (starts_before) std::this_thread::sleep_for(std::chrono::milliseconds(50));
      engine.reset();
      has_left = true;
    });
    auto engine = make_engine(std::move(transports[0]), ranks({0, 1}).engine);
    EXPECT_FALSE(failure_of_send(*engine, kShortBytes));
    while (!starts_before && !has_left) std::this_thread::yield();
    const auto error = failure_of_send(*engine, kLongBytes);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::peer_failed) << error->what();
    EXPECT_EQ(error->rank(), 1);
    leaving.join();
  }
  left_over_ = 0;  // the long ones
}

TEST_P(Leaving, AMessageFromARankThatHasLeftIsReceivedOrAnError) {
  run_ranks(ranks({0, 1}), [&](Engine& engine, int rank) {
    // Rank 0 leaves at once; rank 1 is late.
    if (rank == 0) {
      EXPECT_FALSE(failure_of_send(engine, kShortBytes));
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    std::vector<std::uint32_t> received(kShortBytes / 4);
    engine.start(one_way_plan(1, kShortBytes), {{}, bytes_of(received)}, {}, 7)->wait();
    EXPECT_EQ(received, std::vector<std::uint32_t>(kShortBytes / 4, 1));
    const auto error = failure_of(*engine.start(one_way_plan(1, kShortBytes), {{}, bytes_of(received)}, {}, 7));
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::peer_failed) << error->what();
  });
}

// A rank whose operation fails leaves at once. The messages that its peers have for it end.
TEST_P(Leaving, RanksThatLeaveByAnErrorHoldUpNobody) {
  for (int victim = 0; victim < 3; ++victim) {
    run_ranks(ranks({0, 1, 2}), [&](Engine& engine, int rank) {
      if (rank == victim) return engine.fail_next("on purpose");
      std::vector<std::uint32_t> in(kLongBytes / 4);
      std::vector<std::uint32_t> out(kLongBytes / 4);
      for (int i = 0; i < 2; ++i) {
        const auto error = failure_of(*engine.start(allreduce_plan(rank, 3, kLongBytes),
                                                    {bytes_of(std::as_const(in)), bytes_of(out)}, kAddUint32, 1));
        ASSERT_TRUE(error);
        EXPECT_EQ(error->code(), ErrorCode::peer_failed) << error->what();
      }
    });
    left_over_ = 0;  // of the operation that the victim did not start
  }
}

// It leaves before its peers have taken what it told them. They hear it nevertheless, from memory that is not freed.
TEST_P(Leaving, WhatARankToldBeforeItLeftIsHeard) {
  const std::uint32_t failures = std::min(slots(), 40u);
  RanksOptions options = ranks({0, 1});
  options.transport.rendezvous_bytes = 0;
  options.engine.progress_threads = 0;  // such a thread would take it at once
  auto transports = make_local_transports(options.nodes, options.transport);
  std::atomic<bool> has_left{false};
  std::thread leaving([&] {
    auto engine = make_engine(std::move(transports[0]), options.engine);
    for (std::uint32_t i = 0; i < failures; ++i) engine->fail_next("on purpose");
    engine.reset();
    has_left = true;
  });
  auto engine = make_engine(std::move(transports[1]), options.engine);
  while (!has_left) std::this_thread::yield();
  std::vector<std::uint32_t> received(kShortBytes / 4);
  for (std::uint32_t i = 0; i < failures; ++i) {
    const auto error = failure_of(*engine->start(one_way_plan(1, kShortBytes), {{}, bytes_of(received)}, {}, 7));
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::peer_failed) << error->what();
    EXPECT_NE(std::string(error->what()).find("on purpose"), std::string::npos) << error->what();
  }
  leaving.join();
}

/// Counts the transports that are destroyed. One that messages may still use is kept.
class CountedTransport final : public WrappedTransport {
 public:
  CountedTransport(std::unique_ptr<Transport> under, std::atomic<int>& destroyed)
      : WrappedTransport(std::move(under)), destroyed_(destroyed) {}
  CountedTransport(const CountedTransport&) = delete;
  CountedTransport& operator=(const CountedTransport&) = delete;
  ~CountedTransport() override { ++destroyed_; }

 private:
  std::atomic<int>& destroyed_;
};

// Rank 1 fails operations that rank 0, which leaves, does not begin. Rank 2 begins and fails them, too.
TEST_P(Leaving, AnOperationThatIsNotBegunHoldsUpNobody) {
  constexpr int kMostTries = 20;  // a machine with other work may let a rank wait for longer than any leaves
  std::atomic<int> destroyed{0};
  for (int tries = 0; tries < kMostTries && destroyed != 3; ++tries) {
    destroyed = 0;
    const RanksOptions options = ranks({0, 0, 1});
    auto transports = make_local_transports(options.nodes, options.transport);
    std::latch made{3};
    std::latch have_failed{3};
    std::latch told{3};
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < transports.size(); ++rank)
      threads.emplace_back([&, rank] {
        const auto engine =
            make_engine(std::make_unique<CountedTransport>(std::move(transports[rank]), destroyed), options.engine);
        made.arrive_and_wait();
        for (int i = 0; rank == 1 && i < 3; ++i) engine->fail_next("on purpose");
        have_failed.arrive_and_wait();
        std::vector<std::uint32_t> received(kShortBytes / 4);
        for (int i = 0; rank == 2 && i < 3; ++i)
          EXPECT_TRUE(failure_of(*engine->start(one_way_plan(1, kShortBytes), {{}, bytes_of(received)}, {}, 7)));
        told.arrive_and_wait();
      });
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(destroyed, 3);
}

// As a rank that goes on to a blocking call of MPI: it answers no probe before the others have failed.
TEST_P(Remote, AMessageOfAnotherCallIsNoticedWithoutItsSender) {
  const TagSplit split(GetParam().max_tag, GetParam().slots);
  std::uint64_t other = 8;
  while (split.tag(0, other, 0) == split.tag(0, 7, 0)) ++other;
  // Rank 2's plan has no message of rank 0.
  for (const int to : {1, 2}) {
    std::latch failed(2);
    run_ranks(ranks({0, 1, 2}), [&](Engine& engine, int rank) {
      const std::vector<std::uint32_t> in(16);
      std::vector<std::uint32_t> out(16);
      PlanBuilder builder("test/differs", rank, 3);
      if (rank == 0) builder.send({0, 64, Buffer::input}, to, 0);
      if (rank == 1) builder.send({0, 64, Buffer::output}, 2, 0, {builder.recv({0, 64, Buffer::output}, 0, 0)});
      if (rank == 2) builder.recv({0, 64, Buffer::output}, 1, 0);
      const auto plan = std::make_shared<const Plan>(std::move(builder).finish(rank == 0 ? 64 : 0, rank == 0 ? 0 : 64));
      const Bindings bindings = rank == 0 ? Bindings{bytes_of(in), {}} : Bindings{{}, bytes_of(out)};
      const auto error = failure_of(*engine.start(plan, bindings, {}, rank == 0 ? other : 7));
      if (rank == 0) {
        failed.wait();
      } else {
        ASSERT_TRUE(error);
        EXPECT_EQ(error->code(), rank == to ? ErrorCode::mismatch : ErrorCode::peer_failed) << error->what();
        failed.count_down();
      }
      reuse_all_slots(engine, rank);
    });
  }
}

// The ranks call different operations whose tags are equal by chance.
TEST_P(Remote, OtherLengthsAreNoticedWhateverTheTags) {
  const TagSplit split(GetParam().max_tag, GetParam().slots);
  std::uint64_t same = 8;
  while (split.tag(0, same, 0) != split.tag(0, 7, 0)) ++same;
  run_ranks(ranks({0, 1}), [&](Engine& engine, int rank) {
    const std::uint64_t bytes = rank == 0 ? kShortBytes : kShortBytes + 4;
    const std::vector<std::uint32_t> in(bytes / 4);
    std::vector<std::uint32_t> out(bytes / 4);
    const auto plan = one_way_plan(rank, bytes);
    const Bindings bindings = rank == 0 ? Bindings{bytes_of(in), {}} : Bindings{{}, bytes_of(out)};
    const auto error = failure_of(*engine.start(plan, bindings, {}, rank == 0 ? 7 : same));
    if (rank == 1) {
      ASSERT_TRUE(error);
      EXPECT_EQ(error->code(), ErrorCode::mismatch) << error->what();
    }
    reuse_all_slots(engine, rank);
  });
}

}  // namespace
}  // namespace penstock::engine
