// Asynchronous checkpoints through a burst buffer, restored into any layout on any number of ranks (Chien et al. 2018,
// Section III.C). docs/design/checkpoint.md states the guarantees.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/comm.hpp"
#include "penstock/error.hpp"
#include "penstock/export.hpp"
#include "penstock/layout.hpp"
#include "penstock/types.hpp"

namespace penstock {

namespace checkpoint {
class Job;
class Relay;
}  // namespace checkpoint

/// The durability of a checkpoint. Without a burst buffer, `fast` and `drained` are reached together.
enum class CheckpointLevel : std::uint8_t {
  copying,  ///< some arrays with CheckpointArray::copied_later are still read
  staged,   ///< copied: the caller's arrays may change
  fast,     ///< complete and durable in the burst buffer
  drained,  ///< complete and durable in the slow tier
};

/// "copying", "staged", "fast" or "drained".
PENSTOCK_API std::string_view name(CheckpointLevel level);

/// One array to save: this rank's part under `layout`. An array that all ranks hold equally is saved once, with
/// Layout::whole(shape, 0): the other ranks pass an empty span.
struct CheckpointArray {
  std::string name;  ///< unique, not empty, UTF-8; equal on all ranks, as are dtype, layout and order
  DType dtype = DType::uint8;
  Layout layout;     ///< on at most as many ranks as save
  ConstBytes local;  ///< local_size_elems(rank) elements; read during save() only, unless `copied_later`
  /// Copied in the background. It must not change, and its memory must stay, until the handle's wait(staged) returns.
  bool copied_later = false;
};

/// A checkpoint in progress. A handle: copies share it. Thread-safe. Exception: if MPI was initialised without
/// MPI_THREAD_MULTIPLE, wait() is collective, and only the application's thread may call it.
class PENSTOCK_API CheckpointHandle {
 public:
  std::uint64_t step() const;
  CheckpointLevel level() const;
  /// Whether the checkpoint has failed: it will never reach the next level.
  bool failed() const;
  /// Blocks until all ranks have reached `level`. If the checkpoint failed before, it throws: the original Error on the
  /// rank where it occurred, Error(peer_failed) on the others. Call it on all ranks or on none; but wait(staged) is
  /// local, never throws, and helps to copy what is not copied yet. With a `limit` (by default
  /// CheckpointerOptions::timeout), which counts from the call, throws Error(timed_out) on each rank where it has
  /// passed before. The checkpoint goes on, and may be waited for again.
  void wait(CheckpointLevel level, std::optional<std::chrono::milliseconds> limit = std::nullopt);
  /// Seconds that save() blocked its caller.
  double stall_s() const;
  /// Seconds of stall_s() in which it waited for earlier checkpoints to be durable in the first tier, because the
  /// budget of staging memory was used up or `staging_buffers` saves were under way.
  double waited_s() const;

  CheckpointHandle(std::shared_ptr<checkpoint::Relay> relay, std::shared_ptr<checkpoint::Job> job);

 private:
  std::shared_ptr<checkpoint::Relay> relay_;
  std::shared_ptr<checkpoint::Job> job_;
};

/// How good a checkpoint is, by name, such as "val_loss". Finite.
using CheckpointMetrics = std::map<std::string, double>;

struct CheckpointerOptions {
  /// URL of the fast tier, which may be local to each node; empty: none. No other run may use it. It keeps the newest
  /// checkpoint, the newest that is drained, and those that are still to be drained; resume_drains() says what becomes
  /// of them if the job dies.
  std::string burst_buffer;
  int keep = 0;  ///< how many of the newest checkpoints stay in the slow tier; 0: all
  /// With `keep`: multiples of this step stay, too, until the run goes back behind them. 0: none.
  std::uint64_t keep_every = 0;
  /// With `keep`: so many checkpoints with the lowest, or highest, `best_metric` stay, too, until the run goes back
  /// behind them. 0: none.
  int keep_best = 0;
  std::string best_metric;
  bool best_is_highest = false;
  /// With `keep`: checkpoints that were saved less than so many seconds before the newest stay, too. By the clocks at
  /// the saves, which the manifests hold; a wrong clock never removes what another option keeps. 0: none.
  double keep_younger_s = 0;
  std::uint64_t chunk_bytes = std::uint64_t{256} << 10;  ///< unit of checksums and of reads, a multiple of 64
  /// How much memory saves may take on this rank for what is copied, but not yet complete in the first tier. While it
  /// lasts, a save does not wait until an earlier one is durable. A save of more than that fails. 0: twice this rank's
  /// arrays if half of the memory that is free on the node, or below the limit of its control group, divided over the
  /// ranks there, holds as much as they take; else as much as they take.
  std::uint64_t staging_bytes = 0;
  /// How many saves may be copied but not yet complete in the first tier. With 1, a save waits for the previous one;
  /// with 2, for the one before that, and so on. The more, the later a save throws the failure of an earlier one. Equal
  /// on all ranks. 0: as many as the staging memory of every rank holds when the first save begins, at most 8.
  int staging_buffers = 0;
  int undrained_max = 4;  ///< if this many checkpoints wait to be drained, the next save waits for the oldest
  /// With a burst buffer: how fast all ranks together drain it, each an equal share, so that others may use the slow
  /// tier and the network. Saves that come faster wait as `undrained_max` says. It holds for finish(), too. 0: no
  /// limit.
  double drain_bytes_per_s = 0;
  /// With a burst buffer that is local to nodes: each rank's object is also kept on another node, in the burst buffer
  /// of a partner there, and a checkpoint is `fast` with its copies. So it outlives the loss of one node before it is
  /// drained. No node may have more than half of the ranks.
  bool partner_copies = false;
  /// Not empty: the slow tier is a store, and this is the name of the blob in it that holds all checkpoints of the run,
  /// each as one version. Chunks that did not change since the checkpoint before are not written again. Any job that
  /// saves to a run must keep to this form. Empty: the slow tier is a folder with objects for each checkpoint.
  std::string run;
  /// With `run`: what is written to the slow tier is compressed; see StoreOptions::compress_level. The burst buffer is
  /// not. Whether a chunk has changed is seen by its content, so the level may change from job to job.
  int compress_level = 0;
  /// How long a call of save(), and a call of wait() or finish() without a limit of its own, waits for storage: then it
  /// throws Error(timed_out) on this rank, and a save of that call is one that no rank saves. Empty: for ever.
  std::optional<std::chrono::milliseconds> timeout;
};

/// An array of a checkpoint, without its elements.
struct SavedArray {
  std::string name;
  DType dtype = DType::uint8;
  Layout layout;  ///< as it was saved
};

/// What a checkpoint holds. To know it, only the manifest is read.
struct CheckpointInfo {
  std::uint64_t step = 0;
  std::vector<SavedArray> arrays;
  std::string metadata;
  CheckpointMetrics metrics;
  double saved_at_s = 0;  ///< seconds since 1970 by the clock of rank 0; 0: an older Penstock saved it
};

struct RestoreOptions {
  std::optional<std::uint64_t> step;      ///< empty: the newest intact one
  std::map<std::string, Layout> layouts;  ///< new layouts by array name; every rank gets the whole of other arrays
  std::map<std::string, Bytes> into;      ///< memory for local parts by array name; others are allocated
  /// Names of the arrays to read; empty: all.
  std::optional<std::set<std::string>> only;
  /// For callers that choose by what was saved. Called with a copy of these options before a checkpoint's arrays are
  /// read; it may change layouts, into and only. Called once more for each older checkpoint that is tried because of
  /// damage. What it throws is thrown on all ranks, and no other checkpoint is tried. Empty: none.
  std::function<void(const CheckpointInfo&, RestoreOptions&)> choose;
};

struct RestoredArray {
  std::string name;
  DType dtype = DType::uint8;
  Layout layout;  ///< `local` is this rank's part of it
  Bytes local;
  std::shared_ptr<std::byte> memory;  ///< owns `local`, aligned to 64 bytes; empty if the caller's memory was used
};

struct Restored {
  std::uint64_t step = 0;
  std::vector<RestoredArray> arrays;
  std::string metadata;
  std::vector<std::string> warnings;  ///< newer checkpoints that were skipped and why, and repaired damage
};

/// Saves checkpoints to one place and restores them. Any number of programs may restore from a place. One job at a time
/// saves to it: the first save of a Checkpointer takes the place over, and from then on every save and drain of an
/// older one fails with Error(fenced), which names the newer job. All ranks make, use and destroy a Checkpointer
/// together, each from one thread at a time. The destructor calls finish() and ignores its errors.
class PENSTOCK_API Checkpointer {
 public:
  /// `url` is the slow tier, shared by all ranks. `comm` is duplicated; empty: a single process. Collective. Throws on
  /// all ranks: Error(invalid_argument) for an invalid option, and errors of opening a tier.
  explicit Checkpointer(std::string_view url, const CheckpointerOptions& options = {},
                        std::optional<Comm> comm = std::nullopt);
  ~Checkpointer();
  Checkpointer(const Checkpointer&) = delete;
  Checkpointer& operator=(const Checkpointer&) = delete;

  /// Copies the arrays and returns; everything else runs in the background. First waits until there is room in the
  /// staging memory: see CheckpointerOptions::staging_bytes and staging_buffers. An existing step is replaced once the
  /// new one is drained. A step below earlier ones supersedes them: the run has gone back. They stay until a drained
  /// checkpoint reaches their steps, and with keep = 0 for ever. `metadata` is any text in UTF-8; rank 0's is saved,
  /// and its `metrics`. Collective. Throws the Error of an invalid argument, or of an earlier failed checkpoint that no
  /// wait() has thrown; then no rank saves this step. Ranks on which save() did not throw get the error from wait().
  CheckpointHandle save(std::uint64_t step, const std::vector<CheckpointArray>& arrays, std::string_view metadata = {},
                        const CheckpointMetrics& metrics = {});

  /// For a rank that cannot describe its arrays: fails the save on all ranks, and throws `error`. Collective with the
  /// other ranks' save().
  [[noreturn]] void fail_save(std::uint64_t step, const Error& error);

  /// Reads the newest complete and intact checkpoint, or that of one step, into the given layouts. The newest is the
  /// one that was saved last; superseded ones are tried after all others. Each rank reads and verifies the chunks that
  /// hold its part, from the burst buffer if possible, several at once. Needs memory for the result, and 32 MiB or one
  /// chunk if that is larger. Collective; all ranks get the same step. Throws Error(not_found) if there is no
  /// checkpoint, Error(corrupt) if none is intact, Error(invalid_argument) if a layout does not fit; the contents of
  /// `into` are undefined then.
  Restored restore(const RestoreOptions& options = {});

  /// As restore, but returns nothing if there is no checkpoint, or none of the step that was asked for. All ranks get
  /// the same answer. Throws Error(io) if no rank found one, but some rank could not look into its burst buffer.
  std::optional<Restored> try_restore(const RestoreOptions& options = {});

  /// What the newest checkpoint that this rank can see holds, or that of one step. Reads no array. Local. Throws
  /// Error(not_found), Error(corrupt).
  CheckpointInfo inspect(std::optional<std::uint64_t> step = std::nullopt) const;

  /// The steps of the complete checkpoints that this rank can see, ascending; also of superseded ones. Local.
  std::vector<std::uint64_t> steps() const;
  /// The step of the newest complete checkpoint that this rank can see, which restore() tries first. Local.
  std::optional<std::uint64_t> latest() const;

  /// Allocates and touches so many staging buffers that no save holds, as far as the staging memory allows, for saves
  /// of `local_bytes` on this rank: the first save into such a buffer is then no slower. Local.
  void reserve(std::uint64_t local_bytes, int buffers = 1);

  /// The flags that at least one rank has set: for decisions, such as when to save, that all ranks must make alike.
  /// Collective.
  std::uint64_t any_of(std::uint64_t flags);

  /// Takes the place over now, not with the first save, and drains what jobs that have ended left in the burst buffer:
  /// the newest first, each as save() would, and only what `keep` and its companions keep. Any number of ranks may do
  /// so on the nodes that have it. The first save does the same. Returns how many checkpoints are still to be drained,
  /// in the background; what fails then is one of warnings(). Collective. Throws what taking the place over throws.
  std::size_t resume_drains();

  /// Waits until all checkpoints are drained or failed, and those that are not kept any more are removed. Throws the
  /// first error that no call has thrown. Collective.
  /// With a `limit`, which counts from the call, throws Error(timed_out) on each rank where it has passed before.
  void finish(std::optional<std::chrono::milliseconds> limit = std::nullopt);

  /// Waits until the saves of `step` by this Checkpointer are drained or failed, and throws no error of theirs: before
  /// the checkpoint is removed, which would fail what still drains it. `limit` as for finish(). Collective.
  void settle(std::uint64_t step, std::optional<std::chrono::milliseconds> limit = std::nullopt);

  /// Problems that failed no checkpoint, such as an old one that could not be removed. Local.
  std::vector<std::string> warnings() const;
  /// Tiers, memory and threads, one fact per line. Local.
  std::string report() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Where checkpoints are, for the functions below. They are local, for one process at a time, and make no place that
/// does not exist: then they throw Error(not_found). Jobs may save and restore meanwhile.
struct CheckpointPlace {
  std::string url;           ///< the slow tier
  std::string burst_buffer;  ///< the fast tier as this node sees it; empty: none
  std::string run;           ///< see CheckpointerOptions::run
};

/// What has become of a checkpoint. Nothing else is recorded: what the tiers hold says it.
enum class CheckpointState : std::uint8_t {
  fast,       ///< durable in the burst buffer; the next job that saves drains it, if no job does now
  draining,   ///< likewise, and parts of it are in the slow tier
  drained,    ///< durable in the slow tier
  evictable,  ///< likewise, and its copy in the burst buffer may be removed
};

/// "fast", "draining", "drained" or "evictable".
PENSTOCK_API std::string_view name(CheckpointState state);

/// A complete checkpoint.
struct CheckpointEntry {
  std::uint64_t step = 0;
  std::uint64_t generation = 0;  ///< number of the job that saved it; 0: Penstock 0.1 did
  std::uint64_t sequence = 0;    ///< number of the save in its job; for Penstock 0.1, of the attempt at this step
  bool fast = false;             ///< in the burst buffer
  bool drained = false;          ///< in the slow tier
  CheckpointState state = CheckpointState::fast;
  bool superseded = false;       ///< a newer checkpoint has its step or an earlier one
  int ranks = 0;                 ///< that saved it
  std::uint64_t size_bytes = 0;  ///< of its objects in one tier
  CheckpointMetrics metrics;     ///< that it was saved with
  double saved_at_s = 0;         ///< seconds since 1970; 0: unknown
  std::string damage;            ///< why the manifest cannot be read; `ranks` and `size_bytes` are then 0
};

/// All complete checkpoints, in the order of their saves. Reads their manifests.
PENSTOCK_API std::vector<CheckpointEntry> list_checkpoints(const CheckpointPlace& place);

/// What the newest checkpoint holds, or that of one step. Reads no array. Throws Error(not_found), Error(corrupt).
PENSTOCK_API CheckpointInfo inspect_checkpoint(const CheckpointPlace& place,
                                               std::optional<std::uint64_t> step = std::nullopt);

/// One checkpoint in one tier, after every byte of it was read.
struct CheckpointVerified {
  std::uint64_t step = 0;
  std::uint64_t generation = 0;
  std::string tier;  ///< URL
  std::uint64_t verified_bytes = 0;
  std::vector<std::string> problems;  ///< empty: intact
  int elsewhere = 0;  ///< objects that this node's burst buffer does not hold; those of other nodes, or removed
};

/// Verifies every checksum of all checkpoints, or of those of one step, in both tiers. Throws Error(not_found) if there
/// is none of that step.
PENSTOCK_API std::vector<CheckpointVerified> verify_checkpoints(const CheckpointPlace& place,
                                                                std::optional<std::uint64_t> step = std::nullopt);

/// Removes the checkpoints of a step from both tiers, manifests first: if it is cut short, what remains is no
/// checkpoint. A mark in the slow tier says so to all: copies in burst buffers of other nodes, and one that is being
/// drained, count for nothing, and the next job that sees them removes them. Throws Error(not_found) if there is none.
/// Returns what was removed.
PENSTOCK_API std::vector<CheckpointEntry> remove_checkpoint(const CheckpointPlace& place, std::uint64_t step);

}  // namespace penstock
