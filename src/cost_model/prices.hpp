// What single steps cost on a Machine. The simulation of plans and the costs of algorithms share these terms.
#pragma once

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstdint>

#include "penstock/cost_model.hpp"

namespace penstock {

// A Cost adds up like a time. The later of two comes with the terms of its own path.
inline Cost& operator+=(Cost& a, const Cost& b) {
  a.seconds += b.seconds;
  for (std::size_t i = 0; i < kCostTerms; ++i) a.terms[i] += b.terms[i];
  return a;
}
inline Cost operator+(Cost a, const Cost& b) { return a += b; }
inline Cost operator*(double factor, Cost a) {
  a.seconds *= factor;
  for (double& term : a.terms) term *= factor;
  return a;
}
inline Cost operator-(const Cost& a, const Cost& b) { return a + -1.0 * b; }
inline bool operator<(const Cost& a, const Cost& b) { return a.seconds < b.seconds; }
inline bool operator>(const Cost& a, const Cost& b) { return b < a; }
inline double seconds_of(double seconds) { return seconds; }
inline double seconds_of(const Cost& cost) { return cost.seconds; }

namespace cost_model {

/// Time: double, the seconds alone, or Cost. `far`: between two domains of a node.
template <class Time>
struct Prices {
  const Machine& machine;

  static Time of(double seconds, CostTerm term) {
    if constexpr (std::same_as<Time, double>) {
      return seconds;
    } else {
      Time time{.seconds = seconds};
      time.terms[static_cast<std::size_t>(term)] = seconds;
      return time;
    }
  }

  Time latency() const { return of(machine.network.latency_seconds, CostTerm::latency); }
  Time overhead() const { return of(machine.network.overhead_seconds, CostTerm::overhead); }
  Time flag() const { return of(machine.node.flag_seconds, CostTerm::synchronization); }

  double uncached(std::uint64_t bytes) const {
    return bytes > machine.node.cache_bytes ? machine.node.uncached_factor : 1;
  }
  Time copy(std::uint64_t bytes, bool far = false) const {
    const double per_byte = far ? machine.node.far_copy_seconds_per_byte : machine.node.copy_seconds_per_byte;
    return of(static_cast<double>(bytes) * per_byte * uncached(bytes), CostTerm::copy);
  }
  Time combine(std::uint64_t bytes) const {
    return of(static_cast<double>(bytes) * machine.node.combine_seconds_per_byte * uncached(bytes), CostTerm::combine);
  }
  /// Sorts `count` contributions of `bytes` in all, element by element, and combines them.
  Time combine_sorted(std::uint64_t bytes, std::uint64_t count) const {
    return std::max(1, static_cast<int>(std::bit_width(count) - 1)) * combine(bytes);
  }
  Time remote_read(std::uint64_t bytes) const {
    return of(machine.node.remote_read_seconds, CostTerm::synchronization) +
           of(static_cast<double>(bytes) * machine.node.remote_read_seconds_per_byte * uncached(bytes), CostTerm::copy);
  }
  /// A `compute` step. Blocks of a transform can lie apart at one end, but the other end is dense.
  Time compute(const Step& step, bool far = false) const {
    switch (step.computation) {
      case Computation::copy: return copy(step.to.size_bytes, far);
      case Computation::reduce: return combine(step.to.size_bytes);
      case Computation::reduce_sorted:
        return combine_sorted(step.from.size_bytes, step.from.size_bytes / step.to.size_bytes);
      case Computation::transform: return copy(std::min(step.from.size_bytes, step.to.size_bytes), far);
    }
    return {};
  }
  /// Reads each source but the first, which is combined with in place, and writes each target. Each is a system call:
  /// without it, tasks would seem faster than flags for a few bytes.
  Time task(std::uint64_t bytes, std::size_t sources, std::size_t targets) const {
    return of(machine.node.task_seconds, CostTerm::synchronization) +
           static_cast<double>(sources + targets - 1) * remote_read(bytes) +
           static_cast<double>(sources - 1) * combine(bytes);
  }

  /// How long a message between nodes keeps a link, or the injection of its process.
  Time on_link(std::uint64_t bytes) const { return on(bytes, machine.network.seconds_per_byte); }
  Time on_process(std::uint64_t bytes) const { return on(bytes, machine.network.process_seconds_per_byte); }
  bool is_eager(std::uint64_t bytes) const { return bytes <= machine.network.eager_bytes; }
  /// Whether the receiver of a message inside a node reads it from the sender's memory.
  bool is_read(std::uint64_t bytes, bool single_copy) const {
    return single_copy && bytes > machine.node.message_bytes;
  }

 private:
  Time on(std::uint64_t bytes, double per_byte) const {
    return of(machine.network.gap_seconds + static_cast<double>(bytes) * per_byte, CostTerm::link);
  }
};

}  // namespace cost_model
}  // namespace penstock
