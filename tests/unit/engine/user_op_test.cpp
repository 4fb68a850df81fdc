// User-defined operations: an exception fails one operation and nothing else, and the engine releases them after use.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "eventually.hpp"
#include "make_engine.hpp"
#include "penstock/collective.hpp"
#include "plans.hpp"
#include "ranks.hpp"
#include "wrapped_transport.hpp"

namespace penstock::engine {
namespace {

struct UserOpSetting {
  const char* name;
  int progress_threads;
  bool by_tasks;
};

class UserOps : public testing::TestWithParam<UserOpSetting> {
 protected:
  static constexpr int kRanks = 3;
  static constexpr std::uint64_t kElems = 3000;

  RanksOptions ranks() const {
    RanksOptions options = ranks_of(one_node(kRanks));
    options.engine.progress_threads = GetParam().progress_threads;
    return options;
  }
  std::shared_ptr<const Plan> plan(const Engine& engine) const {
    if (!GetParam().by_tasks) return allreduce_plan(engine.team().rank, kRanks, kElems);
    Collective collective{.kind = CollectiveKind::allreduce, .count = kElems, .element_bytes = 1};
    collective.algorithm = "divided";
    return std::make_shared<const Plan>(plan_collective(engine.team(), collective));
  }
  std::optional<Error> error_of(Engine& engine, std::shared_ptr<const UserOp> op) const {
    std::vector<std::uint8_t> in(kElems, 1);
    std::vector<std::uint8_t> out(kElems);
    try {
      engine.start(plan(engine), {bytes_of(std::as_const(in)), bytes_of(out)}, {.user = std::move(op)}, 0)->wait();
    } catch (const Error& error) {
      return error;
    }
    EXPECT_EQ(std::ranges::count(out, kRanks), std::ssize(out));
    return std::nullopt;
  }
};

INSTANTIATE_TEST_SUITE_P(, UserOps,
                         testing::Values(UserOpSetting{"steps", 0, false}, UserOpSetting{"steps_thread", 1, false},
                                         UserOpSetting{"tasks", 0, true}, UserOpSetting{"tasks_thread", 1, true}),
                         [](const testing::TestParamInfo<UserOpSetting>& setting) { return setting.param.name; });

std::shared_ptr<const UserOp> sum() {
  return std::make_shared<const UserOp>(UserOp{.combine = [](ConstBytes from, Bytes to) {
    for (std::size_t i = 0; i < to.size(); ++i)
      to[i] = static_cast<std::byte>(static_cast<int>(from[i]) + static_cast<int>(to[i]));
  }});
}

// The user operation reports the death of a live rank.
TEST_P(UserOps, ThatClaimADeathAreNotBelieved) {
  const auto liar = std::make_shared<const UserOp>(
      UserOp{.combine = [](ConstBytes, Bytes) { throw Error(ErrorCode::peer_failed, "a farewell", 1); }});
  run_ranks(ranks(), [&](Engine& engine, int rank) {
    const auto error = error_of(engine, liar);
    ASSERT_TRUE(error) << "rank " << rank;
    EXPECT_EQ(error->code(), ErrorCode::peer_failed);
    EXPECT_NE(error->message().find("a farewell"), std::string::npos) << error->what();
    const auto next = error_of(engine, sum());
    EXPECT_FALSE(next) << "rank " << rank << ": " << next->what();
  });
}

TEST_P(UserOps, MayThrowWhatIsNoException) {
  const auto thrower = std::make_shared<const UserOp>(UserOp{.combine = [](ConstBytes, Bytes) { throw 7; }});
  run_ranks(ranks(), [&](Engine& engine, int rank) {
    const auto error = error_of(engine, thrower);
    ASSERT_TRUE(error) << "rank " << rank;
    EXPECT_TRUE(error->code() == ErrorCode::internal || error->code() == ErrorCode::peer_failed) << error->what();
    EXPECT_FALSE(error_of(engine, sum()));
  });
}

TEST_P(UserOps, AreDroppedWithTheirOperations) {
  run_ranks(ranks(), [&](Engine& engine, int rank) {
    std::weak_ptr<const UserOp> known;
    {
      const auto op = sum();
      known = op;
      EXPECT_FALSE(error_of(engine, op));
    }
    EXPECT_TRUE(test::eventually([&] { return known.expired(); })) << "rank " << rank;
  });
}

/// The first poke() of it, which an engine calls with its lock, ends when the test says so.
class HeldInPoke final : public WrappedTransport {
 public:
  using WrappedTransport::WrappedTransport;
  void poke() noexcept override {
    if (has_entered.test_and_set()) return;
    has_entered.notify_all();
    may_leave.wait(false);
  }
  std::atomic_flag has_entered;
  std::atomic_flag may_leave;
};

// The thread that has the lock then does nothing more for this engine.
TEST(UserOpsOfOneRank, AreDroppedThoughAnotherThreadHasTheLock) {
  const auto transport =
      std::make_shared<HeldInPoke>(std::move(make_local_transports(one_node(1), LocalTransportOptions{}).front()));
  const auto engine = make_engine(transport, EngineOptions{});
  std::vector<std::uint8_t> in(8, 1);
  std::vector<std::uint8_t> out(8);
  auto op = sum();
  const std::weak_ptr<const UserOp> known = op;
  auto run =
      engine->start(allreduce_plan(0, 1, 8), {bytes_of(std::as_const(in)), bytes_of(out)}, {.user = std::move(op)}, 0);
  run->wait();
  std::thread other([&] { engine->progress(); });
  transport->has_entered.wait(false);
  run.reset();
  transport->may_leave.test_and_set();
  transport->may_leave.notify_all();
  other.join();
  EXPECT_TRUE(known.expired());
}

}  // namespace
}  // namespace penstock::engine
