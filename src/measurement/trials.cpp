#include "measurement/trials.hpp"

#include <algorithm>
#include <cmath>

namespace penstock::measurement {
namespace {

constexpr std::uint64_t kSegment = 16 << 10;  // of a burst whose messages are not sent together
constexpr std::uint64_t kShortTrialBytes = 256 << 10;

/// The longest message without a handshake: where messages become longer by two latencies.
std::uint64_t eager_limit(const MessageTimes& times, const std::vector<std::pair<int, int>>& one, double latency,
                          double base, double per_byte) {
  std::uint64_t best = kMiB / 4;
  double least = -1;
  for (std::uint64_t limit = 1 << 9; limit <= kMiB / 4; limit *= 2) {
    double error = 0;
    for (std::uint64_t bytes = 1 << 10; bytes <= kMiB / 4; bytes *= 2) {
      const double expected = base + static_cast<double>(bytes) * per_byte + (bytes > limit ? 2 * latency : 0);
      const double ratio = std::log(times.of(Trial::What::bounce, one, bytes) / expected);
      error += ratio * ratio;
    }
    if (least < 0 || error < least) {
      least = error;
      best = limit;
    }
  }
  return best;
}

}  // namespace

int Trial::repeats() const { return bytes <= kShortTrialBytes ? kShortRepeats : kRepeats; }

Parties parties_of(const Team& team) {
  Parties parties;
  std::vector<int> here;
  std::vector<int> there;
  for (int rank = 0; rank < team.size(); ++rank) {
    const std::int32_t node = team.node_of_rank[static_cast<std::size_t>(rank)];
    if (node == team.node_of_rank[0]) here.push_back(rank);
    // Nodes are numbered by first appearance.
    if (node == team.node_of_rank[0] + 1) there.push_back(rank);
  }
  for (std::size_t i = 0; i < std::min(here.size(), there.size()); ++i) parties.between.emplace_back(here[i], there[i]);
  if (here.size() > 1) parties.beside = here[1];
  return parties;
}

Plan plan_of(const Trial& trial, int self, int size) {
  PlanBuilder plan("measurement/machine", self, size);
  for (const auto& [first, second] : trial.pairs) {
    if (self != first && self != second) continue;
    const bool is_first = self == first;
    const int peer = is_first ? second : first;
    const Region from{0, trial.bytes, Buffer::input};
    const Region to{0, trial.bytes, Buffer::output};
    StepId last = PlanBuilder::kNone;
    const auto move = [&](bool outwards, std::uint32_t tag) {
      last = outwards == is_first ? plan.send(from, peer, tag, {last}) : plan.recv(to, peer, tag, {last});
    };
    for (int i = 0; i < trial.count; ++i)
      move(trial.what != Trial::What::bounce || i % 2 == 0, static_cast<std::uint32_t>(i));
    if (trial.what == Trial::What::burst) move(false, static_cast<std::uint32_t>(trial.count));
  }
  return std::move(plan).finish(trial.bytes, trial.bytes);
}

std::vector<Trial> trials_of(const Parties& parties) {
  std::vector<Trial> trials;
  // Twice, with more and fewer messages: the difference has no start and no end of an operation.
  const auto add = [&](Trial::What what, const std::vector<std::pair<int, int>>& pairs, std::uint64_t bytes,
                       int fewer) {
    trials.push_back({what, pairs, bytes, fewer});
    trials.push_back({what, pairs, bytes, 3 * fewer});
  };
  if (!parties.between.empty()) {
    const std::vector<std::pair<int, int>> one = {parties.between[0]};
    add(Trial::What::bounce, one, kShort, 4);
    add(Trial::What::hand_over, one, kShort, 8);
    add(Trial::What::burst, one, kShort, 8);
    add(Trial::What::burst, one, kSegment, 8);
    for (std::uint64_t bytes = 1 << 10; bytes <= kMiB / 4; bytes *= 2) add(Trial::What::bounce, one, bytes, 4);
    add(Trial::What::bounce, one, kMiB, 2);
    add(Trial::What::bounce, one, 2 * kMiB, 2);
    if (parties.between.size() > 1) {
      add(Trial::What::bounce, parties.between, kMiB, 2);
      add(Trial::What::bounce, parties.between, 2 * kMiB, 2);
    }
  }
  if (parties.beside >= 0) {
    const std::vector<std::pair<int, int>> beside = {{0, parties.beside}};
    add(Trial::What::bounce, beside, kShort, 8);
    for (const std::uint64_t bytes : {kMiB / 256, kMiB / 128, kMiB / 16, kMiB, 2 * kMiB})
      add(Trial::What::bounce, beside, bytes, 10);
  }
  return trials;
}

MessageTimes::MessageTimes(const std::vector<Trial>& trials, const std::vector<double>& seconds) {
  for (std::size_t i = 0; i + 1 < trials.size(); i += 2) {
    const double difference = (seconds[i + 1] - seconds[i]) / (trials[i + 1].count - trials[i].count);
    // On a busy machine the shorter run can take as long as the longer one.
    const double most = seconds[i + 1] / trials[i + 1].count;
    each_[{trials[i].what, trials[i].pairs, trials[i].bytes}] = std::clamp(difference, most / 2, most);
  }
}

double seconds_per_byte(double once, double twice, std::uint64_t bytes) {
  return std::max((twice - once) / static_cast<double>(bytes), twice / 2 / static_cast<double>(2 * bytes));
}

void between_nodes(const MessageTimes& times, const Parties& parties, Machine::Network& network) {
  const std::vector<std::pair<int, int>> one = {parties.between[0]};
  const double hop = times.of(Trial::What::bounce, one, kShort);
  const auto per_byte = [&](const std::vector<std::pair<int, int>>& pairs) {
    return seconds_per_byte(times.of(Trial::What::bounce, pairs, kMiB), times.of(Trial::What::bounce, pairs, 2 * kMiB),
                            kMiB);
  };
  network.process_seconds_per_byte = per_byte(one);
  network.seconds_per_byte = network.process_seconds_per_byte;
  if (parties.between.size() > 1)
    network.seconds_per_byte = std::min(per_byte(parties.between) / static_cast<double>(parties.between.size()),
                                        network.process_seconds_per_byte);
  // Short messages of a burst are often sent together. Longer ones show what each costs besides its bytes.
  const double segment =
      times.of(Trial::What::burst, one, kSegment) - static_cast<double>(kSegment) * network.process_seconds_per_byte;
  network.gap_seconds = std::min(std::max(times.of(Trial::What::burst, one, kShort), segment), hop / 2);
  network.overhead_seconds = std::min(times.of(Trial::What::hand_over, one, kShort), (hop - network.gap_seconds) / 3);
  network.latency_seconds = hop - 2 * network.overhead_seconds - network.gap_seconds;
  network.latency_seconds = std::max(network.latency_seconds, hop / 10);
  network.eager_bytes = eager_limit(times, one, network.latency_seconds, hop, network.process_seconds_per_byte);
}

void inside_a_node(const MessageTimes& times, const Parties& parties, bool single_copy, std::uint64_t message_bytes,
                   Machine::Node& node) {
  const std::vector<std::pair<int, int>> pair = {{0, parties.beside}};
  const auto hop = [&](std::uint64_t bytes) { return times.of(Trial::What::bounce, pair, bytes); };
  node.flag_seconds = hop(kShort);
  // Copied in and out; no faster than a core copies alone, whatever the noise.
  const double alone = node.copy_seconds_per_byte;
  node.copy_seconds_per_byte =
      std::max((hop(kMiB / 128) - hop(kMiB / 256)) / static_cast<double>(2 * (kMiB / 128 - kMiB / 256)), alone);
  node.message_bytes = message_bytes;
  if (!single_copy) return;
  const double call = node.remote_read_seconds;  // on a core alone
  node.remote_read_seconds_per_byte = std::max((hop(2 * kMiB) - hop(kMiB)) / static_cast<double>(kMiB), alone);
  node.remote_read_seconds = std::max(
      hop(kMiB / 16) - static_cast<double>(kMiB / 16) * node.remote_read_seconds_per_byte - node.flag_seconds, call);
}

}  // namespace penstock::measurement
