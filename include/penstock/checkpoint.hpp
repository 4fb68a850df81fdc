// Asynchronous checkpoints through a burst buffer, restored into any layout on any number of ranks
// (Chien et al. 2018, Section III.C, with the guarantees of docs/design/checkpoint.md).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
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

/// How safe a checkpoint is. Without a burst buffer `fast` and `drained` are reached together.
enum class CheckpointLevel : std::uint8_t {
  staged,   ///< copied: the caller's arrays may change
  fast,     ///< complete and durable in the burst buffer
  drained,  ///< complete and durable in the slow tier
};

/// One array to save: this rank's part of it, as `layout` says. Replicated arrays are saved once, with
/// Layout::whole(shape, 0): the other ranks pass an empty span.
struct CheckpointArray {
  std::string name;  ///< unique, not empty; the same on all ranks, as are dtype, layout and order
  DType dtype = DType::uint8;
  Layout layout;     ///< on at most as many ranks as save
  ConstBytes local;  ///< local_size_elems(rank) elements; read during save() only
};

/// A checkpoint under way. A handle: copies share it. Thread-safe, except that wait() on ranks whose MPI was
/// initialised without MPI_THREAD_MULTIPLE is collective and for the application's thread.
class PENSTOCK_API CheckpointHandle {
 public:
  std::uint64_t step() const;
  CheckpointLevel level() const;
  /// The checkpoint has not reached, and will never reach, the next level.
  bool failed() const;
  /// Blocks until `level` is reached on all ranks. Throws the checkpoint's Error if it failed before: the rank's own
  /// error where it occurred, Error(peer_failed) on the others. Call it on all ranks or on none.
  void wait(CheckpointLevel level);
  /// How long save() held up its caller.
  double stall_s() const;

  CheckpointHandle(std::shared_ptr<checkpoint::Relay> relay, std::shared_ptr<checkpoint::Job> job);

 private:
  std::shared_ptr<checkpoint::Relay> relay_;
  std::shared_ptr<checkpoint::Job> job_;
};

struct CheckpointerOptions {
  std::string burst_buffer;  ///< URL of the fast tier, which may be local to each node; empty: none
  int keep = 0;              ///< newest checkpoints that stay in the slow tier; 0: all
  std::uint64_t chunk_bytes = std::uint64_t{1} << 20;  ///< unit of checksums and of reading, a multiple of 64
  int undrained_max = 4;  ///< when so many checkpoints wait to be drained, the next one waits for the oldest
};

struct RestoreOptions {
  std::optional<std::uint64_t> step;      ///< empty: the newest that is intact
  std::map<std::string, Layout> layouts;  ///< new layout of an array; arrays not named come whole to every rank
  std::map<std::string, Bytes> into;      ///< memory for the local part of an array; others are allocated
};

struct RestoredArray {
  std::string name;
  DType dtype = DType::uint8;
  Layout layout;  ///< whose part of this rank `local` holds
  Bytes local;
  std::shared_ptr<std::byte> memory;  ///< what holds `local`, aligned to 64 bytes; empty where it is the caller's
};

struct Restored {
  std::uint64_t step = 0;
  std::vector<RestoredArray> arrays;
  std::string metadata;
  std::vector<std::string> warnings;  ///< which newer checkpoints were passed over and why, which damage was repaired
};

/// Saves and restores checkpoints at one place. One run at a time may save there; any number may restore.
/// A handle of the run: made, used and destroyed by all ranks together. The functions are called by one thread at a
/// time. The destructor finishes what is under way, like finish(), but swallows its errors.
class PENSTOCK_API Checkpointer {
 public:
  /// `url` is the slow tier, shared by all ranks. Collective. `comm` is duplicated; empty: a single process.
  /// Throws Error(invalid_argument) for an option that makes no sense, and what opening a tier throws, on all ranks.
  explicit Checkpointer(std::string_view url, const CheckpointerOptions& options = {},
                        std::optional<Comm> comm = std::nullopt);
  ~Checkpointer();
  Checkpointer(const Checkpointer&) = delete;
  Checkpointer& operator=(const Checkpointer&) = delete;

  /// Copies the arrays and returns; everything else happens behind the caller's computation. It waits first for the
  /// previous checkpoint to be complete in the first tier. A step that exists is replaced once the new one is drained.
  /// `metadata` is any text, restored as it is; that of rank 0 counts.
  /// Collective. Throws the error of an earlier checkpoint that no wait() has delivered, or the Error of an argument;
  /// this step is then not saved, on any rank: where save() did not throw, wait() of its handle does.
  CheckpointHandle save(std::uint64_t step, const std::vector<CheckpointArray>& arrays, std::string_view metadata = {});

  /// Takes part in a save by failing it, for a caller that cannot describe its arrays: throws `error`, and the other
  /// ranks hear of it. Collective with their save().
  [[noreturn]] void fail_save(std::uint64_t step, const Error& error);

  /// Reads the newest checkpoint that is complete and intact, or that of one step, into the layouts wanted: each rank
  /// reads the chunks that hold its part, from the burst buffer where it can, and verifies them. Takes memory for the
  /// result and one chunk. Collective; all ranks get the same step. Throws Error(not_found) when there is no
  /// checkpoint, Error(corrupt) when there is none intact, Error(invalid_argument) for a layout that does not fit;
  /// the memory of `into` then holds nothing of use.
  Restored restore(const RestoreOptions& options = {});

  /// The complete checkpoints that this rank can see, ascending. Local.
  std::vector<std::uint64_t> steps() const;
  std::optional<std::uint64_t> latest() const;

  /// Allocates and touches memory for saves of up to that many bytes on this rank, so that the first one stalls no
  /// longer than the others. Local.
  void reserve(std::uint64_t local_bytes);

  /// Waits until all checkpoints are drained or have failed; throws the first error that was not delivered. Collective.
  void finish();

  /// What went wrong without failing a checkpoint, such as an old one that could not be removed. Local.
  std::vector<std::string> warnings() const;
  /// Tiers, memory and threads, one fact per line.
  std::string report() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace penstock
