// All ranks of a job, with clocks that disagree, on communicators that overlap and are freed. Each rank runs alone
// until it waits, and a random one goes on. A call that waits for all ranks may settle what is due; no other call
// waits. On communicators whose ranks share memory other calls settle it, too.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "preload/contest.hpp"
#include "preload/looks.hpp"
#include "preload/shared_times.hpp"

namespace penstock::preload {
namespace {

constexpr int kJobRanks = 5;
constexpr int kLengths = 3;

struct Step {
  enum class Kind : std::uint8_t { waiting, rooted, lists, nonblocking, nonblocking_lists, free };
  Kind kind = Kind::waiting;
  int comm = 0;    ///< of all that the program makes
  int length = 0;  ///< of calls with lists: of other ranks' blocks, so no rank may go by it
  int root = 0;
};

/// What one rank knows of a communicator.
struct Known {
  std::map<int, Contest> blocking{};
  std::map<int, Trial> rehearsed{};
  std::vector<Contest*> due{};
  std::vector<Trial*> rehearsals_due{};
  std::optional<SharedTimes> shared{};
  std::size_t slots = 0;
  std::set<int> kept{};  ///< calls that may take the short way: differs between ranks
  Looks looks{};
  Trial lists_trial = Looks::new_trial();
  Times own_lists{};  ///< those that are kept: their bytes, and as times whether one is missing
  bool look_is_due = false;
  bool rehearses_lists = false;
  bool is_due() const { return !due.empty() || !rehearsals_due.empty() || look_is_due; }
};

/// Where ranks meet: a call that waits for all ranks, or a sum of times inside it.
struct Meeting {
  std::vector<int> ranks{};
  std::vector<Times> sums{};
};

/// One rank between two meetings.
struct Process {
  std::size_t next = 0;  ///< of the steps of its program
  enum class Phase : std::uint8_t { runs, settles, rehearses, looks, rehearses_lists, in_call } phase = Phase::runs;
  std::map<int, Known> known{};
  std::map<int, std::uint64_t> calls{};  ///< on each communicator
  std::uint64_t clock = 0;
};

class Job {
 public:
  Job(std::uint64_t seed, int steps) : random_(seed) {
    for (int comm = 0; comm < kComms; ++comm) {
      for (int rank = 0; rank < kJobRanks; ++rank)
        if (comm % 3 == 0 || rank == comm % kJobRanks || below(2) == 0) members_[comm].push_back(rank);
    }
    // A serial program of the whole job: every rank has the steps of its communicators in this order.
    std::set<int> freed;
    for (int i = 0; i < steps; ++i) {
      Step step{static_cast<Step::Kind>(below(5)), below(kComms), below(kLengths), below(kJobRanks)};
      if (below(400) == 0) step.kind = Step::Kind::free;
      if (freed.contains(step.comm)) continue;
      if (step.comm == kRootedAlone && step.kind == Step::Kind::waiting) step.kind = Step::Kind::rooted;
      if (step.kind == Step::Kind::free) freed.insert(step.comm);
      for (int repeated = 0; repeated < 1 + below(80); ++repeated) {
        for (const int rank : members_[step.comm]) programs_[rank].push_back(step);
        if (step.kind == Step::Kind::free) break;
      }
    }
  }

  /// Whether all ranks came to the end of their programs.
  bool run() {
    for (;;) {
      std::vector<int> able;
      for (int rank = 0; rank < kJobRanks; ++rank)
        if (processes_[rank].next < programs_[rank].size() && !waits(rank)) able.push_back(rank);
      if (able.empty()) break;
      const int rank = able[static_cast<std::size_t>(below(static_cast<int>(able.size())))];
      for (int moves = below(30); moves >= 0 && processes_[rank].next < programs_[rank].size() && !waits(rank); --moves)
        advance(rank);
    }
    for (int rank = 0; rank < kJobRanks; ++rank)
      if (processes_[rank].next < programs_[rank].size()) return false;
    return true;
  }

  std::string disagreement{};
  std::uint64_t settled = 0;
  std::uint64_t rehearsed = 0;
  std::uint64_t by_mpi = 0;
  std::uint64_t chosen_by_rooted_alone = 0;      ///< calls after a choice
  std::map<Server, std::uint64_t> with_lists{};  ///< calls, by whom their trial had chosen
  std::map<Server, std::uint64_t> non_blocking_lists{};

 private:
  static constexpr int kComms = 6;
  static constexpr int kRootedAlone = 3;  ///< a communicator of all ranks without calls that wait

  struct alignas(4096) Page {
    std::byte bytes[4096];
  };

  static bool shares_memory(int comm) { return comm % 2 == 1; }
  SharedTimes shared_times(int comm, int rank) {
    const std::vector<int>& members = members_[comm];
    const auto ranks = static_cast<int>(members.size());
    std::vector<Page>& pages = pages_[comm];
    if (pages.empty()) pages.resize(SharedTimes::kMostBytes / sizeof(Page) + 1);
    const auto at = std::find(members.begin(), members.end(), rank) - members.begin();
    return {pages.front().bytes, static_cast<int>(at), ranks};
  }

  int below(int bound) { return std::uniform_int_distribution<int>(0, bound - 1)(random_); }
  bool waits(int rank) const { return waiting_.contains(rank); }

  /// Which call the rank makes is equal on all ranks of the communicator, and so must be who serves it.
  void note(int rank, int comm, Server server) {
    const auto call = std::pair(comm, processes_[rank].calls[comm]++);
    const auto [at, is_first] = servers_.try_emplace(call, server);
    if (at->second != server) disagreement = "call " + std::to_string(call.second) + " of " + std::to_string(comm);
    if (server == Server::mpi) ++by_mpi;
  }

  /// Penstock is faster at even lengths, MPI at odd ones; disturbed calls and ranks take any time.
  std::uint64_t time_of(Server server, int length) {
    if (below(20) == 0) return static_cast<std::uint64_t>(below(100000));
    const bool is_slower = (server == Server::mpi) == (length % 2 == 0);
    return static_cast<std::uint64_t>((is_slower ? 150 : 100) + below(30));
  }

  void advance(int rank) {
    Process& process = processes_[rank];
    const Step step = programs_[rank][process.next];
    Known& known = process.known[step.comm];
    if (shares_memory(step.comm) && !known.shared) known.shared = shared_times(step.comm, rank);
    switch (step.kind) {
      case Step::Kind::free:
        process.known.erase(step.comm);
        ++process.next;
        return;
      case Step::Kind::nonblocking: {
        Trial& trial = known.rehearsed.try_emplace(step.length, 8, Trial::Cost::all_calls).first->second;
        if (!trial.rests()) {
          trial.hold();
          known.rehearsals_due.push_back(&trial);
        }
        note(rank, step.comm, trial.choice());
        ++process.next;
        return;
      }
      case Step::Kind::nonblocking_lists: {
        if (!known.looks.rests(known.lists_trial)) {
          known.own_lists.mpi_bytes += static_cast<double>(bytes_of(step, rank)) / Looks::kKept;
          known.own_lists.mpi += below(200) == 0 ? 1 : 0;
          known.look_is_due = known.looks.keep(known.lists_trial);
        }
        ++non_blocking_lists[known.lists_trial.choice()];
        note(rank, step.comm, known.lists_trial.choice());
        ++process.next;
        return;
      }
      case Step::Kind::rooted:
      case Step::Kind::lists:
        play(rank, step, known);
        ++process.next;
        return;
      case Step::Kind::waiting: break;
    }
    switch (process.phase) {
      case Process::Phase::runs:
      case Process::Phase::settles:
        if (!known.due.empty()) {
          process.phase = Process::Phase::settles;
          std::vector<Times> times;
          for (Contest* const each : known.due) times.push_back(each->trial().times());
          return meet(rank, step.comm, times);
        }
        [[fallthrough]];
      case Process::Phase::rehearses:
        if (!known.rehearsals_due.empty()) {
          process.phase = Process::Phase::rehearses;
          known.rehearsals_due.front()->set_block_calls(1);
          return meet(rank, step.comm,
                      {{.penstock = static_cast<double>(below(100)), .mpi = static_cast<double>(below(100))}});
        }
        [[fallthrough]];
      case Process::Phase::looks:
        if (known.look_is_due) {
          process.phase = Process::Phase::looks;
          return meet(rank, step.comm, {std::exchange(known.own_lists, {})});
        }
        [[fallthrough]];
      case Process::Phase::rehearses_lists:
        if (known.rehearses_lists) {
          process.phase = Process::Phase::rehearses_lists;
          known.lists_trial.set_block_calls(1);
          return meet(rank, step.comm,
                      {{.penstock = static_cast<double>(below(100)), .mpi = static_cast<double>(below(100))}});
        }
        process.phase = Process::Phase::in_call;
        return meet(rank, step.comm, {});
      case Process::Phase::in_call: break;
    }
    process.phase = Process::Phase::runs;
    play(rank, step, known);
    ++process.next;
  }

  /// What the rank moves in a call with lists of counts: nothing on some ranks, much on others.
  std::uint64_t bytes_of(const Step& step, int rank) {
    return (rank + step.root) % 2 == 0 ? 0 : std::uint64_t{1} << static_cast<unsigned>(below(8 * (step.length + 1)));
  }

  void play(int rank, const Step& step, Known& known) {
    const bool has_lists = step.kind == Step::Kind::lists;
    const int key = has_lists ? -1 : step.length + (step.kind == Step::Kind::rooted ? kLengths : 0);
    std::optional<std::uint64_t> length;
    if (!has_lists) length = std::uint64_t{8} << static_cast<unsigned>(9 * step.length);
    Contest& contest = known.blocking.try_emplace(key, length).first->second;
    if (!has_lists && !std::exchange(contest.has_expectation, true) && step.length > 0) {
      const auto shorter = known.blocking.find(key - 1);
      if (shorter != known.blocking.end() && shorter->second.trial().penstock_leads())
        contest.trial().expect_penstock();
    }
    const bool waits_for_all = step.kind == Step::Kind::waiting;
    if (known.kept.contains(key) && !(waits_for_all && known.is_due()) && below(3) > 0 && contest.trial().rests())
      return note(rank, step.comm, contest.trial().choice());
    if (contest.trial().asks() && known.shared->ask(*contest.slot, contest.trial())) std::erase(known.due, &contest);
    bool ends_round = false;
    std::uint64_t& clock = processes_[rank].clock;
    contest.play(
        ends_round,
        [&](Server server, bool is_measured) {
          note(rank, step.comm, server);
          if (!is_measured && below(2) == 0) known.kept.insert(key);
          clock += time_of(server, step.length);
          return 0;
        },
        [&] { return clock; }, [&] { return bytes_of(step, rank); });
    if (has_lists) ++with_lists[contest.trial().choice()];
    if (step.comm == kRootedAlone && contest.trial().has_chosen()) ++chosen_by_rooted_alone;
    if (!ends_round) return;
    known.due.push_back(&contest);
    if (!known.shared || waits_for_all) return;
    if (!contest.slot && known.slots < known.shared->slots()) contest.slot = known.slots++;
    if (contest.slot) known.shared->publish(*contest.slot, contest.trial());
  }

  void meet(int rank, int comm, const std::vector<Times>& times) {
    Meeting& meeting = meetings_[comm];
    if (meeting.ranks.empty()) meeting.sums.resize(times.size());
    if (meeting.sums.size() != times.size()) disagreement = "other sums on " + std::to_string(comm);
    for (std::size_t i = 0; i < std::min(times.size(), meeting.sums.size()); ++i) {
      meeting.sums[i] += times[i];
    }
    meeting.ranks.push_back(rank);
    waiting_.insert(rank);
    if (meeting.ranks.size() < members_[comm].size()) return;
    const Meeting ended = std::exchange(meeting, {});
    for (const int each : ended.ranks) {
      waiting_.erase(each);
      leave(processes_[each], processes_[each].known[comm], ended.sums);
    }
  }

  void leave(Process& process, Known& known, const std::vector<Times>& sums) {
    if (process.phase == Process::Phase::settles) {
      const std::vector<Contest*> due = std::exchange(known.due, {});
      if (due.size() != sums.size()) disagreement = "other contests due";
      for (std::size_t i = 0; i < std::min(due.size(), sums.size()); ++i) due[i]->trial().judge(sums[i]);
      process.phase = Process::Phase::rehearses;
      ++settled;
    } else if (process.phase == Process::Phase::rehearses) {
      Trial& trial = *known.rehearsals_due.front();
      trial.judge(sums.front());
      if (trial.has_chosen()) known.rehearsals_due.erase(known.rehearsals_due.begin());
      ++rehearsed;
    } else if (process.phase == Process::Phase::looks) {
      known.look_is_due = false;
      std::optional<std::uint64_t> bytes;
      if (sums.front().mpi == 0) bytes = static_cast<std::uint64_t>(sums.front().mpi_bytes);
      known.rehearses_lists = known.looks.look(known.lists_trial, bytes);
    } else if (process.phase == Process::Phase::rehearses_lists) {
      known.lists_trial.judge(sums.front());
      known.rehearses_lists = !known.lists_trial.has_chosen();
    }
  }

  std::mt19937_64 random_;
  std::map<int, std::vector<int>> members_{};
  std::map<int, std::vector<Step>> programs_{};
  std::map<int, Process> processes_{};
  std::map<int, std::vector<Page>> pages_{};
  std::map<int, Meeting> meetings_{};  ///< by communicator
  std::set<int> waiting_{};
  std::map<std::pair<int, std::uint64_t>, Server> servers_{};
};

/// Calls of one length, then a look. MPI is twice as slow with long ones, and Penstock with short ones.
TEST(Looks, EachLengthHasItsChoice) {
  Looks looks;
  Trial trial = Looks::new_trial();
  std::uint64_t rehearsals = 0;
  const auto call_until_look = [&](std::uint64_t bytes) {
    for (;;)
      if (!looks.rests(trial) && looks.keep(trial)) break;
    if (!looks.look(trial, bytes)) return;
    ++rehearsals;
    trial.set_block_calls(4);
    do {
      const bool is_long = bytes > 1000;
      trial.judge({.penstock = is_long ? 1.0 : 2.0, .mpi = is_long ? 2.0 : 1.0});
    } while (!trial.has_chosen());
  };
  for (int turn = 0; turn < 5; ++turn) {
    call_until_look(8);
    EXPECT_EQ(trial.choice(), Server::mpi);
    call_until_look(100000);
    EXPECT_EQ(trial.choice(), Server::penstock);
  }
  EXPECT_EQ(rehearsals, 2);
  looks.look(trial, std::nullopt);
  EXPECT_EQ(trial.choice(), Server::penstock);  // as before, if a rank does not know the lengths
}

TEST(Protocol, RanksAgreeAndNoneWaitsForEver) {
  std::uint64_t settled = 0;
  std::uint64_t rehearsed = 0;
  std::uint64_t by_mpi = 0;
  std::uint64_t chosen_by_rooted_alone = 0;
  std::map<Server, std::uint64_t> with_lists;
  std::map<Server, std::uint64_t> non_blocking_lists;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Job job(seed, 2000);
    EXPECT_TRUE(job.run()) << "a deadlock, seed " << seed;
    EXPECT_EQ(job.disagreement, "") << seed;
    settled += job.settled;
    rehearsed += job.rehearsed;
    by_mpi += job.by_mpi;
    chosen_by_rooted_alone += job.chosen_by_rooted_alone;
    for (const auto& [server, calls] : job.with_lists) with_lists[server] += calls;
    for (const auto& [server, calls] : job.non_blocking_lists) non_blocking_lists[server] += calls;
  }
  EXPECT_GT(settled, 1000);
  EXPECT_GT(rehearsed, 1000);
  EXPECT_GT(by_mpi, 10000);
  EXPECT_GT(chosen_by_rooted_alone, 10000);
  EXPECT_GT(with_lists[Server::mpi], 1000);
  EXPECT_GT(with_lists[Server::penstock], 1000);
  EXPECT_GT(non_blocking_lists[Server::mpi], 1000);
  EXPECT_GT(non_blocking_lists[Server::penstock], 1000);
}

}  // namespace
}  // namespace penstock::preload
