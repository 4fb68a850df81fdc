// Ranks as processes, which join a group by the public functions, and of which some die. GoogleTest runs a "DeathTest"
// before the others: these fork, which a process that has made a communicator must not.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "penstock/options.hpp"
#include "ranks.hpp"

namespace penstock::ucx {
namespace {

using conformance::ForkedRank;
using conformance::Outcome;

constexpr int kRanks = 3;

void expect_all_ok(const std::vector<Outcome>& outcomes, int victim = -1) {
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    if (static_cast<int>(rank) == victim)
      EXPECT_TRUE(outcomes[rank].killed) << outcomes[rank].text;
    else
      EXPECT_EQ(outcomes[rank].text, "ok") << "rank " << rank;
  }
}

std::string sums(Comm& comm, int times) {
  for (int i = 0; i < times; ++i) {
    std::vector<std::int64_t> values(i % 2 == 0 ? 1 : 40'000, comm.rank() + i);
    Collective collective{.kind = CollectiveKind::allreduce, .count = values.size(), .dtype = DType::int64};
    collective.in_place = true;
    comm.run(collective, {}, std::as_writable_bytes(std::span(values)));
    const std::int64_t expected = comm.size() * (comm.size() - 1) / 2 + std::int64_t{comm.size()} * i;
    if (values != std::vector<std::int64_t>(values.size(), expected)) return "a wrong sum";
  }
  return "ok";
}

class ProcessesDeathTest : public testing::TestWithParam<bool> {
 protected:
  std::vector<Outcome> run(const std::function<std::string(ForkedRank&, const Group&)>& body) const {
    return conformance::run_forked(std::vector<std::int32_t>(kRanks), [&](ForkedRank& self) -> std::string {
      options().shared_memory = GetParam();
      options().stall_timeout_ms = 0;
#ifdef __SANITIZE_ADDRESS__
      // To learn whether it may read a peer's memory, UCX 1.20 reads what lies there where its own request lies here,
      // into that request. In forked ranks it succeeds, and AddressSanitizer follows the request afterwards.
      ::setenv("UCX_TLS", "^cma", 1);
#endif
      try {
        return body(self, meeting_.meet(self, kRanks));
      } catch (const Error& error) {
        return std::string(name(error.code())) + ": " + error.what();
      }
    });
  }

  /// Rank 0 gives up, which rank 2 hears from it: it would wait for minutes. Rank 2 does something before it joins.
  void miss_rank_1(const std::function<void(const Meeting&)>& before_rank_2_joins) const {
    expect_all_ok(run([&](ForkedRank& self, const Group& given) -> std::string {
      std::string result = "ok";
      if (self.rank != 1) {
        Group group = given;
        group.timeout = self.rank == 0 ? std::chrono::milliseconds(300) : std::chrono::minutes(10);
        if (self.rank == 2) before_rank_2_joins(meeting_);
        try {
          join(group, {.progress_cores = 0});
          result = "joined";
        } catch (const Error& error) {
          const ErrorCode expected = self.rank == 0 ? ErrorCode::timed_out : ErrorCode::peer_failed;
          if (error.code() != expected) result = error.what();
        }
        meeting_.say_done(self.rank);
        meeting_.flush_until_done(2 - self.rank);
      }
      self.barrier(kRanks);
      return result;
    }));
  }

  Meeting meeting_;
};

TEST_P(ProcessesDeathTest, JoinTwice) {
  PENSTOCK_NEEDS_UCX();
  expect_all_ok(run([](ForkedRank&, const Group& given) {
    Group group = given;
    std::string result;
    for (int i = 0; i < 2; ++i) {
      group.nonce = static_cast<std::uint64_t>(i);
      Joined joined = join(group, {.progress_cores = i});
      result = sums(joined.comm, 40);
      if (result != "ok") break;
    }
    flush(std::chrono::seconds(5));
    return result;
  }));
}

TEST_P(ProcessesDeathTest, ADeathIsToldToAllByName) {
  PENSTOCK_NEEDS_UCX();
  expect_all_ok(run([](ForkedRank& self, const Group& group) -> std::string {
                  Joined joined = join(group, {.progress_cores = 0});
                  if (const std::string result = sums(joined.comm, 5); result != "ok") return result;
                  int never = 0;
                  Message from_victim = joined.messages->receive(std::as_writable_bytes(std::span(&never, 1)), 1, 0);
                  if (self.rank == 1) ::kill(::getpid(), SIGKILL);
                  for (int i = 0; i < 2; ++i) {
                    try {
                      sums(joined.comm, 1000);
                      return "no error";
                    } catch (const Error& error) {
                      if (error.code() != ErrorCode::peer_failed || error.rank() != 1) return error.what();
                    }
                  }
                  try {
                    while (!from_victim.test()) ::usleep(1000);
                    return "a message from a dead rank";
                  } catch (const Error& error) {
                    if (error.code() != ErrorCode::peer_failed || error.rank() != 1) return error.what();
                  }
                  return "ok";
                }),
                1);
}

// The others may have connected to the rank that dies, or be connecting to it.
TEST_P(ProcessesDeathTest, ADeathBeforeJoiningFailsItOnAll) {
  PENSTOCK_NEEDS_UCX();
  for (unsigned delay_us = 0; delay_us <= 40'000; delay_us += 8'000)
    expect_all_ok(run([&](ForkedRank& self, const Group& group) -> std::string {
                    if (self.rank == 1) {
                      ::usleep(delay_us);
                      ::kill(::getpid(), SIGKILL);
                    }
                    try {
                      join(group, {.progress_cores = 0});
                      return "joined";
                    } catch (const Error& error) {
                      return error.code() == ErrorCode::peer_failed ? "ok" : error.what();
                    }
                  }),
                  1);
}

TEST_P(ProcessesDeathTest, ARankThatDoesNotJoinIsMissedOnAll) {
  PENSTOCK_NEEDS_UCX();
  miss_rank_1([](const Meeting&) {});
}

TEST_P(ProcessesDeathTest, ARankThatComesLateHearsThatItsGroupHasFailed) {
  PENSTOCK_NEEDS_UCX();
  miss_rank_1([](const Meeting& meeting) { meeting.flush_until_done(0); });
}

INSTANTIATE_TEST_SUITE_P(SharedMemory, ProcessesDeathTest, testing::Bool(),
                         [](const auto& each) { return each.param ? "on" : "off"; });

}  // namespace
}  // namespace penstock::ucx
