// At debug level 1 the ranks tell each other what they call, so that a difference is named and not only noticed.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.hpp"
#include "penstock/collective.hpp"

namespace penstock::comm {

/// What a rank says about its call: words of one length on all ranks.
std::vector<std::uint64_t> record_of(const Collective& normalized, int size);
/// Of a plan from outside of the table of algorithms, and of a call that has failed on this rank.
std::vector<std::uint64_t> record_of_plan(std::uint64_t signature, int size);
std::vector<std::uint64_t> record_of_failure(int size);

/// What does not fit together among the records of all ranks, one after another: "bcast: root is 0 on the ranks 0 and
/// 2, 1 on rank 1". Empty where everything does, or where a rank has failed by itself.
std::string disagreement(const std::vector<std::uint64_t>& records, int size);

/// The records on their way. Kept until the operation is complete. Thread-safe.
class Agreement {
 public:
  /// Starts the exchange, an operation of the communicator like any other.
  Agreement(engine::Engine& engine, std::vector<std::uint64_t> mine);
  bool done() const noexcept { return run_->done(); }
  bool test() { return run_->test(); }
  /// Waits, and throws Error(mismatch), once, where the ranks disagree: the same on all ranks.
  void wait();

 private:
  std::vector<std::uint64_t> mine_;
  std::vector<std::uint64_t> all_;
  int size_;
  std::atomic<bool> told_{false};
  std::shared_ptr<engine::Run> run_;  // last: its destructor waits for those who write to `all_`
};

/// At debug level 1 every operation of a communicator, also one that has failed here, begins by an agreement.
class Agreements {
 public:
  Agreements(engine::Engine& engine, bool wanted) : engine_(engine), wanted_(wanted) {}

  /// nullptr below debug level 1, where `record()` is not asked for.
  template <class Record>
  std::shared_ptr<Agreement> begin(const Record& record) {
    return wanted_ ? std::make_shared<Agreement>(engine_, record()) : nullptr;
  }
  /// For an operation that has failed here.
  void begin_failed() noexcept;

 private:
  engine::Engine& engine_;
  bool wanted_;
  std::vector<std::shared_ptr<Agreement>> unwatched_;  ///< of calls that have failed here
};

}  // namespace penstock::comm
