// Runs plans: one engine per communicator; the progress threads of a process serve all its engines.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/transport.hpp"
#include "penstock/error.hpp"
#include "penstock/plan.hpp"

namespace penstock::engine {

struct EngineOptions {
  int progress_threads = 0;  ///< of the process, unless others want more; 0: progress in start, test and wait only
  std::vector<std::int32_t> progress_cpus{};  ///< the n-th thread runs there; -1 or missing: wherever its process may
  std::int32_t progress_cores = 0;            ///< Team::progress_cores; the same on all ranks
  std::uint64_t eager_bytes = 16 << 10;       ///< up to here a message is copied into shared cells at once
  std::uint64_t shared_bytes = 64 << 20;      ///< shared memory that a node may use for this communicator
  bool shared_memory = true;                  ///< off: all messages go through the transport
  std::int64_t silence_ms = 30000;            ///< after which a waiting rank names those that it waits for; 0: never
  bool single_copy = true;                    ///< read a peer's memory directly where the kernel allows it
  std::uint32_t operation_slots = 512;        ///< at most; between nodes operations this far apart share tags
};

/// The memory that a run of a plan works on; stays the caller's, valid until the run has completed.
struct Bindings {
  ConstBytes input;
  Bytes output;
  Bytes scratch{};  ///< at a multiple of 64 bytes; empty: the engine's own, which it keeps for later runs
};

/// One run of a plan on this rank. Thread-safe; completes without being waited for when there is a progress thread.
class Run {
 public:
  virtual ~Run() = default;  ///< waits when the run has not completed

  /// True once complete. Makes progress when there is no progress thread, and runs steps of the application lane.
  /// Throws the run's Error once; afterwards returns true.
  virtual bool test() = 0;
  virtual void wait() = 0;
  /// Whether it is over, without making progress and without throwing.
  virtual bool done() const noexcept = 0;
};

class Engine {
 public:
  /// Collective. Sets up the node's shared memory; where that is impossible (too small /dev/shm, say) messages go
  /// through the transport on all ranks of the node, and report() says so.
  static std::shared_ptr<Engine> create(std::unique_ptr<Transport> transport, const EngineOptions& options);
  virtual ~Engine() = default;

  /// Ranks of a node whose shared memory could not be set up count as nodes of their own: plan with this team, not
  /// with the transport's nodes. The same on all ranks.
  virtual const Team& team() const = 0;

  /// The largest Plan::shared_bytes that a rank can have; the same on all ranks, 0 without shared memory.
  virtual std::uint64_t shared_limit_bytes() const = 0;

  /// Starts the next operation of this communicator. All ranks start the same operations in the same order; the
  /// n-th start of one rank belongs to the n-th start of the others. `signature` (operation, root, count, type)
  /// travels with the messages: a difference between ranks is Error(mismatch) on both. Never blocks. A plan that
  /// cannot be run (wrong rank or size, short bindings) fails the operation on all ranks; the Run delivers it.
  /// In a child of fork() it throws Error(unsupported).
  virtual std::shared_ptr<Run> start(std::shared_ptr<const Plan> plan, const Bindings& bindings,
                                     const Arithmetic& arithmetic, std::uint64_t signature) = 0;

  /// start(), and wait() for it. Sooner than both where the plan goes by flags and nothing else is in flight.
  virtual void run(std::shared_ptr<const Plan> plan, const Bindings& bindings, const Arithmetic& arithmetic,
                   std::uint64_t signature) = 0;

  /// Takes part in the next operation by failing it: every rank that has not completed it gets Error(peer_failed)
  /// with this message and rank. For arguments that only this rank knows to be wrong. Never blocks, never throws.
  virtual void fail_next(const std::string& message) noexcept = 0;

  /// One line per fact: transport, shared memory, progress threads and what was given up, with the reason.
  virtual std::string report() const = 0;
};

}  // namespace penstock::engine
