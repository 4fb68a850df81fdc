// The ranks that wait for a late rank name it in one stall warning. The operation still succeeds.
#include <gtest/gtest.h>

#include <barrier>
#include <chrono>
#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "comm/state.hpp"
#include "engine/flags.hpp"
#include "engine/task_table.hpp"
#include "eventually.hpp"
#include "local_transport.hpp"
#include "penstock/comm.hpp"
#include "penstock/options.hpp"

namespace penstock::comm {
namespace {

constexpr int kLate = 2;

class StallTimeout {
 public:
  explicit StallTimeout(std::int64_t after_ms) { options().stall_timeout_ms = after_ms; }
  ~StallTimeout() { options().stall_timeout_ms = 30000; }
};

/// What has been printed to stderr since the last call. A stall warning that is in a report has been printed.
std::string printed() {
  std::string text = testing::internal::GetCapturedStderr();
  testing::internal::CaptureStderr();
  return text;
}

bool has_told(const Comm& comm) { return comm.report().find("stall warning: in 1 operations") != std::string::npos; }

/// The reports of all ranks after an allreduce that one rank starts late: after `wait` returns. `wait` gets the
/// communicators of the other ranks, which have started the operation by then.
std::vector<std::string> reports(const std::vector<std::int32_t>& nodes, const Collective& collective,
                                 const std::function<void(const std::vector<const Comm*>&)>& wait) {
  auto transports = engine::make_local_transports(nodes);
  std::vector<std::string> said(nodes.size());
  std::vector<const Comm*> comms(nodes.size());
  std::barrier started(std::ssize(nodes));
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < nodes.size(); ++rank)
    threads.emplace_back([&, rank] {
      Comm comm = make_comm([&] { return std::move(transports[rank]); }, {.progress_cores = 0});
      comms[rank] = &comm;
      const std::vector<std::int32_t> ones(collective.count, 1);
      std::vector<std::int32_t> sums(collective.count);
      const auto start = [&] {
        return comm.start(collective, std::as_bytes(std::span(ones)), std::as_writable_bytes(std::span(sums)));
      };
      if (rank == kLate) {
        started.arrive_and_wait();
        std::erase(comms, &comm);
        wait(comms);
        start().wait();
      } else {
        Request request = start();
        EXPECT_FALSE(request.test()) << "and what it can send is on its way";
        started.arrive_and_wait();
        request.wait();
      }
      EXPECT_EQ(sums, std::vector<std::int32_t>(collective.count, comm.size()));
      said[rank] = comm.report();
    });
  for (std::thread& thread : threads) thread.join();
  return said;
}

std::size_t count_of(const std::string& text, const std::string& what) {
  std::size_t count = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

class SilentRank : public testing::TestWithParam<std::vector<std::int32_t>> {};

TEST_P(SilentRank, IsNamedOnce) {
  const StallTimeout stall_timeout(1);
  Collective collective{.kind = CollectiveKind::allreduce, .count = 1000, .dtype = DType::int32};
  collective.algorithm = "ring";  // rank 0 waits for rank 3, which waits for rank 2
  std::string text;
  testing::internal::CaptureStderr();
  const std::vector<std::string> said = reports(GetParam(), collective, [&](const std::vector<const Comm*>& others) {
    for (const Comm* other : others) EXPECT_TRUE(test::eventually([other] { return has_told(*other); }));
    text = printed();  // once all have come, any of them may be late
  });
  testing::internal::GetCapturedStderr();
  EXPECT_EQ(count_of(text, "penstock: "), 3u) << text;
  EXPECT_EQ(count_of(text, "rank 3 has heard nothing for "), 1u) << text;
  EXPECT_NE(text.find("waits for rank 2"), std::string::npos) << text;
  EXPECT_NE(text.find("allreduce/ring"), std::string::npos) << text;
  EXPECT_EQ(count_of(text, "rank 2, from which nothing has come"), 1u) << text;
  EXPECT_EQ(count_of(text, "from which more has to come"), 2u) << "the others wait for ranks that have come: " << text;
  EXPECT_NE(said[3].find("stall warning: in 1 operations"), std::string::npos) << said[3];
}

TEST_P(SilentRank, IsNotNamedBeforeItsTimeNorWhereNobodyWantsToKnow) {
  Collective collective{.kind = CollectiveKind::allreduce, .count = 1000, .dtype = DType::int32};
  testing::internal::CaptureStderr();
  static constexpr std::chrono::milliseconds kSeveralChecks{700};
  for (const std::int64_t after_ms : {std::int64_t{0}, std::int64_t{24 * 3600 * 1000}}) {
    const StallTimeout stall_timeout(after_ms);
    reports(GetParam(), collective, [](const auto&) { std::this_thread::sleep_for(kSeveralChecks); });
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

/// What rank 0 waits for while one rank calls nothing.
struct Wait {
  const char* name;
  const char* algorithm;  ///< "kind/row"
  std::uint64_t count;
  int operations;
  std::size_t told_operations;  ///< those in which rank 0 waits for the silent rank; 0: some
  std::vector<std::int32_t> nodes = {0, 0, 0, 0};
};

class EveryWait : public testing::TestWithParam<Wait> {};

// Each mechanism says for whom it waits: otherwise nobody is named, and no timeout ends.
TEST_P(EveryWait, NamesTheSilentRank) {
  const StallTimeout stall_timeout(1);
  const Wait& each = GetParam();
  const std::string_view algorithm = each.algorithm;
  const std::size_t slash = algorithm.find('/');
  const Collective collective{.kind = collective_kind_from_name(algorithm.substr(0, slash)),
                              .count = each.count,
                              .dtype = DType::int32,
                              .algorithm = std::string(algorithm.substr(slash + 1))};
  const std::string told =
      "stall warning: in " + (each.told_operations == 0 ? "" : std::to_string(each.told_operations) + " operations");
  auto transports = engine::make_local_transports(each.nodes);
  const auto operations = static_cast<std::size_t>(each.operations);
  const Comm* first = nullptr;
  std::barrier made(std::ssize(each.nodes));
  std::string text;
  testing::internal::CaptureStderr();
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < each.nodes.size(); ++rank)
    threads.emplace_back([&, rank] {
      Comm comm = make_comm([&] { return std::move(transports[rank]); }, {.progress_cores = 0});
      if (rank == 0) first = &comm;
      made.arrive_and_wait();
      if (rank == kLate) {
        EXPECT_TRUE(test::eventually([&] { return first->report().find(told) != std::string::npos; }));
        text = printed();  // once all have come, any of them may be late
      }
      const std::uint64_t all = rank == 0 ? each.count * each.nodes.size() : 0;
      const bool is_scattered = collective.kind == CollectiveKind::scatter;
      const bool is_sent = collective.kind != CollectiveKind::bcast;
      const std::vector<std::int32_t> in(is_scattered ? all : is_sent ? each.count : 0);
      std::vector<std::vector<std::int32_t>> out(
          operations, std::vector<std::int32_t>(collective.kind == CollectiveKind::gather ? all : each.count));
      std::vector<Request> requests;
      for (std::vector<std::int32_t>& own : out)
        requests.push_back(
            comm.start(collective, std::as_bytes(std::span(in)), std::as_writable_bytes(std::span(own))));
      for (Request& request : requests) request.wait();
      made.arrive_and_wait();
    });
  for (std::thread& thread : threads) thread.join();
  testing::internal::GetCapturedStderr();
  std::istringstream lines(text);
  std::multiset<std::string> told_to_wait_for;
  for (std::string line; std::getline(lines, line);) {
    if (line.find("penstock: rank 0 ") == 0) {
      const std::string whom = line.substr(line.find("waits for"));
      // Others may be named beside it: in an operation that is deferred, no rank has completed what is before it, and
      // some may not have begun.
      EXPECT_NE(whom.substr(0, whom.find(", from which")).find('2'), std::string::npos) << line;
      told_to_wait_for.insert(whom);
    }
  }
  EXPECT_FALSE(told_to_wait_for.empty());
  if (each.told_operations == operations) {  // the silent rank began when all had been told, so none had ended
    EXPECT_EQ(told_to_wait_for.size(), std::set(told_to_wait_for.begin(), told_to_wait_for.end()).size())
        << "nothing new was told: " << text;
  }
}

INSTANTIATE_TEST_SUITE_P(
    , EveryWait,
    testing::Values(Wait{"flags", "allreduce/shared", 100, 1, 1},
                    Wait{"deferred_flags", "bcast/shared", 100, engine::Flags::kEntries + 1, 1},
                    Wait{"tasks", "allreduce/divided", 50'000, 1, 1},
                    Wait{"deferred_tasks", "allreduce/divided", 50'000, engine::TaskTable::kSlots + 2,
                         engine::TaskTable::kSlots + 2},
                    Wait{"deferred_buffers", "bcast/staged", 64 << 10, 100, 0},
                    Wait{"messages", "gather/linear", 100, 1, 1}, Wait{"many_messages", "gather/linear", 100, 200, 200},
                    Wait{"long_messages", "scatter/linear", 50'000, 1, 1},
                    Wait{"messages_between_nodes", "gather/linear", 100, 1, 1, {0, 1, 2, 3}},
                    Wait{"long_messages_between_nodes", "scatter/linear", 500'000, 1, 1, {0, 1, 2, 3}}),
    [](const auto& each) { return std::string(each.param.name); });

INSTANTIATE_TEST_SUITE_P(Nodes, SilentRank,
                         testing::Values(std::vector<std::int32_t>{0, 0, 0, 0}, std::vector<std::int32_t>{0, 1, 2, 3}));

}  // namespace
}  // namespace penstock::comm
