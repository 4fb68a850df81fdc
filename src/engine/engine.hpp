// The engine, which runs plans. One per communicator; the progress threads of a process drive all its engines.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/transport.hpp"
#include "host/topology.hpp"
#include "penstock/error.hpp"
#include "penstock/plan.hpp"

namespace penstock::engine {

struct EngineOptions {
  int progress_threads = 0;  ///< of the process; other engines may want more; 0: progress in start, test and wait only
  std::vector<std::int32_t> progress_cpus{};  ///< the CPU of the n-th thread; -1 or missing: not pinned
  std::int32_t progress_cores = 0;            ///< Team::progress_cores; equal on all ranks
  std::uint64_t eager_bytes = 16 << 10;       ///< the longest message that is sent eagerly, through cells
  host::CacheSizes caches{};                  ///< of this rank
  std::uint64_t shared_bytes = 0;         ///< shared memory that a node may use for this communicator; 0: by its ranks
  bool shared_memory = true;              ///< off: all messages go through the transport
  std::int64_t stall_timeout_ms = 30000;  ///< after which a waiting rank prints a stall warning; 0: never
  bool single_copy = true;                ///< read a peer's memory directly, if the kernel allows it
  bool huge_pages = true;                 ///< use_huge_pages() for the memory of operations on shared nodes
  std::uint32_t operation_slots = 512;    ///< upper limit of S: between nodes, operations n and n + S share tags
};

/// The memory of a run of a plan. The caller owns it; it must stay valid until the run has completed.
struct Bindings {
  ConstBytes input;
  Bytes output;
  Bytes scratch{};  ///< aligned to 64 bytes; empty: from the engine's pool
  /// Of what input and output consist, if they contain other addresses too; empty: of all. Read by start() alone.
  std::span<const ConstBytes> parts{};
};

/// One run of a plan on this rank. Thread-safe. With a progress thread it completes without test() or wait().
class Run {
 public:
  virtual ~Run() = default;  ///< waits until the run has completed

  /// True once complete. Makes progress if there is no progress thread, and runs steps of the application lane. Throws
  /// the run's Error once, and returns true afterwards.
  virtual bool test() = 0;
  virtual void wait() = 0;
  /// Whether it has completed or failed. Makes no progress and does not throw.
  virtual bool done() const noexcept = 0;
};

struct Node;

class Engine {
 public:
  /// Local: by a caller who has set up the node (NodeSetup).
  static std::shared_ptr<Engine> create(std::shared_ptr<Transport> transport, const EngineOptions& options, Node node);
  virtual ~Engine() = default;

  /// Local, before the first operation: all ranks have made their engine. Before that, the destructor leaves no trace
  /// in the transport.
  virtual void enter() noexcept = 0;

  /// The team to plan with. Ranks without shared memory count as nodes of their own, so it can differ from the
  /// transport's nodes. Equal on all ranks.
  virtual const Team& team() const = 0;

  /// The largest possible Plan::shared_bytes. Equal on all ranks; 0 without shared memory.
  virtual std::uint64_t shared_limit_bytes() const = 0;

  /// Starts the next operation of this communicator. Never blocks. All ranks start the same operations in the same
  /// order: the n-th start of one rank matches the n-th start of the others. Messages carry `signature` (a hash of
  /// operation, root, count and type); if it differs between two ranks, both get Error(mismatch). A plan that cannot be
  /// run (wrong rank or size, short bindings) fails the operation on all ranks; the Run throws it. In a child of fork()
  /// start() throws Error(unsupported).
  virtual std::shared_ptr<Run> start(std::shared_ptr<const Plan> plan, const Bindings& bindings,
                                     const Arithmetic& arithmetic, std::uint64_t signature) = 0;

  /// start() and wait(). If nothing else is in flight, takes a fast path if the plan has by_flags, or if it is a few
  /// short messages between nodes. Polls some times before it waits if the plan has messages between nodes.
  virtual void run(const std::shared_ptr<const Plan>& plan, const Bindings& bindings, const Arithmetic& arithmetic,
                   std::uint64_t signature) = 0;

  /// Takes part in the next operation by failing it. Every rank that has not completed it gets Error(peer_failed) with
  /// this message and rank. For arguments that only this rank knows to be wrong. Never blocks or throws.
  virtual void fail_next(const std::string& message) noexcept = 0;

  /// Makes progress, if there is any to make, without an operation to wait for: so a rank whose operation has failed
  /// goes on to tell the others. Never blocks.
  virtual void progress() noexcept = 0;

  /// Sets the timeout of operations. An operation of this rank that has waited for others this long without progress
  /// fails on all ranks, with Error(timed_out) or Error(peer_failed). 0, the default: never. Any thread.
  virtual void set_timeout(std::chrono::milliseconds timeout) noexcept = 0;

  /// Transport, shared memory, progress threads, and which of them is off, with the reason: one fact per line.
  virtual std::string report() const = 0;
};

}  // namespace penstock::engine
