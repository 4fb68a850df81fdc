// What single steps cost on a Machine. The simulation of plans and the costs of algorithms share these terms.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "penstock/cost_model.hpp"

namespace penstock::plan {

/// `far`: between two domains of a node.
struct Prices {
  const Machine& machine;

  double uncached(std::uint64_t bytes) const {
    return bytes > machine.node.cache_bytes ? machine.node.uncached_factor : 1;
  }
  double copy(std::uint64_t bytes, bool far = false) const {
    const double per_byte = far ? machine.node.far_copy_seconds_per_byte : machine.node.copy_seconds_per_byte;
    return static_cast<double>(bytes) * per_byte * uncached(bytes);
  }
  double combine(std::uint64_t bytes) const {
    return static_cast<double>(bytes) * machine.node.combine_seconds_per_byte * uncached(bytes);
  }
  /// Sorts `count` contributions of `bytes` in all, element by element, and combines them.
  double combine_sorted(std::uint64_t bytes, std::uint64_t count) const {
    return combine(bytes) * std::max(1, static_cast<int>(std::bit_width(count) - 1));
  }
  double remote_read(std::uint64_t bytes) const {
    return machine.node.remote_read_seconds +
           static_cast<double>(bytes) * machine.node.remote_read_seconds_per_byte * uncached(bytes);
  }
  /// Reads each source but the first, which is combined with in place, and writes each target. Each is a system call:
  /// without it, tasks would seem faster than flags for a few bytes.
  double task(std::uint64_t bytes, std::size_t sources, std::size_t targets) const {
    const auto moved = static_cast<double>(sources + targets - 1);
    return machine.node.task_seconds + moved * remote_read(bytes) + static_cast<double>(sources - 1) * combine(bytes);
  }

  /// How long a message between nodes keeps a link, or the injection of its process.
  double on_link(std::uint64_t bytes) const {
    return std::max(machine.network.gap_seconds, static_cast<double>(bytes) * machine.network.seconds_per_byte);
  }
  double on_process(std::uint64_t bytes) const {
    return std::max(machine.network.gap_seconds, static_cast<double>(bytes) * machine.network.process_seconds_per_byte);
  }
  bool is_eager(std::uint64_t bytes) const { return bytes <= machine.network.eager_bytes; }
  /// Whether the receiver of a message inside a node reads it from the sender's memory.
  bool is_read(std::uint64_t bytes, bool single_copy) const {
    return single_copy && bytes > machine.node.message_bytes;
  }
};

}  // namespace penstock::plan
