// The operations of a communicator: those that are not over on this rank, and the signatures of recent ones that are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "engine/operation.hpp"
#include "engine/pools.hpp"

namespace penstock::engine {

class Segment;

/// A window over the sequence of operations. All operations before base() are over here, and RankSlot tells the node
/// so.
class OperationTable {
 public:
  struct Past {
    std::uint64_t sequence = ~std::uint64_t{0};
    std::uint64_t signature = 0;
    bool failed = false;
    bool failed_elsewhere = false;
    std::shared_ptr<const RemoteTraffic> traffic{};  ///< of what was completed
  };

  explicit OperationTable(const Segment* segment) : segment_(segment) {}

  std::uint64_t base() const { return base_; }
  std::uint64_t next() const { return next_; }  ///< the next one that this rank starts
  bool has_unfinished() const { return unfinished_ > 0; }
  bool is_empty() const { return window_.empty(); }

  /// Makes the record if the operation has none.
  Operation& at(std::uint64_t sequence);
  Operation* find(std::uint64_t sequence) const;  ///< nullptr if it has no record, or is before base()
  bool is_over(std::uint64_t sequence) const {
    const Operation* const found = find(sequence);
    return found != nullptr ? found->is_finished() : sequence < base_;
  }
  /// The operation, if its steps are being issued and it may still be completed; or nullptr.
  Operation* find_running(std::uint64_t sequence) const {
    Operation* const found = find(sequence);
    return found != nullptr && found->is_running() && !found->has_failed() && !found->is_finished() ? found : nullptr;
  }
  /// In order. The function may finish operations.
  template <typename Function>
  void for_each_unfinished(Function function) const {
    for (std::uint64_t sequence = base_; sequence < next_; ++sequence)
      if (Operation* const each = find(sequence); each != nullptr && !each->is_finished()) function(*each);
  }
  void start(Operation& next);
  /// start() and the end of the operation at once, if the window is empty and can_run_through().
  bool can_run_through() const { return next_ % kPasts < past_.size(); }
  void run_through(std::uint64_t signature);
  /// The same for an operation with a record, the only one in the window. start() was not called.
  void run_through(Operation& only);
  void finish(Operation& operation);
  void advance();
  void drop(Operation& operation);  ///< an owner is gone

  /// An operation that was completed here has failed elsewhere; false if that was known, or it is forgotten.
  bool note_failed_elsewhere(std::uint64_t sequence) {
    const std::size_t place = sequence % kPasts;
    return place < past_.size() && past_[place].sequence == sequence && !past_[place].failed &&
           !std::exchange(past_[place].failed_elsewhere, true);
  }

  const Past& past(std::uint64_t sequence) const {
    static const Past none;
    return sequence % kPasts < past_.size() ? past_[sequence % kPasts] : none;
  }

  /// User operations (UserOp) whose last operation is over. Destroying them may take a lock of the caller, so it is
  /// done without the engine's lock.
  bool has_dropped() const { return !dropped_.empty(); }
  std::vector<std::shared_ptr<const UserOp>> take_dropped() { return std::exchange(dropped_, {}); }

 private:
  static constexpr std::size_t kPasts = 1024;

  void make_room(std::uint64_t sequence);
  void remember(const Operation& over);
  void publish() const;

  const Segment* const segment_;  ///< or nullptr
  std::uint64_t next_ = 0;
  std::uint64_t base_ = 0;
  std::size_t unfinished_ = 0;
  Fifo<Operation*> window_;  ///< from base_ on; nullptr: no record yet
  std::vector<std::unique_ptr<Operation>> records_;
  std::vector<Operation*> idle_;
  /// By sequence, modulo kPasts. It grows with the sequence: a communicator that is hardly used takes little memory.
  std::vector<Past> past_;
  std::vector<std::shared_ptr<const UserOp>> dropped_;
};

}  // namespace penstock::engine
