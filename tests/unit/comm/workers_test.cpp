// The agreement on communication cores. The ranks are threads of this process.
#include "comm/workers.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "comm/state.hpp"
#include "host/cpu_placement.hpp"
#include "local_transport.hpp"

namespace penstock::comm {
namespace {

/// The agreement of ranks with these infos.
std::vector<Workers> agreed(const std::vector<std::int32_t>& nodes, const std::vector<WorkerInfo>& infos) {
  const auto transports = engine::make_local_transports(nodes);
  std::vector<WorkerAgreement> agreements;
  std::vector<WorkerDecision> decisions;
  for (const auto& transport : transports)
    decisions.push_back(agreements.emplace_back(*transport).decide(infos).value_or(WorkerDecision{}));
  std::vector<Workers> answers;
  for (WorkerAgreement& agreement : agreements)
    answers.push_back(agreement.reach(infos, [&](std::size_t rank) { return decisions[rank]; }));
  return answers;
}

/// Ranks in separate processes. Only the CPUs of the machine are known.
std::vector<WorkerInfo> unbound(std::size_t ranks, int wanted) {
  std::vector<WorkerInfo> infos(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    infos[rank].process = rank + 1;
    infos[rank].started = static_cast<std::int32_t>(rank + 1);
    infos[rank].wanted = wanted;
    infos[rank].any_thread = 1;
    infos[rank].bound = infos[rank].inherited = host::topology().all();
  }
  return infos;
}

std::size_t total(const std::vector<Workers>& answers) {
  std::size_t total = 0;
  for (const Workers& answer : answers) total += answer.cpus.size();
  return total;
}

TEST(Agreement, SpreadsTheWorkersOfANodeOverItsProcesses) {
  const auto answers = agreed({0, 0, 0}, unbound(3, 2));
  EXPECT_EQ(total(answers), 2u) << answers[0].reason;
  for (const Workers& answer : answers) {
    EXPECT_EQ(answer.per_node, 2);
    EXPECT_LE(answer.cpus.size(), 1u) << answer.reason;
    EXPECT_NE(answer.reason.find(std::to_string(answer.cpus.size()) + " of them in this process"), std::string::npos)
        << answer.reason;
  }
}

// Between nodes, most operations move at the leader. Launchers do not always start the ranks of a node in their order.
TEST(Agreement, AnOnlyWorkerIsTheLeadersHoweverRanksWereStarted) {
  std::vector<WorkerInfo> infos = unbound(4, 1);
  for (std::size_t rank = 0; rank < infos.size(); ++rank)
    infos[rank].started = static_cast<std::int32_t>(infos.size() - rank);
  const auto answers = agreed({0, 0, 1, 1}, infos);
  for (std::size_t rank = 0; rank < answers.size(); ++rank)
    EXPECT_EQ(answers[rank].cpus.size(), rank % 2 == 0 ? 1u : 0u) << "rank " << rank << ": " << answers[rank].reason;
}

TEST(Agreement, TheNodeWithTheFewestCounts) {
  std::vector<WorkerInfo> infos = unbound(3, 1);
  infos[2].wanted = 0;
  const auto answers = agreed({0, 0, 1}, infos);
  for (const Workers& answer : answers) EXPECT_EQ(answer.per_node, 0);
  EXPECT_EQ(answers[0].cpus.size(), 1u) << "its own node wants one";
  EXPECT_EQ(answers[2].reason, "0, as asked for");
}

TEST(Agreement, OneRankThatWantsNoneHasNone) {
  std::vector<WorkerInfo> infos = unbound(2, 2);
  infos[1].wanted = 0;
  for (const Workers& answer : agreed({0, 0}, infos)) EXPECT_TRUE(answer.cpus.empty()) << answer.reason;
}

TEST(Agreement, ThreadsOfOneProcessShareItsWorkers) {
  std::vector<WorkerInfo> infos = unbound(2, 1);
  infos[1].process = infos[0].process;
  const auto answers = agreed({0, 0}, infos);
  EXPECT_EQ(answers[0].cpus.size(), 1u);
  EXPECT_EQ(answers[1].cpus.size(), 1u);
  EXPECT_EQ(answers[0].per_node, 1);
}

TEST(Agreement, WithoutThreadsOfMpi) {
  std::vector<WorkerInfo> infos = unbound(3, 1);
  for (WorkerInfo& info : infos) info.any_thread = 0;
  const auto answers = agreed({0, 0, 1}, infos);
  EXPECT_EQ(answers[0].cpus.size(), 1u);
  EXPECT_NE(answers[0].reason.find("inside a node only"), std::string::npos) << answers[0].reason;
  EXPECT_TRUE(answers[2].cpus.empty()) << "it could do nothing";
  EXPECT_NE(answers[2].reason.find("MPI_Init_thread"), std::string::npos) << answers[2].reason;
  EXPECT_EQ(answers[0].per_node, 0);
}

TEST(Agreement, UnreadableSetsAreNoFailure) {
  std::vector<WorkerInfo> infos = unbound(2, 1);
  for (WorkerInfo& info : infos) info.bound = info.inherited = {};
  const auto answers = agreed({0, 0}, infos);
  EXPECT_EQ(total(answers), 1u);
  EXPECT_NE(answers[0].reason.find("could not be read"), std::string::npos) << answers[0].reason;
}

/// Runs `body` on every rank of a communicator on one node.
void on_ranks(int ranks, const CommOptions& options, const std::function<void(Comm&)>& body) {
  auto transports = engine::make_local_transports(std::vector<std::int32_t>(static_cast<std::size_t>(ranks), 0));
  std::vector<std::thread> threads;
  for (auto& transport : transports)
    threads.emplace_back([&options, &body, &transport] {
      try {
        Comm comm = make_comm([&transport] { return std::move(transport); }, options);
        body(comm);
      } catch (const std::exception& error) {
        ADD_FAILURE() << error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(Communicators, KnowTheirCommunicationCores) {
  const int cpus = static_cast<int>(host::topology().cpus.size());
  for (const int wanted : {0, 1, 2, 100000}) {
    const int expected = std::min({wanted, std::max(cpus, 2), host::kMostWorkers});
    on_ranks(2, {.progress_cores = wanted}, [&](Comm& comm) {
      EXPECT_EQ(comm.team().progress_cores, expected);
      const std::string report = comm.report();
      EXPECT_NE(report.find("progress threads: " + std::to_string(expected)), std::string::npos) << report;
      EXPECT_EQ(report.find("more than the") != std::string::npos, wanted == 100000) << report;
      std::int64_t one = 1;
      std::int64_t sum = 0;
      comm.run({.kind = CollectiveKind::allreduce, .count = 1, .dtype = DType::int64},
               std::as_bytes(std::span(&one, 1)), std::as_writable_bytes(std::span(&sum, 1)));
      EXPECT_EQ(sum, 2);
    });
  }
}

}  // namespace
}  // namespace penstock::comm
