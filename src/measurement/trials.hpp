// The messages by whose times the costs of a machine are measured.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "penstock/cost_model.hpp"
#include "penstock/plan.hpp"

namespace penstock::measurement {

inline constexpr std::uint64_t kShort = 8;
inline constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
inline constexpr int kRepeats = 3;
/// Other processes interrupt a rank for milliseconds. Of many short trials some are not interrupted.
inline constexpr int kShortRepeats = 8;

/// Who takes part: the same on all ranks.
struct Parties {
  std::vector<std::pair<int, int>> between;  ///< ranks of two nodes; the first one is of rank 0's node
  int beside = -1;                           ///< a rank on rank 0's node
};

Parties parties_of(const Team& team);

/// One thing that rank 0 times.
struct Trial {
  enum class What : std::uint8_t {
    bounce,    ///< a message goes there and back: `count` hops
    burst,     ///< `count` messages one way, then one back
    hand_over  ///< `count` messages one way: until rank 0 has handed them over
  };
  What what;
  std::vector<std::pair<int, int>> pairs;  ///< at the same time
  std::uint64_t bytes;
  int count;

  int repeats() const;
};

/// All trials, each twice: with more and with fewer messages.
std::vector<Trial> trials_of(const Parties& parties);
Plan plan_of(const Trial& trial, int self, int size);

/// Seconds of one message, by what, pairs and length.
class MessageTimes {
 public:
  /// `seconds`: how long each trial took.
  MessageTimes(const std::vector<Trial>& trials, const std::vector<double>& seconds);
  double of(Trial::What what, const std::vector<std::pair<int, int>>& pairs, std::uint64_t bytes) const {
    return each_.at({what, pairs, bytes});
  }

 private:
  std::map<std::tuple<Trial::What, std::vector<std::pair<int, int>>, std::uint64_t>, double> each_;
};

/// Set what they are named after, from the times of messages.
void between_nodes(const MessageTimes& times, const Parties& parties, Machine::Network& network);
/// `node` has what one core does alone. `message_bytes`: see Machine::Node.
void inside_a_node(const MessageTimes& times, const Parties& parties, bool single_copy, std::uint64_t message_bytes,
                   Machine::Node& node);

/// Of messages, from the seconds that one of `bytes` and one of twice as many take. On a busy host the longer one can
/// seem the faster one: never less than half of what its bytes took on average.
double seconds_per_byte(double once, double twice, std::uint64_t bytes);

}  // namespace penstock::measurement
