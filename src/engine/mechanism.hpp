// The interface between the engine's core and its mechanisms: the ways of moving and combining data.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/message.hpp"
#include "engine/operation.hpp"
#include "engine/pollable.hpp"

namespace penstock::engine {

/// Runs some kinds of steps. It owns its state of each operation (PerOperation). It knows the core, but no other
/// mechanism. The engine's lock protects all calls.
class Mechanism {
 public:
  Mechanism() = default;
  Mechanism(const Mechanism&) = delete;
  Mechanism& operator=(const Mechanism&) = delete;

  /// Adds the ranks that the operation's steps here wait for; this rank may be among them. The failure detector relies
  /// on it: if a rank is left out and dies, the operation hangs.
  virtual void waits_for(const Operation& operation, std::vector<int>& peers) const = 0;
  /// The operation has failed: drops its state here.
  virtual void cancel(Operation& operation) = 0;

  virtual bool poll() { return false; }                       ///< makes progress; true if something moved
  virtual bool has_work(Caller) const { return false; }       ///< whether poll() would do something
  virtual bool needs_polling(Caller) const { return false; }  ///< whether work can appear without the bell being rung
  virtual bool is_idle() const { return true; }               ///< whether nothing is left that outlives its operation

  virtual void begin(Operation&) {}                                  ///< its steps are about to be issued
  virtual void end(Operation&) {}                                    ///< it has finished
  virtual bool is_touched(const Operation&) const { return false; }  ///< it has failed, but peers still use its memory
  virtual bool has_heard(const Operation&, int) const { return false; }    ///< the peer has sent something for it
  virtual std::uint64_t moved_bytes(const Operation&) const { return 0; }  ///< by steps that are not complete

 protected:
  ~Mechanism() = default;
};

class Worker;

/// A step that a thread runs without the engine's lock. Core queues it (Core::add_work).
struct Work {
  Operation* operation = nullptr;
  StepId step = 0;
  Worker* worker = nullptr;
  ConstBytes from{};          ///< of a computation
  Header::Message message{};  ///< of a read of a peer's memory
};
/// A mechanism that runs steps without the engine's lock.
class Worker {
 public:
  /// Called without the lock. Touches only the memory of the step.
  virtual bool run(const Work& work) = 0;
  /// Called with the lock and the result of run(). Not called if run() threw or the operation has failed.
  virtual void finish(const Work& work, bool result) = 0;

 protected:
  ~Worker() = default;
};

}  // namespace penstock::engine
