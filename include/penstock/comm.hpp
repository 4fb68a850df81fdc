// A communicator whose collectives are Penstock's.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "penstock/choice_by_cost.hpp"
#include "penstock/collective.hpp"
#include "penstock/cost_model.hpp"
#include "penstock/datatype.hpp"
#include "penstock/export.hpp"
#include "penstock/plan.hpp"
#include "penstock/types.hpp"

namespace penstock {

namespace comm {
class State;
}

struct CommOptions {
  /// Communication cores per node. Each has a progress thread, which makes progress while the application computes;
  /// the threads are spread over the processes of the communicator.
  /// -1, "auto": the cores of the job that no rank of the node uses, at most one per rank. 0: no progress threads.
  /// n > 0: n threads, even if they share cores with the ranks. If the ranks of a node give different numbers, the
  /// smallest one counts; "auto" yields to any number. report() says what was done.
  int progress_cores = -1;
};

/// See Comm::machine.
struct MeasuredMachine {
  Machine machine;
  bool has_network = false;  ///< false: one node, so Machine::network has the default values
  bool has_node = false;     ///< false: rank 0 is alone on its node, so flags and remote reads have the default values
  std::string source;        ///< on rank 0: whether it was measured now, or where it comes from
  double seconds = 0;        ///< that it took to measure
  /// Of one node with several ranks: the times of its rows, by which communicators with as many ranks choose.
  std::vector<RowTime> rows{};
};

/// An operation that has been started. The buffers belong to it until test() has returned true or wait() has
/// returned. Thread-safe. The destructor waits.
class PENSTOCK_API Request {
 public:
  Request() = default;
  /// Both throw the operation's Error, once.
  bool test();
  void wait();
  /// Whether it has completed or failed. Makes no progress and throws nothing: for programs that test one of many
  /// requests, which moves all of them on, and look at the others.
  bool done() const noexcept;
  explicit operator bool() const { return static_cast<bool>(run_); }

  struct Run;
  explicit Request(std::shared_ptr<Run> run) : run_(std::move(run)) {}

 private:
  std::shared_ptr<Run> run_;
};

/// From now on the calling thread sleeps in Request::wait() as long as progress threads can do what is to be done. For
/// a thread that waits on behalf of others, beside a computation: a waiting thread otherwise takes part in the
/// operation, on its own core.
PENSTOCK_API void sleep_in_waits() noexcept;

/// Throws Error(invalid_argument) if no communicator can be made with options(). Local, any thread.
PENSTOCK_API void check_options();

/// Why no communicator can use the tuning table that options() name: its file cannot be read, or holds no table. Empty
/// if one can, or without a table. Local, any thread.
PENSTOCK_API std::string why_no_tuning();

/// An operation that another library runs, such as a collective of MPI: see Comm::start_external. The communicator
/// calls its members one at a time, and destroys it when it is complete or never starts.
class PENSTOCK_API ExternalOperation {
 public:
  ExternalOperation() = default;
  ExternalOperation(const ExternalOperation&) = delete;
  ExternalOperation& operator=(const ExternalOperation&) = delete;
  virtual ~ExternalOperation() = default;
  /// Starts it. Never blocks.
  virtual void start() = 0;
  /// Makes progress. True if it is complete, then it is not called again.
  virtual bool test() = 0;
};

class Persistent;

/// Made from an MPI communicator by <penstock/mpi.hpp>. A handle: copies share the communicator. All ranks call its
/// collectives in the same order, one thread at a time. Requests may complete in any order. A span of a wrong size
/// throws Error(invalid_argument) here and Error(peer_failed) on the other ranks.
class PENSTOCK_API Comm {
 public:
  explicit Comm(std::shared_ptr<comm::State> state);

  int rank() const;
  int size() const;
  const Team& team() const;
  /// The neighbours of all ranks: the Cartesian, graph or distributed graph topology of MPI's communicator. nullptr if
  /// it has none, or one whose sources and destinations do not match. Neighbourhood collectives use it if their
  /// Collective::graph is nullptr.
  const std::shared_ptr<const Graph>& graph() const;
  /// A communicator of the same ranks with an own order of operations, as MPI_Comm_dup makes. Collective.
  Comm duplicate() const;

  /// Sets the algorithm, and unless 0 the segment_bytes, of later calls of `kind` that name none. An empty name lets
  /// Penstock choose again. Local. All ranks must make the same calls of use() between the same operations; if they do
  /// not, the next operation fails with Error(mismatch). Duplicates do not inherit it. Throws Error(invalid_argument)
  /// if `kind` has no such algorithm. An algorithm that does not fit a call fails that call.
  void use(CollectiveKind kind, const std::string& algorithm, std::uint64_t segment_bytes = 0);

  /// Starts any collective. bcast uses `output` alone, barrier neither span. With in_place the rank's own contribution
  /// lies in `output`, where MPI puts it. A rank for which a buffer is not significant in MPI may pass an empty span.
  /// Spans of operations with counts (gatherv, …) may be longer than their blocks need. If the counts of two ranks do
  /// not match, both get Error(mismatch).
  /// With `user` a reduction combines by it, `collective.count` counts its elements, and dtype and op are ignored. It
  /// must compute the same on all ranks. It is kept until the operation is complete.
  /// The algorithm "native", which tuning tables can choose, calls MPI's own collective, and MPI's rules hold: all
  /// ranks use the same form, blocking or not; mismatches are not reported; if a rank fails before it calls MPI, the
  /// others wait until it calls the operation again. At debug level 1 an algorithm of Penstock runs instead.
  Request start(const Collective& collective, ConstBytes input, Bytes output,
                std::shared_ptr<const UserOp> user = nullptr);
  void run(const Collective& collective, ConstBytes input, Bytes output, std::shared_ptr<const UserOp> user = nullptr);
  /// run() of call.collective(), in less time, if an equal call has lately been made. The buffers have the sizes
  /// that it needs. False: run() must be called; nothing has been done.
  bool run_again(const PlainCall& call, const void* send, void* receive);

  /// Collectives that move data, on items of datatypes. Items that are not contiguous are packed here and unpacked by
  /// test() and wait(). The datatypes of the two sides, and of two ranks, may differ if the numbers of bytes match.
  /// `collective.count`, its blocks and its dtype are ignored. In a neighbourhood lists have one entry per destination
  /// (send) or source (receive).
  Request start_items(const Collective& collective, const SendItems& send, const ReceiveItems& receive);
  void run_items(const Collective& collective, const SendItems& send, const ReceiveItems& receive) {
    start_items(collective, send, receive).wait();
  }

  /// Persistent form of any collective: it can be started any number of times on the same buffers. The buffers must
  /// outlive it. Local. Wrong arguments fail when it is started.
  Persistent prepare(const Collective& collective, ConstBytes input, Bytes output,
                     std::shared_ptr<const UserOp> user = nullptr) const;
  Persistent prepare_items(const Collective& collective, const SendItems& send, const ReceiveItems& receive) const;

  /// Starts a plan that all ranks made for the same operation; redistribution uses this. `signature` must be equal on
  /// all ranks. `scratch` is the plan's scratch memory, aligned to 64 bytes; empty: memory of the communicator.
  /// `parts`: of what input and output consist, if they contain other addresses too; empty: of all. Read by start()
  /// alone.
  Request start(std::shared_ptr<const Plan> plan, ConstBytes input, Bytes output, const Arithmetic& arithmetic,
                std::uint64_t signature, Bytes scratch = {}, std::span<const ConstBytes> parts = {});
  /// An operation of another library in the place of the next operation, so that it can neither be started twice nor
  /// meet a plan: it fails on all ranks if their `signature` differs or a rank has failed. It is started once all ranks
  /// have called, in the order of these calls, by the next thread of this process that waits for or tests an operation.
  /// What its members throw fails it on this rank alone.
  Request start_external(std::unique_ptr<ExternalOperation> operation, std::uint64_t signature);
  /// Takes part in the next operation by failing it on all ranks with this message. For a rank that cannot start it.
  void fail_next(const std::string& message) noexcept;

  /// Sets the timeout of operations. An operation that has waited for other ranks this long without progress fails:
  /// here with Error(timed_out), which names the ranks that it waited for, and with Error(peer_failed) on the ranks
  /// that have not completed it. 0, the default: never. Local, any thread. Not for MPI's own collectives.
  void set_timeout(std::chrono::milliseconds timeout) noexcept;

  /// Small values of all ranks, for agreement. Blocking, collective.
  void allgather(ConstBytes mine, Bytes all);
  /// Runs `action` on every rank. If it throws on some ranks, all ranks throw: those ranks their own Error, the others
  /// Error(peer_failed) with the text of the first one. Blocking, collective.
  void agree(const std::function<void()>& action);

  /// Whether any thread of any rank may call this communicator, one at a time. If not, MPI was initialised without
  /// MPI_THREAD_MULTIPLE on some rank; there only the thread that initialised it may. Equal on all ranks, since they
  /// choose algorithms by it.
  bool any_thread() const;

  /// The costs between and inside the nodes of this communicator: those that an earlier job of this user kept for such
  /// hosts, MPI and team (option machine_folder), or else measured now, in about a second, or two on one node.
  /// Collective, blocking, equal on all ranks: rank 0's count. `again`, equal on all ranks: measures in any case.
  /// Nothing else may be in flight.
  MeasuredMachine machine(bool again = false);

  /// The key that a part of a tuning table needs to be used here: one JSON object, see to_json(TuningKey).
  std::string tuning_key() const;
  /// Which algorithm would run for `collective`, and why: one JSON object.
  std::string explain(const Collective& collective) const;
  /// Transport, shared memory, progress threads, and which of them is off, with the reason: one fact per line.
  std::string report() const;

  /// For the library itself.
  comm::State& state() const { return *state_; }

 private:
  std::shared_ptr<comm::State> state_;
};

/// A persistent collective, see Comm::prepare. Keeps the communicator alive, not the buffers.
class PENSTOCK_API Persistent {
 public:
  Persistent(Comm comm, std::function<Request()> start) : comm_(std::move(comm)), start_(std::move(start)) {}
  /// As Comm::start. Its previous request must be complete.
  Request start() const { return start_(); }
  /// In place of start(), see Comm::fail_next.
  void fail_next(const std::string& message) noexcept { comm_.fail_next(message); }

 private:
  Comm comm_;
  std::function<Request()> start_;
};

}  // namespace penstock
