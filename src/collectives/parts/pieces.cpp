#include "collectives/parts/pieces.hpp"

#include <cmath>

namespace penstock::collectives {

std::uint64_t overlapping_pieces(std::uint64_t bytes, std::uint64_t readers) {
  const Machine::Node node;
  const double copied = static_cast<double>(bytes) * node.copy_seconds_per_byte;
  const double messages = 2 * kLinesOfMessage * node.flag_seconds * static_cast<double>(readers);
  return static_cast<std::uint64_t>(std::max(1LL, std::llround(std::sqrt(copied / messages))));
}

}  // namespace penstock::collectives
