// The operations of a measurement, which all ranks run in the same order.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

#include "engine/engine.hpp"
#include "penstock/collective.hpp"
#include "penstock/plan.hpp"

namespace penstock::measurement {

enum class Purpose : std::uint8_t {
  choose,     ///< nothing is measured if ranks share cores
  show,       ///< measured if it is not known, but not kept for choices if ranks share cores
  show_again  ///< measured in any case
};

/// A rank that cannot go on fails those operations that are left, for which the others wait.
class Operations {
 public:
  explicit Operations(engine::Engine& engine) : engine_(engine) {}
  ~Operations() { fail_left(); }
  Operations(const Operations&) = delete;
  Operations& operator=(const Operations&) = delete;

  /// The first operation, which no rank completes before all have begun it: a rank that fails before needs to fail no
  /// other one. So many follow.
  void begin(const Team& team, int left) {
    left_ += left;
    meet(team);
  }
  /// No others follow.
  void done() { left_ = 0; }
  /// Fails those that follow: this rank does not take part in them.
  void fail_left();
  /// Waits for the end. Returns how many seconds it took.
  double run(const std::shared_ptr<const Plan>& plan, ConstBytes input, Bytes output);
  double run(Plan plan, ConstBytes input, Bytes output) {
    return run(std::make_shared<const Plan>(std::move(plan)), input, output);
  }
  void meet(const Team& team) { run(plan_collective(team, {.kind = CollectiveKind::barrier}), {}, {}); }
  /// From rank 0.
  void tell(const Team& team, Bytes data);

 private:
  engine::Engine& engine_;
  int left_ = 1;
};

template <typename Work>
double seconds_once(Work work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace penstock::measurement
