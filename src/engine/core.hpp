// The core of the engine: the operations, which of their steps may run, and how operations fail.
#pragma once

#include <array>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine_lock.hpp"
#include "engine/failure_detector.hpp"
#include "engine/failures.hpp"
#include "engine/mechanism.hpp"
#include "engine/message.hpp"
#include "engine/node.hpp"
#include "engine/notices.hpp"
#include "engine/operation_table.hpp"
#include "engine/pools.hpp"

namespace penstock::engine {

/// The engine as mechanisms see it. The engine's lock protects it.
class Core {
 public:
  Core(std::shared_ptr<Transport> by, const EngineOptions& given, Node on);
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  bool is_local(int peer) const { return node.local_rank[static_cast<std::size_t>(peer)] >= 0; }
  /// Of this node, or this rank: no messages of the transport.
  bool is_near(int peer) const { return peer == rank || is_local(peer); }
  std::uint32_t local(int peer) const {
    return static_cast<std::uint32_t>(node.local_rank[static_cast<std::size_t>(peer)]);
  }
  /// This and the next two: only if the node has a shared-memory segment.
  RankSlot& slot(std::uint32_t local_rank) const { return node.segment->slot(local_rank); }
  std::uint32_t self() const { return node.segment->local_rank(); }
  RankSlot& own_slot() const { return slot(self()); }
  bool may_call_transport() const {
    return has_remote && !transport_broken && (caller == Caller::application || transport->any_thread());
  }
  /// All ranks of the node have completed all operations before this sequence. Dead ranks count: what they have not
  /// completed fails (FailureDetector::find_gone_in), and needs nothing that they hold.
  std::uint64_t completed_by_all() const;
  /// Adds to `peers` the ranks of the node whose published counter `reached` is the smallest, if the operation
  /// waits until that counter has reached its sequence.
  void add_last(std::atomic<std::uint64_t> RankSlot::*reached, const Operation& operation,
                std::vector<int>& peers) const;
  /// The offset of the operation's shared memory in this rank's ring.
  std::uint64_t shared_offset(const Operation& operation) const {
    return operation.shared == nullptr ? 0 : static_cast<std::uint64_t>(operation.shared - node.segment->ring(self()));
  }
  std::string describe(const Operation& operation) const;
  Header header(std::uint64_t sequence, MessageKind kind) const;
  Header header_for(const Operation& operation, MessageKind kind, std::uint32_t tag = 0) const;

  void complete(Operation& operation, StepId step) {
    --operation.steps_left;
    for (const StepId next : operation.call.compiled->dependents(step))
      if (--operation.waiting_for[next] == 0) ready_.push({&operation, next});
    if (operation.steps_left == 0) finish_if_over(operation);
  }
  /// Starts the steps that depend on none. The operation has a plan.
  void launch(Operation& operation);
  /// The same for an operation of which the fast path has completed some steps and posted others (bits). Unless
  /// `goes_on`, starts no other: the caller fails the operation.
  void launch_rest(Operation& operation, std::uint32_t has_run, std::uint32_t is_posted, bool goes_on);
  /// Issues all steps that are ready.
  void drain();
  /// Ends the operation if its steps are complete or it has failed, and nothing works on it any more.
  void finish_if_over(Operation& operation);
  /// hold() keeps the operation from finishing until release().
  void hold(Operation& operation) { ++operation.in_flight; }
  void release(Operation& operation) {
    --operation.in_flight;
    finish_if_over(operation);
  }
  /// Runs the function for an operation that is held, then release(). If it throws, the operation fails.
  template <typename Function>
  void release_after(Operation& operation, Function function) {
    try {
      function();
    } catch (...) {
      fail(operation, std::current_exception(), "there is not enough memory to go on");
    }
    release(operation);
  }

  void add_work(Lane lane, const Work& work) { work_[static_cast<std::size_t>(lane)].push(work); }
  bool has_work(Lane lane) const { return !work_[static_cast<std::size_t>(lane)].empty(); }
  bool run_work(Locked& lock, Lane lane);
  /// Wakes threads that sleep in wait().
  void ring_waiting() noexcept {
    own_bell.ring();
    own_asleep_bell.ring();
  }
  /// Runs the function without the lock. If it throws, the operation fails. Returns false if the operation has failed.
  template <typename Function>
  bool run_unlocked(Operation& operation, Locked& lock, Function function) {
    ++operation.executing;
    const Caller own = caller;
    lock.unlock();
    std::exception_ptr thrown;
    try {
      function();
    } catch (...) {
      thrown = std::current_exception();
    }
    lock.lock();
    caller = own;
    --operation.executing;
    if (thrown) fail(operation, thrown, "a step threw an exception");
    if (!operation.has_failed()) return true;
    finish_if_over(operation);
    return false;
  }

  /// Fails the operation here and on the other ranks. A mismatch has a `partner`: the other rank concerned.
  void fail(Operation& operation, const Error& error, bool tell_all = true, int partner = -1);
  /// The same for any exception.
  void fail(Operation& operation, const std::exception_ptr& thrown, const char* what);
  void fail_mismatch(Operation& operation, int peer, const std::string& what);
  static constexpr const char* kOtherCall = "they called different operations, or with different arguments";
  /// Why it is a mismatch. std::nullopt: more than was expected.
  std::string other_length(int peer, std::optional<std::uint64_t> sent_bytes, std::uint64_t expected_bytes) const;
  void fail_all(const Error& error) noexcept;

  // Calls from one mechanism to others.
  /// Why an operation cannot match if a flag of the peer has told another length than this rank expects; or empty.
  virtual std::string differing_lengths(const Operation& operation, int peer) const = 0;
  /// A notice has come of an operation, which may have been completed here.
  virtual void has_failed_elsewhere(std::uint64_t sequence) = 0;
  /// A message for a step or an operation has come.
  virtual void arrive(const Header& header, ConstBytes payload) = 0;
  /// Gives a message to a step that is ready for it.
  virtual void deliver(Operation& operation, StepId step, const Header& header, ConstBytes payload) = 0;
  /// Sends a control message. Copies the payload. `owner` does not finish before the message has left.
  virtual void send(int peer, const Header& header, ConstBytes payload, Operation* owner) = 0;

  const Node node;
  const EngineOptions options;
  const int rank;
  const bool has_remote;    ///< ranks of other nodes
  const bool shares_cores;  ///< the node has more ranks than cores
  std::shared_ptr<Transport> transport;
  bool transport_broken = false;
  Caller caller = Caller::application;  ///< of the thread that holds the lock
  /// That thread starts an operation and then computes: sending long messages is left to progress threads.
  bool leaves_to_threads = false;
  BufferPool buffers;
  OperationTable operations;
  FailureDetector detector;
  const Notices notices;
  Doorbell& own_bell;
  Doorbell own_asleep_bell;  ///< see Pollable::asleep_bell

 protected:
  ~Core() = default;

  virtual void issue(Operation& operation, StepId step) = 0;
  // Call all mechanisms.
  virtual void begin(Operation& operation) = 0;
  virtual void end(Operation& operation) = 0;
  virtual void cancel(Operation& operation) = 0;
  virtual bool is_touched(const Operation& operation) const = 0;

 private:
  struct Ready {
    Operation* operation = nullptr;
    StepId step = 0;
  };
  void run_ready(const Ready& ready);

  Doorbell private_bell_;  ///< without a segment
  Fifo<Ready> ready_;
  std::array<Fifo<Work>, 2> work_;  ///< by lane
};

}  // namespace penstock::engine
