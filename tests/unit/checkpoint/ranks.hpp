// Threads of one process as ranks that save and restore together.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/blob_tier.hpp"
#include "checkpoint/folder_tier.hpp"
#include "checkpoint/restore.hpp"
#include "checkpoint/saver.hpp"
#include "eventually.hpp"

namespace penstock::checkpoint::test {

/// Two barriers and a common buffer. A missing rank is an error after a while, not a hang.
class Meeting {
 public:
  explicit Meeting(int ranks) : ranks_(ranks) {}

  void allgather(int rank, ConstBytes mine, Bytes all) {
    arrive([&] {
      buffer_.resize(all.size());
      if (!mine.empty())
        std::memcpy(buffer_.data() + static_cast<std::size_t>(rank) * mine.size(), mine.data(), mine.size());
    });
    arrive([&] {
      if (!all.empty()) std::memcpy(all.data(), buffer_.data(), all.size());
    });
    arrive([] {});
  }

  void broadcast(int rank, Bytes data, int root) {
    arrive([&] {
      if (rank == root) buffer_.assign(data.begin(), data.end());
    });
    arrive([&] {
      if (rank != root && !data.empty()) std::memcpy(data.data(), buffer_.data(), data.size());
    });
    arrive([] {});
  }

  void shift(int rank, ConstBytes data, int to, Bytes received) {
    arrive([&] {
      sent_.resize(static_cast<std::size_t>(ranks_));
      sent_[static_cast<std::size_t>(to)] = data;
    });
    arrive([&] {
      const ConstBytes mine = sent_[static_cast<std::size_t>(rank)];
      if (mine.size() != received.size()) throw Error(ErrorCode::internal, "the sizes of a shift differ");
      if (!mine.empty()) std::memcpy(received.data(), mine.data(), mine.size());
    });
    arrive([] {});
  }

 private:
  void arrive(const std::function<void()>& action) {
    std::unique_lock lock(mutex_);
    action();
    const std::uint64_t round = round_;
    if (++arrived_ == ranks_) {
      arrived_ = 0;
      ++round_;
      changed_.notify_all();
      return;
    }
    if (!changed_.wait_for(lock, penstock::test::kHung, [&] { return round_ != round; })) {
      throw Error(ErrorCode::internal, "the ranks do not meet: they call different collectives");
    }
  }

  const int ranks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::byte> buffer_;
  std::vector<ConstBytes> sent_;  // by receiver
  int arrived_ = 0;
  std::uint64_t round_ = 0;
};

class ThreadPeers final : public Peers {
 public:
  ThreadPeers(std::shared_ptr<Meeting> meeting, int rank, int ranks)
      : meeting_(std::move(meeting)), rank_(rank), ranks_(ranks) {}
  int rank() const override { return rank_; }
  int size() const override { return ranks_; }
  void allgather(ConstBytes mine, Bytes all) override { meeting_->allgather(rank_, mine, all); }
  void broadcast(Bytes data, int root) override { meeting_->broadcast(rank_, data, root); }
  void shift(ConstBytes data, int to, Bytes received, int) override { meeting_->shift(rank_, data, to, received); }

 private:
  const std::shared_ptr<Meeting> meeting_;
  const int rank_;
  const int ranks_;
};

struct World {
  int ranks = 1;
  CheckpointerOptions options;
  SaverTuning tuning;
  bool relayed = false;  ///< as if MPI let only the application's thread call it
  std::function<Tiers(int rank)> tiers;
  std::vector<int> nodes = {};  ///< by rank, for CheckpointerOptions::partner_copies
};

/// A Checkpointer, assembled from parts that a test chooses.
class Rank {
 public:
  Rank(const World& world, int rank, const std::vector<std::shared_ptr<Meeting>>& meetings)
      : rank_(rank), ranks_(world.ranks), tiers_(world.tiers(rank)), options_(world.options) {
    caller_ = std::make_shared<ThreadPeers>(meetings[0], rank, ranks_);
    if (world.relayed) {
      relay_ = channels_.relay = std::make_shared<Relay>(caller_, 2);
      channels_.writer = channels_.relay->channel(0);
      channels_.drainer = channels_.relay->channel(1);
    } else {
      channels_.writer = std::make_shared<ThreadPeers>(meetings[1], rank, ranks_);
      channels_.drainer = std::make_shared<ThreadPeers>(meetings[2], rank, ranks_);
    }
    channels_.node_of_rank = world.nodes;
    saver_ = std::make_unique<Saver>(tiers_, channels_, options_, world.tuning);
  }

  /// Another saver in place of that of the world, with a tuning for this rank alone.
  void retune(const SaverTuning& tuning) {
    saver_.reset();
    saver_ = std::make_unique<Saver>(tiers_, channels_, options_, tuning);
  }

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  Saver& saver() { return *saver_; }
  Peers& peers() { return *caller_; }

  CheckpointHandle save(std::uint64_t step, const std::vector<CheckpointArray>& arrays,
                        std::string_view metadata = {}) {
    return {relay_, saver_->save(step, arrays, metadata)};
  }
  Restored restore(const RestoreOptions& options = {}) { return checkpoint::restore(*caller_, tiers_, options); }

 private:
  const int rank_;
  const int ranks_;
  const Tiers tiers_;
  const CheckpointerOptions options_;
  Channels channels_;
  std::shared_ptr<Peers> caller_;
  std::shared_ptr<Relay> relay_;
  std::unique_ptr<Saver> saver_;
};

/// Runs `body` on every rank. An exception is a failure of the test.
inline void run_ranks(const World& world, const std::function<void(Rank&)>& body) {
  std::vector<std::shared_ptr<Meeting>> meetings;
  for (int i = 0; i < 3; ++i) meetings.push_back(std::make_shared<Meeting>(world.ranks));
  std::vector<std::string> failures(static_cast<std::size_t>(world.ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < world.ranks; ++r) {
    threads.emplace_back([&, r] {
      try {
        Rank rank(world, r, meetings);
        body(rank);
      } catch (const std::exception& error) {
        failures[static_cast<std::size_t>(r)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int r = 0; r < world.ranks; ++r) {
    EXPECT_EQ(failures[static_cast<std::size_t>(r)], "") << "rank " << r;
  }
}

inline constexpr const char* kRun = "run";

/// The slow tier is the blob of a run.
inline Tiers blob_and_folder(std::shared_ptr<store::Backend> slow, std::shared_ptr<store::Backend> fast = nullptr) {
  return {blob_tier(std::move(slow), kRun), fast ? folder_tier(std::move(fast)) : nullptr};
}

inline Tiers folders(std::shared_ptr<store::Backend> slow, std::shared_ptr<store::Backend> fast = nullptr) {
  return {folder_tier(std::move(slow)), fast ? folder_tier(std::move(fast)) : nullptr};
}

/// All ranks see the same backends.
inline std::function<Tiers(int)> shared_tiers(std::shared_ptr<store::Backend> slow,
                                              std::shared_ptr<store::Backend> fast = nullptr) {
  return [slow, fast](int) { return folders(slow, fast); };
}

}  // namespace penstock::checkpoint::test
