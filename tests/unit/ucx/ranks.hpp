// Ranks of communicators over UCX: threads of this process, each with a worker of its own, or forked processes.
#pragma once

#include <glob.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/link.hpp"
#include "conformance/forked_ranks.hpp"
#include "penstock/error.hpp"
#include "ucx/transport.hpp"

namespace penstock::ucx {

/// The libraries that ./dev setup has installed with the MPIs, in build/mpi; this program is in build/<preset>/tests.
inline std::vector<std::string> candidates() {
  const auto build = std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path().parent_path();
  ::glob_t found{};
  ::glob((build / "mpi/*/lib/*/libucp.so.0").c_str(), 0, nullptr, &found);
  std::vector<std::string> paths(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  return paths;
}

/// Why UCX cannot be used here; empty if it can. In a child, so that this process stays without UCX's threads.
inline std::string why_not() {
  const auto outcomes = conformance::run_forked({0}, [](conformance::ForkedRank&) -> std::string {
    try {
      open(candidates());
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  });
  return outcomes[0].text;
}

#define PENSTOCK_NEEDS_UCX()                     \
  do {                                           \
    const std::string reason = why_not();        \
    if (!reason.empty()) GTEST_SKIP() << reason; \
  } while (false)

/// Runs `body` on threads that find each other by the addresses of their first peers alone.
inline void run_threads(const std::vector<std::int32_t>& nodes, const std::function<void(Joined&, Worker&)>& body) {
  const int size = static_cast<int>(nodes.size());
  std::vector<std::unique_ptr<Worker>> workers;
  for (int rank = 0; rank < size; ++rank) workers.push_back(std::make_unique<Worker>(library(candidates())));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      Worker& worker = *workers[static_cast<std::size_t>(rank)];
      try {
        Group group{.rank = rank, .size = size, .nonce = 77};
        for (const int peer : first_peers(rank, size))
          group.addresses[peer] = workers[static_cast<std::size_t>(peer)]->address();
        const Members members =
            find_members(worker, group, static_cast<std::uint64_t>(nodes[static_cast<std::size_t>(rank)]));
        EXPECT_EQ(members.node_of_rank, nodes);
        Joined joined{comm::make_comm([&] { return make_link(worker, group, members); }, {.progress_cores = 0}),
                      make_messages(worker, group, members)};
        body(joined, worker);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
}

inline void run_threads(const std::vector<std::int32_t>& nodes, const std::function<void(Joined&)>& body) {
  run_threads(nodes, [&](Joined& joined, Worker&) { body(joined); });
}

/// What a rank in a process of its own needs to join a group.
class Meeting {
 public:
  Meeting() {
    std::string name = (std::filesystem::temp_directory_path() / "penstock-ucx-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw Error(ErrorCode::io, "a test's folder cannot be made");
    folder_ = name;
  }
  ~Meeting() { std::filesystem::remove_all(folder_); }
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  /// Blocking; all ranks.
  Group meet(conformance::ForkedRank& self, int size) const {
    std::ofstream(file(self.rank), std::ios::binary) << open(candidates());
    self.barrier(size);
    Group group{.rank = self.rank, .size = size, .nonce = 4711};
    for (const int peer : first_peers(self.rank, size)) {
      std::ifstream from(file(peer), std::ios::binary);
      group.addresses[peer] = {std::istreambuf_iterator<char>(from), {}};
    }
    return group;
  }

  void say_done(int rank) const { std::ofstream(done(rank)).put('.'); }
  /// UCX sends the last messages of the caller's meanwhile.
  void flush_until_done(int rank) const {
    for (; !std::filesystem::exists(done(rank)); ::usleep(1000)) flush(std::chrono::milliseconds(10));
  }

 private:
  std::filesystem::path file(int rank) const { return folder_ / std::to_string(rank); }
  std::filesystem::path done(int rank) const { return folder_ / ("done-" + std::to_string(rank)); }
  std::filesystem::path folder_;
};

}  // namespace penstock::ucx
