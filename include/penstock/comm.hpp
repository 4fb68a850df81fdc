// A communicator whose collectives are Penstock's.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "penstock/collective.hpp"
#include "penstock/datatype.hpp"
#include "penstock/export.hpp"
#include "penstock/plan.hpp"
#include "penstock/types.hpp"

namespace penstock {

namespace comm {
class State;
}

struct CommOptions {
  /// Communication cores of each node: threads, spread over the processes of the communicator, that make progress
  /// while the application computes. -1 is "auto": the cores of the job that no rank of the node needs, at most one per
  /// rank. 0 is off: no thread at all. A number is kept to where cores lack, too; they share those of the ranks then.
  /// Where ranks give different numbers, the smallest counts. See report().
  int progress_cores = -1;
};

/// An operation that has been started. The buffers belong to it until test() has returned true or wait() has
/// returned. Thread-safe. The destructor waits.
class PENSTOCK_API Request {
 public:
  Request() = default;
  /// Throws the operation's Error, once.
  bool test();
  void wait();
  explicit operator bool() const { return static_cast<bool>(run_); }

  struct Run;
  explicit Request(std::shared_ptr<Run> run) : run_(std::move(run)) {}

 private:
  std::shared_ptr<Run> run_;
};

class Persistent;

/// Made from an MPI communicator by <penstock/mpi.hpp>. A handle: copies share the communicator. All collectives are
/// called by all ranks in the same order, one thread at a time; their requests may be waited for in any order.
/// Spans are checked: a wrong size throws Error(invalid_argument) here and Error(peer_failed) on the other ranks.
class PENSTOCK_API Comm {
 public:
  explicit Comm(std::shared_ptr<comm::State> state);

  int rank() const;
  int size() const;
  const Team& team() const;
  /// A communicator of the same ranks with its own order of operations. Collective.
  Comm duplicate() const;

  /// From now on, calls of `kind` on this communicator that name no algorithm run as if they named this one, and,
  /// unless 0, this segment_bytes; with an empty name the choice is Penstock's again. Local and at once; all ranks do
  /// the same between the same operations, where not their next call fails as one whose arguments differ. Duplicates
  /// begin without. Throws Error(invalid_argument) for a name that is no algorithm of `kind`; whether it fits the ranks
  /// and sizes of a call shows there.
  void use(CollectiveKind kind, const std::string& algorithm, std::uint64_t segment_bytes = 0);

  /// Non-blocking form of every collective. `input` and `output` in bytes, as `collective` demands:
  /// bcast uses `output` alone (count elements); barrier none; with in_place the rank's own contribution lies in
  /// `output` where MPI puts it. Ranks that MPI says receive (send) nothing may pass empty spans. Operations with
  /// counts (gatherv, …) take longer spans than their blocks need. Where two ranks' counts do not fit, both get
  /// Error(mismatch).
  /// Where MPI's own collective runs, which the algorithm "native" and tuning tables can ask for, MPI's rules hold: all
  /// ranks use the same form, blocking or not; ranks that call what does not fit together are not told, and a rank
  /// that fails before it has called MPI leaves the others waiting until it calls the operation again. At debug level 1
  /// one of Penstock's algorithms runs instead.
  /// With `user` a reduction combines by it, and `collective.count` counts its elements; dtype and op mean nothing
  /// then. It must do the same on all ranks, and is kept until the operation is complete.
  Request start(const Collective& collective, ConstBytes input, Bytes output,
                std::shared_ptr<const UserOp> user = nullptr);
  void run(const Collective& collective, ConstBytes input, Bytes output, std::shared_ptr<const UserOp> user = nullptr);

  /// Collectives that move data, on items of datatypes, which are packed and unpacked where they are not contiguous.
  /// The types of the two sides, and of two ranks, may differ where the bytes that are sent fit those that are
  /// received. `collective.count`, its blocks and its dtype mean nothing. Memory is unpacked by test() and wait().
  Request start_items(const Collective& collective, const SendItems& send, const ReceiveItems& receive);
  void run_items(const Collective& collective, const SendItems& send, const ReceiveItems& receive) {
    start_items(collective, send, receive).wait();
  }

  /// Persistent form of every collective: to be started any number of times on the same buffers, which must live as
  /// long as it is. Local; what is wrong with the arguments shows when it is started.
  Persistent prepare(const Collective& collective, ConstBytes input, Bytes output,
                     std::shared_ptr<const UserOp> user = nullptr) const;
  Persistent prepare_items(const Collective& collective, const SendItems& send, const ReceiveItems& receive) const;

  /// Any plan that all ranks made for the same operation (redistribution uses this). `signature` must agree.
  /// `scratch` is the plan's scratch memory, at a multiple of 64 bytes; empty: memory of the communicator.
  Request start(std::shared_ptr<const Plan> plan, ConstBytes input, Bytes output, const Arithmetic& arithmetic,
                std::uint64_t signature, Bytes scratch = {});
  /// Fails the next operation on all ranks, with this rank's message. See engine::Engine::fail_next.
  void fail_next(const std::string& message) noexcept;

  /// From now on an operation in which nothing moves for this long, while it waits for other ranks, fails: here with
  /// Error(timed_out), which says whom it waited for, and with Error(peer_failed) on the ranks that have not completed
  /// it. 0: never, as at first. Local; any thread. Not for MPI's own collectives.
  void set_timeout(std::chrono::milliseconds timeout) noexcept;

  /// Small values of all ranks, for agreement; blocking and collective.
  void allgather(ConstBytes mine, Bytes all);
  /// Runs `action` on every rank; if it throws anywhere, every rank throws: the same Error on the ranks that failed,
  /// Error(peer_failed) with the first failure's text on the others. Blocking and collective.
  void agree(const std::function<void()>& action);

  /// Whether any thread may call this communicator (one at a time); if not, only the one that initialised MPI may,
  /// because MPI was initialised without MPI_THREAD_MULTIPLE.
  bool any_thread() const;

  /// What a tuning table must have been made for to be used here: one JSON object, see to_json(TuningKey).
  std::string tuning_key() const;
  /// Which plan would run for `collective`, and why: one JSON object.
  std::string explain(const Collective& collective) const;
  /// Transport, shared memory, progress threads, and what was given up with the reason: one fact per line.
  std::string report() const;

  /// What the communicator's copies share; a type of the library alone.
  comm::State& state() const { return *state_; }

 private:
  std::shared_ptr<comm::State> state_;
};

/// A collective that is started again and again; see Comm::prepare. A handle to the communicator and the buffers.
class PENSTOCK_API Persistent {
 public:
  Persistent(Comm comm, std::function<Request()> start) : comm_(std::move(comm)), start_(std::move(start)) {}
  /// The previous request of it must be complete. Otherwise as Comm::start.
  Request start() const { return start_(); }
  /// Instead of start(), see Comm::fail_next.
  void fail_next(const std::string& message) noexcept { comm_.fail_next(message); }

 private:
  Comm comm_;
  std::function<Request()> start_;
};

}  // namespace penstock
