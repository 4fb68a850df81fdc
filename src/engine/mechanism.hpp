// What every way of moving and combining data owes to the engine.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/operation.hpp"
#include "engine/progress.hpp"

namespace penstock::engine {

/// One way in which steps are done. It owns what it knows of each operation, and knows the core, but no other
/// mechanism. All calls are under the engine's lock.
class Mechanism {
 public:
  Mechanism() = default;
  Mechanism(const Mechanism&) = delete;
  Mechanism& operator=(const Mechanism&) = delete;

  /// Adds the ranks that have to do something before what the operation has here can go on; this rank may be among
  /// them. A rank that is forgotten here is waited for in vain when it dies.
  virtual void waits_for(const Operation& operation, std::vector<int>& peers) const = 0;
  /// The operation has failed: forgets all that it has here.
  virtual void cancel(Operation& operation) = 0;

  virtual bool poll() { return false; }                       ///< does what can be done now; true when something moved
  virtual bool has_work(Caller) const { return false; }       ///< poll() would do something
  virtual bool needs_polling(Caller) const { return false; }  ///< something may happen without the bell
  virtual bool is_idle() const { return true; }               ///< nothing is left that outlives its operation

  virtual void begin(Operation&) {}                                  ///< its steps will be issued
  virtual void end(Operation&) {}                                    ///< it has finished
  virtual bool is_touched(const Operation&) const { return false; }  ///< others work on its memory although it failed
  virtual void give_up(std::uint32_t) {}                             ///< the local rank has gone
  virtual bool has_heard(const Operation&, int) const { return false; }    ///< of this peer in this operation
  virtual std::uint64_t moved_bytes(const Operation&) const { return 0; }  ///< of steps that are not complete

 protected:
  ~Mechanism() = default;
};

/// Work for a thread outside of the lock.
class Worker;
struct Work {
  Operation* operation = nullptr;
  StepId step = 0;
  std::uint32_t transfer = 0;  ///< of the sender, where that waits for the end
  std::uint64_t address = 0;   ///< of what is read, in the peer's process or here
  Worker* worker = nullptr;
};
class Worker {
 public:
  virtual bool run(const Work& work) = 0;                  ///< without the lock
  virtual void finish(const Work& work, bool result) = 0;  ///< unless it threw, or the operation has failed meanwhile

 protected:
  ~Worker() = default;
};

}  // namespace penstock::engine
