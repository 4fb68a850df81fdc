// Saves checkpoints. The caller stages; then a writer thread and a drainer thread take each checkpoint from level to
// level, in the order of docs/design/checkpoint.md.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/free_memory.hpp"
#include "checkpoint/job.hpp"
#include "checkpoint/object.hpp"
#include "checkpoint/partners.hpp"
#include "checkpoint/peers.hpp"
#include "checkpoint/relay.hpp"
#include "checkpoint/staging.hpp"
#include "checkpoint/tiers.hpp"
#include "checkpoint/worker.hpp"
#include "penstock/checkpoint.hpp"

namespace penstock::checkpoint {

/// The ranks, as the two threads reach them. With a relay, its channels 0 and 1 are `writer` and `drainer`.
struct Channels {
  std::shared_ptr<Peers> writer;
  std::shared_ptr<Peers> drainer;
  std::shared_ptr<Relay> relay;  ///< empty: the threads communicate themselves
  int ranks_here = 1;            ///< processes that share this machine's cores
  std::vector<int> node_of_rank = {0};
};

/// What only tests change.
struct SaverTuning {
  std::uint64_t piece_bytes = StreamShape::kPieceBytes;  ///< that a drain reads at once
  Clock clock = Clock::system();
  std::function<std::uint64_t()> free_memory_bytes = [] { return checkpoint::free_memory_bytes(); };
  std::function<void()> on_background_copy = [] {};  ///< called before each piece that is copied in the background
  std::function<void()> on_backpressure = [] {};     ///< called when a save begins to wait for an earlier one
};

/// Waits until `job` has reached `level` or failed, at most up to `deadline`. Whether it has. Collective with a relay.
bool wait_until_settled(Job& job, CheckpointLevel level, Relay* relay, Deadline deadline = {});

/// Implements Checkpointer, which adds tiers from URLs and communicators.
class Saver {
 public:
  Saver(Tiers tiers, Channels channels, const CheckpointerOptions& options, const SaverTuning& tuning = {});
  ~Saver();

  /// `wrong`: the error of the caller's invalid arrays; it fails the save and is thrown.
  std::shared_ptr<Job> save(std::uint64_t step, const std::vector<CheckpointArray>& arrays, std::string_view metadata,
                            const CheckpointMetrics& metrics = {}, const std::optional<Error>& wrong = std::nullopt);
  /// Throws Error(timed_out) at `deadline`.
  void finish(Deadline deadline = {});
  /// Waits for the saves of `step` alone, and throws no error of theirs. Throws Error(timed_out) at `deadline`.
  void settle(std::uint64_t step, Deadline deadline);
  /// Takes the place over, unless a save has done so, and drains what dead jobs have left. Returns how many checkpoints
  /// are still to be drained. Collective.
  std::size_t resume_drains();
  void reserve(std::uint64_t local_bytes, int buffers);

  const Tiers& tiers() const { return tiers_; }
  std::vector<std::string> warnings() const;
  std::string report() const;

 private:
  void check(const std::vector<CheckpointArray>& arrays) const;
  std::optional<Error> undelivered(const Job& settled);
  std::shared_ptr<Job> with_sequence(std::uint64_t sequence) const;
  std::shared_ptr<Job> settling() const;
  StagingPool::Held held() const;
  std::shared_ptr<Job> wait_for_earlier(Job& job, std::optional<std::uint64_t> size_bytes, Deadline deadline);
  void stage(Job& job, const std::vector<CheckpointArray>& arrays, const std::vector<std::uint64_t>& offsets);
  void submit(const std::shared_ptr<Job>& job);

  // Run on the writer thread.
  void write(const std::shared_ptr<Job>& job);
  void begin(Job& job, const std::string& what);
  std::uint64_t seen_generation() const;
  void take_over(std::uint64_t seen_generation, const std::string& what);
  void wait_for_resumed(const Job& job) const;
  void write_first_tier(Job& job, const std::string& what);
  // Run on the drainer thread.
  void drain(Job& job);
  void resume(Job& job);
  std::optional<Version> drain_left(Peers& peers, const Job& job, const std::string& what);
  void put_left(Peers& peers, const Job& job, const std::string& text, const std::string& what);
  std::vector<std::vector<int>> holders_of(Peers& peers, const Manifest& manifest, const std::string& what) const;
  bool is_kept(const Version& version, const Manifest& manifest, const std::map<Version, Holding>& slow);
  // Run on both.
  void put(Peers& peers, Tier& tier, Job& job, const Content& content, const std::string& what);
  Base base_of(Peers& peers, Tier& tier, const Attempt& attempt, const std::string& what) const;
  std::uint64_t publish(Peers& peers, Tier& tier, const Attempt& attempt, const Draft& draft,
                        const std::function<void()>& complete, const std::function<void()>& discard,
                        const std::string& what);
  void discard(Tier& tier, const Job& job, const Written& own);
  void copy_manifest(Peers& peers, Tier& tier, const Job& job, const std::string& what);
  void retire_after(Peers& peers, const Job& job, const Version& saved, bool drained);
  KeepRules keep_rules() const;
  std::optional<Rating> rating_of(const Version& version);

  void warn(const std::string& text);
  std::vector<std::shared_ptr<Job>> jobs() const;
  std::vector<std::shared_ptr<Job>> resumed() const;

  const Tiers tiers_;
  const Channels channels_;
  const CheckpointerOptions options_;
  const int copy_threads_;
  const std::optional<Partners> partners_;  // with partner_copies
  StagingPool staging_;                     // used by the caller's thread
  const std::function<void()> on_backpressure_;
  const std::function<void()> on_background_copy_;
  Precedence copying_;
  DrainState drain_;              // used by the drainer thread
  std::uint64_t generation_ = 0;  // used by the writer thread; 0: not taken yet
  std::map<Version, Rating> ratings_;
  /// How many saves may be under way in the first tier: as the caller's thread knows it, and as the ranks have agreed
  /// it in the background. 0: not yet. All ranks learn it in the same call.
  int most_staged_;
  std::atomic<int> agreed_buffers_{0};
  std::uint64_t waits_ = 0;  // of saves, for earlier ones
  double waited_s_ = 0;

  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<Job>> jobs_;     // not closed, or with an undelivered error; and the newest ones
  std::vector<std::shared_ptr<Job>> resumed_;  // what dead jobs have left undrained, in the order of the drains
  std::uint64_t saves_ = 0;
  std::vector<std::string> warnings_;

  std::optional<Worker> copier_;  // made by the first save that leaves copies to it
  Worker drainer_;
  Worker writer_;  // last member: it submits work to the drainer
};

}  // namespace penstock::checkpoint
