#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <mutex>
#include <span>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "base/hash.hpp"
#include "collectives/choose/defaults.hpp"
#include "collectives/choose/row_times.hpp"
#include "collectives/cost/costs.hpp"
#include "collectives/parts/arguments.hpp"
#include "collectives/parts/group.hpp"
#include "collectives/parts/leaders.hpp"
#include "collectives/parts/levels.hpp"
#include "cost_model/prices.hpp"
#include "penstock/choice_by_cost.hpp"

namespace penstock {

namespace {

using collectives::cost::NodeSizes;

constexpr double kGain = 0.9;                // estimates are within a third, most within a tenth; times within a tenth
constexpr unsigned kClassesPerDoubling = 4;  // of lengths
/// Of pipelines, besides their own: a segment on its way keeps each link of a tree for its bytes. As long as a shorter
/// one costs less.
constexpr std::array<std::uint64_t, 4> kShorterSegments = {collectives::kEagerBytes / 2, collectives::kEagerBytes / 4,
                                                           collectives::kEagerBytes / 8, collectives::kEagerBytes / 16};

bool has_choice(CollectiveKind kind) {
  return kind == CollectiveKind::bcast || kind == CollectiveKind::reduce || kind == CollectiveKind::allreduce ||
         kind == CollectiveKind::allgather || kind == CollectiveKind::alltoall ||
         kind == CollectiveKind::reduce_scatter_block;
}

/// Compositions over two levels, and those among all ranks that have an estimate.
bool is_candidate(const Algorithm& row) {
  if (row.kind == CollectiveKind::reduce_scatter_block) return row.name != "pairwise";
  return row.kind == CollectiveKind::allgather || row.kind == CollectiveKind::alltoall ||
         (row.kind == CollectiveKind::allreduce && row.name == "ring") || row.name == "chain" ||
         collectives::levels_row(row.name) != nullptr || row.name.starts_with("leader_") ||
         row.name.starts_with("multi_leader");
}

/// Several leaders of each node. Of a node of one rank there is one.
bool has_several_leaders(const Algorithm& row) {
  return row.kind == CollectiveKind::allreduce && row.name.starts_with("multi_leader") &&
         row.name != "multi_leader_pipeline";
}

/// Exchanges between nodes, of short messages.
bool has_radix(const Algorithm& row) {
  return row.kind == CollectiveKind::barrier || row.name.ends_with("leader_multiplying");
}

/// The class of a length: its highest bit and the next two.
std::uint64_t class_of(std::uint64_t bytes) {
  const auto high = static_cast<unsigned>(std::bit_width(bytes)) - 1;
  if (high < 2) return bytes;
  return std::uint64_t{high} * kClassesPerDoubling + (bytes >> (high - 2)) % kClassesPerDoubling;
}
/// The shortest length of the class of `bytes`.
std::uint64_t shortest_alike(std::uint64_t bytes) {
  const auto high = static_cast<unsigned>(std::bit_width(bytes)) - 1;
  return high < 2 ? bytes : bytes >> (high - 2) << (high - 2);
}

/// Stands for all lengths of its class.
Collective of_class(const Collective& collective) {
  Collective alike = collective;
  const std::uint64_t item_bytes = collective.item_bytes();
  if (collective.count > 0)
    alike.count = std::max<std::uint64_t>(1, shortest_alike(collective.count * item_bytes) / item_bytes);
  return alike;
}

/// Between nodes, with counts that all ranks know: the operation without them, if no block is longer than twice the
/// mean. Rounds take as long as the longest of their blocks.
std::optional<Collective> without_counts(const Team& team, const Collective& collective) {
  if ((collective.kind != CollectiveKind::reduce_scatter && collective.kind != CollectiveKind::allgatherv) ||
      collectives::node_count(team) < 2)
    return std::nullopt;
  Collective alike = collective;
  alike.kind = collective.kind == CollectiveKind::reduce_scatter ? CollectiveKind::reduce_scatter_block
                                                                 : CollectiveKind::allgather;
  alike.receive = {};
  const auto size = static_cast<std::uint64_t>(team.size());
  alike.count = (collectives::all_elements(team, collective) + size - 1) / size;
  const bool are_alike =
      std::ranges::all_of(collective.receive.counts, [&](std::uint64_t count) { return count <= 2 * alike.count; });
  return are_alike ? std::optional(std::move(alike)) : std::nullopt;
}

std::string microseconds(double seconds) {
  const auto tenths = static_cast<std::uint64_t>(std::llround(seconds * 1e7));
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " us";
}

/// What combining and spreading inside the nodes takes at least: the work of a leader, or of all cores if they share
/// tasks.
struct InsideNodes {
  double up = 0;
  double down = 0;
  bool are_shared = false;
  double first = 0;           ///< of one segment, with tasks: until all of one is complete, both ways
  std::uint64_t segment = 0;  ///< bytes; 0: rows that are no pipelines
};
InsideNodes least_inside(const Algorithm& row, const NodeSizes& sizes, const Team& team, const Collective& collective,
                         const Machine& machine) {
  const collectives::LevelsRow* levels = collectives::levels_row(row.name);
  const bool is_by_many = row.name.starts_with("multi_leader_");
  const bool is_by_leaders = row.kind == CollectiveKind::allreduce &&
                             (row.name.starts_with("leader_") || row.name.starts_with("multi_leader"));
  if (sizes.smallest < 2 || !team.domain_of_rank.empty() || (levels == nullptr && !is_by_leaders)) return {};
  const bool sums = row.kind != CollectiveKind::bcast;
  const bool spreads = row.kind != CollectiveKind::reduce;
  const std::uint64_t bytes = collective.count * collective.item_bytes();
  const auto all = static_cast<double>(bytes);
  const Machine::Node& node = machine.node;
  const cost_model::Prices<double> prices{machine};
  const std::uint64_t segments = levels != nullptr ? collectives::Segments(collective).count() : 1;
  const std::size_t leaders = is_by_many                   ? collectives::kManySlots
                              : row.name == "multi_leader" ? collectives::kRingSlots
                                                           : 1;
  const std::uint64_t segment = bytes / segments / std::min(leaders, static_cast<std::size_t>(sizes.smallest));
  InsideNodes least{.segment = levels != nullptr ? segment : 0};
  least.are_shared = levels != nullptr
                         ? collectives::uses_tasks(team, collective, levels->inside, sizes.nodes, sizes.largest)
                         : !is_by_many && bytes > collectives::kTaskBytes &&
                               collectives::shares_tasks(team, collective, sizes.nodes, sizes.largest);
  const double others = sizes.smallest - 1;
  if (least.are_shared) {
    const double cores = std::clamp(node.cores, 1, sizes.smallest);
    const double read = all * node.remote_read_seconds_per_byte;
    if (sums) least.up = ((others + 1) * read + others * all * node.combine_seconds_per_byte) / cores;
    if (spreads) least.down = others * read / cores;
    const auto ranks = static_cast<std::size_t>(sizes.smallest);
    const std::uint64_t piece = segment / collectives::task_pieces(segment, ranks);
    if (levels != nullptr)
      least.first = (sums ? prices.task(piece, ranks, 1) : 0) + (spreads ? prices.task(piece, 1, ranks - 1) : 0);
    return least;
  }
  const double copied = prices.copy(segment);
  const double receive =
      node.flag_seconds + (team.single_copy ? std::min(copied, prices.remote_read(segment)) : copied);
  const double children = collectives::log2_ceil(sizes.smallest);
  if (sums) least.up = children * static_cast<double>(segments) * (receive + prices.combine(segment));
  if (spreads) least.down = children * receive;
  return least;
}

/// Messages that wait for each other on their way along a tree of the leaders, at least. Trees with two children at
/// most are the lowest ones with as many as binomial trees.
double rounds_of(const Algorithm& row, int nodes, int radix) {
  if (has_radix(row)) return static_cast<double>(collectives::radices_of(nodes, radix).size());
  if (row.name == "leader_postal")
    return static_cast<double>(collectives::postal_time(nodes) / collectives::kPostalHop);
  return std::bit_width(static_cast<unsigned>(nodes)) - 1;
}

/// What a row takes at least, from messages that wait for each other and from what one link carries. It only saves the
/// estimates of rows that cannot win.
double least_between(const Algorithm& row, const NodeSizes& sizes, double bytes, int radix, const Machine& machine) {
  const Machine::Network& network = machine.network;
  const double hop = network.latency_seconds + 2 * network.overhead_seconds + network.gap_seconds;
  const double all = bytes * network.seconds_per_byte;
  const int nodes = sizes.nodes;
  const double others = nodes - 1;
  const double rounds = rounds_of(row, nodes, radix);
  const double ranks_elsewhere = sizes.ranks - sizes.largest;
  const bool is_both = row.kind == CollectiveKind::allreduce;
  if (row.kind == CollectiveKind::allgather) return others * all;
  if (row.kind == CollectiveKind::alltoall) {
    const double on_link = sizes.smallest * ranks_elsewhere * all;
    if (row.name == "bruck") return rounds * std::max(hop, sizes.smallest * sizes.ranks / 2.0 * all);
    if (row.name == "pairwise") return std::max(2 * ranks_elsewhere * network.overhead_seconds, on_link);
    return std::max(hop, on_link);
  }
  if (row.kind == CollectiveKind::reduce_scatter_block) {
    const bool is_ring = row.name == "ring" || row.name == "multi_leader";
    const double in_rounds = is_ring ? others : row.name == "recursive_halving" ? rounds : 1;
    return std::max(in_rounds * hop, ranks_elsewhere * all);
  }
  if (row.name == "ring") {
    const double ranks = sizes.ranks;
    return std::max(2 * others * hop, 2 * all * (ranks - 1) / ranks);
  }
  if (row.name == "chain" || row.name == "leader_chain") return std::max(others * hop, all);
  if (row.name == "leader_ring" || row.name == "multi_leader")
    return std::max(2 * others * hop, 2 * all * others / nodes);
  if (row.name == "leader_scatter") return std::max(others * hop, all * others / nodes);
  if (row.name == "leader_scatter_doubling") return std::max(rounds * hop, all * others / nodes);
  if (row.name == "leader_doubling")
    return rounds * std::max({hop, all, bytes * machine.node.combine_seconds_per_byte});
  if (row.name == "multi_leader_doubling" || has_radix(row)) return rounds * std::max(hop, all);
  if (row.name.ends_with("leader_rabenseifner") || row.name == "multi_leader_pipeline")
    return std::max(2 * rounds * hop, (is_both ? 2 : 1) * all * others / nodes);
  // Binomial trees send all in each round.
  const bool is_binomial = row.name == "hierarchical" || row.name == "node_shared";
  return std::max((is_both ? 2 : 1) * rounds * hop, (is_binomial ? rounds : 1) * all);
}

/// As least_between(), with the work inside the nodes. Tasks overlap with messages.
double least_seconds(const Algorithm& row, const NodeSizes& sizes, const Team& team, const Collective& collective,
                     const Machine& machine) {
  const auto bytes = static_cast<double>(collective.count * collective.item_bytes());
  const double between = least_between(row, sizes, bytes, collective.radix, machine);
  const bool has_rounds = is_rooted(row.kind) || row.kind == CollectiveKind::allreduce;
  if (!has_rounds) return between;
  const InsideNodes inside = least_inside(row, sizes, team, collective, machine);
  // On the way along a tree of the leaders, a segment passes a link in each round, and is combined on the way up.
  const Machine::Network& network = machine.network;
  const cost_model::Prices<double> prices{machine};
  const double rounds = rounds_of(row, sizes.nodes, collective.radix);
  const double hop = network.latency_seconds + 2 * network.overhead_seconds + prices.on_link(inside.segment);
  double way = rounds * hop;
  if (inside.segment > 0 && row.kind != CollectiveKind::bcast) way += rounds * prices.combine(inside.segment);
  if (inside.segment > 0 && row.kind == CollectiveKind::allreduce) way += rounds * hop;
  if (!inside.are_shared) return std::max(between, inside.up + way + inside.down);
  return std::max({between, inside.up + inside.down, inside.first + way});
}

}  // namespace

struct ChoiceByCost::Memory {
  struct Key {
    std::uint64_t length_class;
    std::uint64_t item_bytes;
    CollectiveKind kind;
    std::int32_t root;
    bool in_place;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct Hash {
    std::size_t operator()(const Key& key) const {
      std::uint64_t hash = base::kSeed;
      for (const std::uint64_t word :
           {key.length_class, key.item_bytes, static_cast<std::uint64_t>(key.kind) << 1 | (key.in_place ? 1u : 0u),
            static_cast<std::uint64_t>(key.root)})
        hash = base::mix(hash, word);
      return hash;
    }
  };

  Memory(const Team& given, const Machine& known, std::shared_ptr<const std::vector<RowTime>> measured = {})
      : team(given), machine(known), times(std::move(measured)) {
    team.rank = 0;
    team.by_cost = nullptr;
    team.tuning = nullptr;
    const std::vector<int> ranks = collectives::sizes_of_nodes(team);
    sizes = collectives::cost::node_sizes(team);
    std::unordered_map<std::int32_t, std::int32_t> first;  // rank on a node of this size
    for (std::int32_t rank = 0; rank < team.size(); ++rank) {
      const std::int32_t size = ranks[static_cast<std::size_t>(team.node_of_rank[static_cast<std::size_t>(rank)])];
      root_alike.push_back(first.try_emplace(size, rank).first->second);
    }
  }

  bool can_choose(CollectiveKind kind) const {
    return sizes.nodes > 1 ? has_choice(kind) : times != nullptr && collectives::has_times(kind);
  }
  /// Among the rows of `kind`, which may be that of `collective` with counts.
  Chosen choose(const Collective& collective, CollectiveKind kind) const {
    return sizes.nodes > 1 ? choose_between_nodes(collective, kind) : choose_on_node(collective);
  }
  Chosen choose_between_nodes(Collective collective, CollectiveKind kind) const;
  Chosen choose_on_node(const Collective& collective) const;
  /// `collective` stands for its class.
  int radix_of(const Algorithm& row, const Collective& collective) const {
    if (!has_radix(row) || collective.radix != 2 || sizes.nodes < 2) return collective.radix;
    const std::size_t leaders = has_several_leaders(row) ? collectives::kManySlots : 1;
    const int slots = std::min(static_cast<int>(leaders), sizes.smallest);
    const std::uint64_t bytes = collective.count * collective.item_bytes() / static_cast<std::uint64_t>(slots);
    return collectives::cost::best_radix(sizes.nodes, slots, bytes, machine);
  }

  Team team;
  Machine machine;
  std::shared_ptr<const std::vector<RowTime>> times;  // of one node; or nullptr
  NodeSizes sizes;
  std::vector<std::int32_t> root_alike;  // by root: the one that stands for it
  mutable std::mutex mutex{};
  mutable std::unordered_map<Key, std::shared_ptr<const Chosen>, Hash> chosen{};
};

/// `collective` stands for its class.
ChoiceByCost::Chosen ChoiceByCost::Memory::choose_between_nodes(Collective collective, CollectiveKind kind) const {
  // Both operations with counts have a ring, but not all rows of those without.
  const std::string_view by_threshold = collectives::choose_default(team, collective).name;
  const Algorithm* known =
      collectives::find(collective.kind, collectives::find(kind, by_threshold) != nullptr ? by_threshold : "ring");
  std::array<int, 2> radix{};  // of one leader of each node, and of several
  const auto call_of = [&](const Algorithm& row, std::uint64_t segment_bytes) {
    Collective call = collective;
    call.segment_bytes = segment_bytes;
    if (!has_radix(row)) return call;
    int& known_radix = radix[has_several_leaders(row) ? 1 : 0];
    if (known_radix == 0) known_radix = radix_of(row, collective);
    call.radix = known_radix;
    return call;
  };
  const auto least_of = [&](const Algorithm& row, std::uint64_t segment_bytes = 0) {
    return least_seconds(row, sizes, team, call_of(row, segment_bytes), machine);
  };
  const auto estimate_of = [&](const Algorithm& row, std::uint64_t segment_bytes = 0) {
    return collectives::cost::estimated_seconds({row.name, team, call_of(row, segment_bytes), machine}, sizes);
  };
  const std::optional<double> known_seconds = estimate_of(*known);
  if (!known_seconds) return {};
  const std::uint64_t bytes = collective.count * collective.item_bytes();
  const auto cuts = static_cast<std::ptrdiff_t>(
      std::ranges::count_if(kShorterSegments, [&](std::uint64_t each) { return each < bytes; }));
  const std::span<const std::uint64_t> shorter = std::span(kShorterSegments).last(static_cast<std::size_t>(cuts));
  const auto has_segments = [&](const Algorithm& row) {
    return sizes.smallest == sizes.largest && !shorter.empty() && collectives::levels_row(row.name) != nullptr;
  };
  struct Row {
    double least;
    const Algorithm* algorithm;
  };
  std::vector<Row> rows;
  for (const Algorithm& row : algorithms()) {
    if (row.kind != collective.kind || !is_candidate(row) || !collectives::fits(row, team, collective) ||
        collectives::find(kind, row.name) == nullptr || (sizes.largest == 1 && has_several_leaders(row)))
      continue;
    double least = least_of(row);
    if (has_segments(row)) least = std::min(least, least_of(row, shorter.back()));
    rows.push_back({least, &row});
  }
  std::ranges::stable_sort(rows, {}, &Row::least);

  std::vector<Candidate> candidates{{known, *known_seconds}};
  double best = *known_seconds * kGain;
  for (const auto& [least, row] : rows) {
    if (least >= best) break;
    std::optional<double> longer = row == known ? known_seconds : estimate_of(*row);
    if (!longer) continue;
    if (row != known) candidates.push_back({row, *longer});
    for (const std::uint64_t segment_bytes : has_segments(*row) ? shorter : std::span<const std::uint64_t>{}) {
      const std::optional<double> seconds = estimate_of(*row, segment_bytes);
      if (!seconds || *seconds >= *longer) break;
      candidates.push_back({row, *seconds, segment_bytes});
      longer = seconds;
    }
    best = std::min(best, *longer);
  }
  std::ranges::stable_sort(candidates, {}, &Candidate::seconds);
  known = collectives::find(kind, known->name);
  for (Candidate& each : candidates) each.algorithm = collectives::find(kind, each.algorithm->name);
  const auto best_row = candidates[0].seconds < kGain * *known_seconds
                            ? candidates.begin()
                            : std::ranges::find_if(candidates, [&](const Candidate& each) {
                                return each.algorithm == known && each.segment_bytes == 0;
                              });
  std::string reason = "least cost on this network: " + microseconds(best_row->seconds);
  if (best_row->segment_bytes != 0)
    reason += " in segments of " + std::to_string(best_row->segment_bytes >> 10) + " KiB";
  const auto next =
      std::ranges::find_if(candidates, [&](const Candidate& each) { return each.algorithm != best_row->algorithm; });
  if (next != candidates.end()) reason += "; " + std::string(next->algorithm->name) + " " + microseconds(next->seconds);
  return {best_row->algorithm, std::move(reason), best_row->segment_bytes, std::move(candidates)};
}

/// `collective` stands for its class.
ChoiceByCost::Chosen ChoiceByCost::Memory::choose_on_node(const Collective& collective) const {
  const Algorithm* known = collectives::find(collective.kind, collectives::choose_default(team, collective).name);
  std::vector<Candidate> candidates;
  for (const Algorithm& row : algorithms()) {
    if (row.kind != collective.kind || !collectives::fits(row, team, collective)) continue;
    const std::optional<double> seconds = collectives::interpolated(*times, row, collectives::block_bytes(collective));
    if (seconds) candidates.push_back({&row, *seconds});
  }
  const auto of_known = std::ranges::find(candidates, known, &Candidate::algorithm);
  if (of_known == candidates.end()) return {};
  const Candidate by_threshold = *of_known;
  std::ranges::stable_sort(candidates, {}, &Candidate::seconds);
  const Candidate best = candidates[0].seconds < kGain * by_threshold.seconds ? candidates[0] : by_threshold;
  std::string reason = "measured on such a node: " + microseconds(best.seconds);
  const auto next =
      std::ranges::find_if(candidates, [&](const Candidate& each) { return each.algorithm != best.algorithm; });
  if (next != candidates.end()) reason += "; " + std::string(next->algorithm->name) + " " + microseconds(next->seconds);
  return {best.algorithm, std::move(reason), 0, std::move(candidates)};
}

ChoiceByCost::ChoiceByCost(const Team& team, const Machine& machine)
    : memory_(std::make_unique<Memory>(team, machine)) {}
ChoiceByCost::ChoiceByCost(const Team& team, std::shared_ptr<const std::vector<RowTime>> times)
    : memory_(std::make_unique<Memory>(team, Machine{}, std::move(times))) {}
ChoiceByCost::~ChoiceByCost() = default;

const Machine& ChoiceByCost::machine() const noexcept { return memory_->machine; }

int ChoiceByCost::radix_of(const Algorithm& row, const Collective& collective) const {
  return memory_->radix_of(row, of_class(collective));
}

std::shared_ptr<const ChoiceByCost::Chosen> ChoiceByCost::find(const Collective& given) const {
  if (memory_->team.progress_cores > 0 || given.split != Collective::kAutomatic || given.radix != 2 ||
      given.segment_bytes != 0 || !given.commutative || collectives::fixes_order(given))
    return nullptr;
  std::optional<Collective> alike;
  if (has_counts(given.kind)) alike = without_counts(memory_->team, given);
  const Collective& collective = alike ? *alike : given;
  if (!memory_->can_choose(collective.kind) || collective.count == 0) return nullptr;
  // All ranks choose the same, so nothing that differs between them may count.
  const std::uint64_t item_bytes = collective.item_bytes();
  const std::uint64_t bytes = collective.count * item_bytes;
  Memory::Key key{class_of(bytes), item_bytes, given.kind, 0, collective.in_place};
  if (is_rooted(collective.kind)) {
    key.root = memory_->root_alike[static_cast<std::size_t>(collective.root)];
    key.in_place = false;
  }
  {
    const std::lock_guard lock(memory_->mutex);
    if (const auto known = memory_->chosen.find(key); known != memory_->chosen.end()) return known->second;
  }
  Collective of_all = of_class(collective);
  of_all.root = key.root;
  of_all.in_place = key.in_place;
  Chosen chosen = memory_->choose(of_all, given.kind);
  auto shared = chosen.algorithm == nullptr ? nullptr : std::make_shared<const Chosen>(std::move(chosen));
  const std::lock_guard lock(memory_->mutex);
  return memory_->chosen.try_emplace(key, std::move(shared)).first->second;
}

}  // namespace penstock
