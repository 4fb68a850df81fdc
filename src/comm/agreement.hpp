// At debug level 1 the ranks exchange a record of each call, so that errors name the arguments that differ.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.hpp"
#include "penstock/collective.hpp"

namespace penstock::comm {

/// The record of a rank's call: words, of equal number on all ranks. In large jobs their number does not grow with the
/// ranks: a digest stands for the counts.
std::vector<std::uint64_t> record_of(const Collective& normalized, int rank, int size);
/// The record of a plan that is not a collective, and of a call that has failed on this rank.
std::vector<std::uint64_t> record_of_plan(std::uint64_t signature, int size);
std::vector<std::uint64_t> record_of_failure(int size);

/// How the records of all ranks differ: "bcast: root is 0 on the ranks 0 and 2, 1 on rank 1". Empty if they match, or
/// if a rank has failed. `records` has those of all ranks, one after another.
std::string disagreement(const std::vector<std::uint64_t>& records, int size);

/// The exchange of records for one operation. It lives until the operation is complete. Thread-safe.
class Agreement {
 public:
  /// Starts the exchange, which is an operation of the communicator.
  Agreement(engine::Engine& engine, std::vector<std::uint64_t> mine);
  bool done() const noexcept { return run_->done(); }
  bool test() { return run_->test(); }
  /// Waits. If the records differ, throws Error(mismatch), once, with the same text on all ranks.
  void wait();

 private:
  std::vector<std::uint64_t> mine_;
  std::vector<std::uint64_t> all_;
  int size_;
  std::atomic<bool> told_{false};
  std::shared_ptr<engine::Run> run_;  // the last member: its destructor waits until nothing writes to `all_`
};

/// The agreements of a communicator. At debug level 1 every operation begins with one, even if it has failed here.
class Agreements {
 public:
  Agreements(engine::Engine& engine, bool wanted) : engine_(engine), wanted_(wanted) {}

  /// Starts an agreement on the result of `record()`. Below debug level 1 returns nullptr and does not call record().
  template <class Record>
  std::shared_ptr<Agreement> begin(const Record& record) {
    return wanted_ ? std::make_shared<Agreement>(engine_, record()) : nullptr;
  }
  /// Starts the agreement of an operation that has failed here.
  void begin_failed() noexcept;

 private:
  engine::Engine& engine_;
  bool wanted_;
  std::vector<std::shared_ptr<Agreement>> unwatched_;  ///< of calls that have failed here; nobody waits for them
};

}  // namespace penstock::comm
