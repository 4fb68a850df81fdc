#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "base/ranks_text.hpp"
#include "collectives/choose/defaults.hpp"
#include "collectives/choose/planners.hpp"
#include "collectives/parts/arguments.hpp"
#include "collectives/parts/blocks.hpp"
#include "collectives/parts/group.hpp"
#include "collectives/parts/node_tasks.hpp"
#include "collectives/parts/pieces.hpp"
#include "collectives/parts/published.hpp"
#include "collectives/parts/staging.hpp"
#include "kernels/reduce_sorted.hpp"
#include "penstock/choice_by_cost.hpp"
#include "penstock/cost_model.hpp"
#include "penstock/error.hpp"
#include "penstock/split_model.hpp"
#include "penstock/tuning.hpp"
#include "plan/split.hpp"

namespace penstock {
namespace {

using collectives::find;
using collectives::fits;
using collectives::fixes_order;
using collectives::is_prefix;

struct KindRow {
  std::string_view name;
  bool is_rooted;
  bool computes;
};

constexpr std::array kKinds = {
#define PENSTOCK_COLLECTIVE(name, rooted, computes) KindRow{#name, rooted, computes},
#include "penstock/collectives.def"
#undef PENSTOCK_COLLECTIVE
};

const KindRow& row(CollectiveKind kind) { return kKinds[static_cast<std::size_t>(kind)]; }

[[noreturn]] void reject(const Collective& collective, const std::string& why) {
  throw Error(ErrorCode::invalid_argument, std::string(name(collective.kind)) + ": " + why);
}

void check_counts(const Team& team, const Collective& collective);
void check_graph(const Team& team, const Collective& collective);

/// Whether the flags of all other ranks, whose cache lines come one after another, take no longer than the rounds of
/// messages that do the same.
bool few_flags(int ranks) { return ranks - 1 <= collectives::kLinesOfMessage * collectives::log2_ceil(ranks); }

/// Whether staging buffers save more copies and sums than their signals to each rank cost, against rounds of messages.
/// Gathers, scatters and long reduce_scatters have a message or a task for each rank anyway. Scans are a chain of
/// segments, against fewer rounds of whole messages.
bool pays_staging(const Team& team, const Collective& collective) {
  const int ranks = team.size();
  if (collectives::is_reduce_scatter(collective.kind)) return true;
  if (is_prefix(collective.kind)) {
    const int segments = static_cast<int>(collectives::StagedSegments(team, collective, 1, 1).count());
    return ranks - 1 + segments - 1 <= segments * collectives::log2_ceil(ranks);
  }
  if (!computes(collective.kind) && collective.kind != CollectiveKind::bcast) return true;
  const Machine::Node node;
  const double others = ranks - 1;
  const double rounds = collectives::log2_ceil(ranks);
  const double share = others / ranks;
  const auto bytes = static_cast<double>(collectives::block_bytes(collective));
  const bool sums = computes(collective.kind);
  const double signals = (sums ? 2 * others : others) - rounds;
  const double copies = 2 * rounds - (sums ? 1 + 2 * share : 2);
  return signals * node.flag_seconds <=
         bytes * (copies * node.copy_seconds_per_byte + (sums ? rounds - share : 0) * node.combine_seconds_per_byte);
}

/// Whether staging buffers also pay for a bcast that does not fit in the caches. Each rank's one copy out of them,
/// while the root writes them, against its share of the kernel's n - 1 copies from memory to memory.
bool pays_long_staging(const Team& team, const Collective& collective) {
  if (collective.kind != CollectiveKind::bcast || !collectives::shared_node(team, collective)) return false;
  const Machine::Node node;
  const double others = team.size() - 1;
  const auto bytes = static_cast<double>(collectives::block_bytes(collective));
  const double segments = collectives::StagedSegments(team, collective, 1, 1).count();
  const double by_kernel = node.uncached_factor * node.remote_read_seconds_per_byte * others / team.size();
  const double by_reader = team.domain_of_rank.empty() ? node.copy_seconds_per_byte : node.far_copy_seconds_per_byte;
  return segments * others * node.flag_seconds + bytes * by_reader < bytes * by_kernel;
}

void check(const Team& team, const Collective& collective) {
  if (is_rooted(collective.kind) && (collective.root < 0 || collective.root >= team.size()))
    reject(collective, "root is " + std::to_string(collective.root) + ", but the communicator has the ranks 0 to " +
                           std::to_string(team.size() - 1));
  if (computes(collective.kind) && collective.element_bytes == 0 && !defined_for(collective.op, collective.dtype))
    reject(collective, "operation " + std::string(name(collective.op)) + " is not defined for dtype " +
                           std::string(name(collective.dtype)));
  if (collective.reproducible && collective.element_bytes != 0 && !collective.commutative &&
      !is_prefix(collective.kind))
    reject(collective,
           "an operation that does not commute cannot be reproducible: its result depends on the order of the ranks");
  // Half of the address space, so that no sum of offsets can overflow.
  if (collective.split < Collective::kAutomatic)
    reject(collective,
           "split is " + std::to_string(collective.split) + "; expected levels of a tree, or -1 (automatic)");
  if (collective.radix < 2) reject(collective, "radix is " + std::to_string(collective.radix) + "; expected 2 or more");
  const std::uint64_t most = std::numeric_limits<std::int64_t>::max() / collective.item_bytes();
  if (collective.count > most / static_cast<std::uint64_t>(team.size()))
    reject(collective, "count is " + std::to_string(collective.count) + ", but the blocks of " +
                           std::to_string(team.size()) + " ranks must stay below 2^63 bytes together");
  check_graph(team, collective);
  check_counts(team, collective);
}

// nullptr if the call names none.
const Algorithm* named(const Team& team, const Collective& collective) {
  if (collective.algorithm.empty()) return nullptr;
  const Algorithm* algorithm = find(collective.kind, collective.algorithm);
  if (algorithm && fits(*algorithm, team, collective)) return algorithm;
  std::string fitting;
  for (const Algorithm& other : algorithms())
    if (other.kind == collective.kind && fits(other, team, collective))
      fitting += (fitting.empty() ? "" : ", ") + std::string(other.name);
  reject(collective, (algorithm ? "algorithm '" + collective.algorithm + "' does not fit this communicator and size"
                                : "there is no algorithm '" + collective.algorithm + "'") +
                         "; expected one of " + fitting);
}

std::string kib(std::uint64_t bytes) { return std::to_string(bytes >> 10) + " KiB"; }

// Received blocks must not overlap.
void check_apart(const Collective& collective, const Blocks& blocks, std::span<const int> ranks) {
  if (blocks.displacements.empty()) return;
  std::vector<std::array<std::uint64_t, 3>> runs;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const int rank = ranks[i];
    const std::uint64_t begin = collectives::displacement_of(blocks, collective, static_cast<int>(i));
    const std::uint64_t count = collectives::count_of(blocks, collective, static_cast<int>(i));
    if (rank != Neighbor::kNone && count > 0) runs.push_back({begin, begin + count, static_cast<std::uint64_t>(rank)});
  }
  std::ranges::sort(runs);
  for (std::size_t i = 1; i < runs.size(); ++i)
    if (runs[i][0] < runs[i - 1][1])
      reject(collective,
             "the blocks received from " +
                 base::ranks_text(std::array{static_cast<int>(runs[i - 1][2]), static_cast<int>(runs[i][2])}) +
                 " overlap at byte " + std::to_string(runs[i][0] * collective.item_bytes()));
}

/// `ranks`: of each block.
void check_blocks(const Collective& collective, const Blocks& blocks, const char* buffer, std::span<const int> ranks) {
  const auto check_length = [&](const std::vector<std::uint64_t>& list, const char* which) {
    if (!list.empty() && list.size() != ranks.size())
      reject(collective, std::to_string(list.size()) + " " + which + " of the " + buffer +
                             " buffer given; expected one for each of " + std::to_string(ranks.size()) +
                             (is_neighborhood(collective.kind) ? " neighbours" : " ranks"));
  };
  check_length(blocks.counts, "counts");
  check_length(blocks.displacements, "displacements");
  const std::uint64_t most = std::numeric_limits<std::int64_t>::max() / collective.item_bytes();
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const int rank = ranks[i];
    const std::uint64_t count = collectives::count_of(blocks, collective, static_cast<int>(i));
    const std::uint64_t begin = blocks.displacements.empty() ? sum : blocks.displacements[i];
    if (rank == Neighbor::kNone && !blocks.displacements.empty()) continue;  // MPI ignores its displacement
    if (count > most - sum || (count > 0 && (begin > most || count > most - begin)))
      reject(collective, "the block of rank " + std::to_string(rank) + " has " + std::to_string(count) +
                             " elements at displacement " + std::to_string(begin) +
                             ", but the blocks of all ranks must stay below 2^63 bytes");
    sum += count;
  }
}

/// The rank that each block is for or from.
std::vector<int> ranks_of_blocks(const Team& team, const Collective& collective, bool is_send) {
  std::vector<int> ranks;
  if (!is_neighborhood(collective.kind)) {
    ranks.resize(static_cast<std::size_t>(team.size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }
  const Graph& graph = *collective.graph;
  for (const Neighbor& each : is_send ? graph.destinations(team.rank) : graph.sources(team.rank))
    ranks.push_back(each.rank);
  return ranks;
}

void check_graph(const Team& team, const Collective& collective) {
  if (!is_neighborhood(collective.kind)) return;
  if (collective.graph == nullptr)
    reject(collective,
           "the communicator has no neighbours; make it from one of MPI's with a Cartesian, graph or "
           "distributed graph topology, or give a graph");
  if (collective.graph->size() != team.size())
    reject(collective, "the graph has " + std::to_string(collective.graph->size()) +
                           " ranks; expected one for each of the communicator's " + std::to_string(team.size()));
  if (collective.in_place) reject(collective, "MPI_IN_PLACE has no meaning in a neighbourhood; give a send buffer");
  const std::uint64_t most = std::numeric_limits<std::int64_t>::max() / collective.item_bytes();
  const std::size_t blocks =
      std::max(collective.graph->sources(team.rank).size(), collective.graph->destinations(team.rank).size());
  if (blocks > 0 && collective.count > most / blocks)
    reject(collective, "count is " + std::to_string(collective.count) + ", but the blocks of " +
                           std::to_string(blocks) + " neighbours must stay below 2^63 bytes together");
}

// Also checks what only this rank knows.
void check_counts(const Team& team, const Collective& collective) {
  const bool is_far = is_rooted(collective.kind) && team.rank != collective.root;
  if (is_far || !has_counts(collective.kind)) return;
  const bool exchanges = has_send_counts(collective.kind) && has_receive_counts(collective.kind);
  if (has_send_counts(collective.kind) && !(exchanges && collective.in_place))
    check_blocks(collective, collective.send, "send", ranks_of_blocks(team, collective, true));
  if (has_receive_counts(collective.kind)) {
    const std::vector<int> ranks = ranks_of_blocks(team, collective, false);
    check_blocks(collective, collective.receive, "receive", ranks);
    check_apart(collective, collective.receive, ranks);
  }
  if (is_neighborhood(collective.kind)) return;  // lengths are compared when edges are planned
  const auto check_own = [&](std::uint64_t one, std::uint64_t other) {
    if (one != other)
      reject(collective, "rank " + std::to_string(team.rank) + " sends itself " +
                             std::to_string(one * collective.item_bytes()) + " bytes and receives " +
                             std::to_string(other * collective.item_bytes()) + " from itself; give equal counts");
  };
  const auto own = [&](const Blocks& blocks) { return collectives::count_of(blocks, collective, team.rank); };
  if (collective.kind == CollectiveKind::scatterv && !collective.in_place)
    check_own(own(collective.send), collective.count);
  if (collective.kind == CollectiveKind::gatherv && !collective.in_place)
    check_own(collective.count, own(collective.receive));
  if (exchanges && !collective.in_place) check_own(own(collective.send), own(collective.receive));
}

bool moves_blocks(CollectiveKind kind) { return kind == CollectiveKind::gather || kind == CollectiveKind::scatter; }

bool has_split_tree(CollectiveKind kind) {
  return moves_blocks(kind) || kind == CollectiveKind::bcast || kind == CollectiveKind::reduce ||
         kind == CollectiveKind::allreduce;
}

// The split-tree paper's choice: the best split if a computation on all cores lasts as long as the blocking operation.
// If the edges are tasks, waiting ranks help with all levels.
SplitPoint split_point(const Team& team, const Collective& collective) {
  SplitModel model{.kind = collective.kind,
                   .bytes = static_cast<double>(collectives::block_bytes(collective)),
                   .radix = collective.radix};
  if (collectives::shared_node(team, collective)) {
    model.waiting_helps = true;
    model.segment_bytes =
        static_cast<double>(collective.segment_bytes != 0 ? collective.segment_bytes : collectives::kCopyTaskBytes);
  }
  const SplitCores cores{collectives::largest_node(team), team.progress_cores};
  const int all = cores.ranks + cores.progress;
  return evaluate_split(model, cores, computation_time(blocking_time(model, all), all, cores.ranks));
}

std::string described(const SplitPoint& point) {
  return "best S " + std::to_string(point.best_split) + " for " + std::to_string(point.cores.ranks) + " ranks and " +
         std::to_string(point.cores.progress) + " progress cores" +
         (point.prefers_divided() ? ", dividing is better" : "");
}

}  // namespace

namespace collectives {

bool fixes_order(const Collective& collective) {
  return collective.reproducible && computes(collective.kind) &&
         (collective.element_bytes != 0 || kernels::depends_on_order(collective.dtype));
}

const Algorithm* find(CollectiveKind kind, std::string_view given) {
  for (const Algorithm& algorithm : algorithms())
    if (algorithm.kind == kind && algorithm.name == given) return &algorithm;
  return nullptr;
}

bool fits(const Algorithm& row, const Team& team, const Collective& collective) {
  return row.fits(team, collective) && (collective.commutative || !computes(collective.kind) || row.keeps_order) &&
         (!fixes_order(collective) || row.reproducible);
}

// The defaults without a tuning table: few rounds for short messages, few bytes for long ones. Two nodes or more, one
// of them with several ranks, make a hierarchy.
Default choose_default(const Team& team, const Collective& collective) {
  constexpr std::uint64_t kLatencyBytes = 32 << 10;   // shorter messages cost about as much as empty ones
  constexpr std::uint64_t kDoublingBytes = 64 << 10;  // between leaders its segments overlap with the work inside nodes
  constexpr std::uint64_t kPipelineBytes = 512 << 10;  // for longer data a long pipeline is full most of the time
  constexpr std::uint64_t kBruckBytes = 8 << 10;
  // All ranks need all data of an allreduce, so one round pays even if it takes messages. Others use flags only.
  const std::uint64_t most_published_bytes = collective.kind == CollectiveKind::allreduce ? 8 << 10 : kFlaggedBytes;
  constexpr std::uint64_t kRingPartBytes = 4 << 10;
  constexpr std::uint64_t kDividedBytes = 96 << 10;  // below, claiming tasks costs more than it gains
  constexpr int kLongChain = 64;
  constexpr int kShortRing = 3;  // nodes among which doubling has no fewer rounds than a ring

  const std::uint64_t bytes = collectives::block_bytes(collective);
  const bool is_scattered = collectives::is_reduce_scatter(collective.kind);
  const bool is_uneven = collective.kind == CollectiveKind::allgatherv;
  const std::uint64_t all_parts_bytes =
      is_scattered || is_uneven ? collectives::all_elements(team, collective) * collective.item_bytes() : bytes;
  // Received by all ranks together: it fits in a last-level cache with what it is copied from.
  const std::uint64_t cached_bytes = team.last_cache_bytes / 2;
  const std::uint64_t longest_bytes = is_uneven ? collectives::longest_block_bytes(team, collective) : all_parts_bytes;
  const auto size = static_cast<std::uint64_t>(team.size());
  const int nodes = collectives::node_count(team);
  const bool is_hierarchy = nodes > 1 && nodes < team.size();
  const std::string hierarchy = is_hierarchy ? std::to_string(nodes) + " nodes, some with several ranks" : "";
  // A ring then sends as many bytes in more rounds, each of which costs about a latency if its message is short.
  const bool is_flat_power_of_two = nodes > 1 && !is_hierarchy && collectives::power_of_two(team, collective);
  const std::string flat_power_of_two = "2^k nodes of one rank: the bytes of a ring in fewer rounds";
  if (fixes_order(collective)) {
    if (is_prefix(collective.kind)) return {"chain", "reproducible: combined in the order of the ranks"};
    if (collectives::shared_node(team, collective) && bytes > kDividedBytes)
      return {"divided", "reproducible, more than " + kib(kDividedBytes) + " on one node"};
    const bool combines_whole =
        collective.kind == CollectiveKind::reduce || collective.kind == CollectiveKind::allreduce;
    if (combines_whole && bytes * size <= kLatencyBytes)
      return {"sorted_short", "reproducible, at most " + kib(kLatencyBytes) + " of all ranks"};
    return {"sorted", "reproducible"};
  }
  const auto fits_flags = [&](std::string_view row_name) {
    const Algorithm* row = find(collective.kind, row_name);
    return collective.split == Collective::kAutomatic && team.size() > 1 && row != nullptr &&
           row->fits(team, collective);
  };
  if ((collective.kind == CollectiveKind::gatherv || collective.kind == CollectiveKind::scatterv) &&
      few_flags(team.size()) && fits_flags("shared"))
    return {"shared", "one node: flags tell the lengths and carry short blocks; the root alone knows all counts"};
  if (few_flags(team.size()) && fits_flags("shared") &&
      collectives::published_bytes(team, collective) <= most_published_bytes)
    return {"shared", "at most " + kib(most_published_bytes) +
                          " to be seen on one node: flags of all ranks cost no more than rounds of messages"};
  if (!few_flags(team.size()) && fits_flags("shared_rounds"))
    return {"shared_rounds", "at most " + kib(kFlaggedBytes) +
                                 " published by a rank of one node: rounds of flags cost less than flags of all ranks"};
  if (computes(collective.kind) && !collective.commutative && !is_prefix(collective.kind)) {
    if (collectives::shared_node(team, collective) && bytes > kDividedBytes)
      return {"divided", "the operation does not commute; more than " + kib(kDividedBytes) + " on one node"};
    return {is_scattered ? "pairwise" : "ordered", "the operation does not commute"};
  }
  // If all ranks wait, staging buffers in the caches are faster. For data larger than the caches, the kernel's single
  // copy is.
  const std::uint64_t most_staged_bytes = is_prefix(collective.kind) ? cached_bytes / 2 / size
                                          : collective.kind == CollectiveKind::alltoall
                                              ? cached_bytes / 2 / (size * size)
                                          : collective.kind == CollectiveKind::allgather ? cached_bytes / (size * size)
                                                                                         : cached_bytes / size;
  // The root's core combines all. Beyond its cache that takes longer than both cores need for halves.
  const bool is_whole = collective.kind == CollectiveKind::reduce && size == 2 && bytes <= team.core_cache_bytes;
  // What fits in a message is copied as often, in fewer rounds, as long as it is not worth two pieces. reduce_scatter
  // begins with halves.
  const std::uint64_t short_bytes = std::min(team.message_bytes, collectives::kTwoPiecesBytes);
  const std::uint64_t least_staged_bytes = is_scattered ? 2 * short_bytes : short_bytes;
  const bool is_long = all_parts_bytes > most_staged_bytes;
  const std::string range = is_long ? "more than " + kib(most_staged_bytes)
                                    : kib(least_staged_bytes) + " to " +
                                          kib(is_whole ? team.core_cache_bytes : most_staged_bytes) +
                                          (is_whole ? " on 2 ranks" : "");
  const Default staged{is_whole ? "staged_whole" : "staged",
                       range + " of one node, without communication cores: " +
                           (is_long ? "each rank reads the data once, from the caches"
                                    : "signals to all ranks cost less than they save")};
  const Algorithm* staging_row = find(collective.kind, staged.name);
  const bool fits_staging = staging_row != nullptr && staging_row->fits(team, collective) && team.progress_cores == 0 &&
                            longest_bytes > least_staged_bytes && (!is_long || pays_long_staging(team, collective)) &&
                            pays_staging(team, collective);
  if (has_split_tree(collective.kind)) {
    const bool is_shared = collectives::shared_node(team, collective);
    if (collective.split != Collective::kAutomatic)
      return {is_shared                                        ? "tree"
              : is_hierarchy && !moves_blocks(collective.kind) ? "hierarchical"
                                                               : "binomial",
              "a split was asked for"};
    if (fits_staging) return staged;
    if (is_shared && bytes > kDividedBytes) {
      if (team.progress_cores == 0)
        return {"divided", "more than " + kib(kDividedBytes) + " on one node: every core takes what it has time for"};
      const SplitPoint point = split_point(team, collective);
      return {point.prefers_divided() ? "divided" : "tree", "the split-tree model: " + described(point)};
    }
  }
  switch (collective.kind) {
    case CollectiveKind::bcast:
    case CollectiveKind::reduce:
      if (bytes >= kPipelineBytes && nodes > 1 && nodes <= kLongChain && team.size() > 2)
        return {"leader_chain",
                "at least " + kib(kPipelineBytes) + " on 2 to " + std::to_string(kLongChain) + " nodes"};
      if (bytes >= kPipelineBytes && nodes > kLongChain)
        return {"leader_two_tree", "at least " + kib(kPipelineBytes) + " on many nodes"};
      if (bytes >= kPipelineBytes && team.size() > 2 && team.size() <= kLongChain)
        return {"chain", "at least " + kib(kPipelineBytes) + " on at most " + std::to_string(kLongChain) + " ranks"};
      if (is_hierarchy) return {"hierarchical", hierarchy};
      if (!team.domain_of_rank.empty()) return {"hierarchical", "several domains of cache and memory on one node"};
      return {"binomial", "less than " + kib(kPipelineBytes) + ", or too many or too few ranks for a chain"};
    case CollectiveKind::allreduce:
      if (is_hierarchy && bytes > kDoublingBytes && bytes / static_cast<std::uint64_t>(nodes) >= kRingPartBytes)
        return {"leader_ring",
                "more than " + kib(kDoublingBytes) + ", at least " + kib(kRingPartBytes) + " per node; " + hierarchy};
      if (size == 2) return {"recursive_doubling", "2 ranks: one round, and no more bytes than in several"};
      if (is_flat_power_of_two && bytes > kLatencyBytes && bytes / size < kLatencyBytes)
        return {"rabenseifner", "more than " + kib(kLatencyBytes) + ", less than that per rank; " + flat_power_of_two};
      if (!is_hierarchy && bytes > kLatencyBytes && bytes / size >= kRingPartBytes)
        return {"ring", "more than " + kib(kLatencyBytes) + ", at least " + kib(kRingPartBytes) + " per rank"};
      if (is_hierarchy) return {"leader_doubling", hierarchy};
      return {"recursive_doubling", "less than " + kib(kRingPartBytes) + " per rank, or at most " + kib(kLatencyBytes)};
    case CollectiveKind::gather:
    case CollectiveKind::scatter:
      if (bytes > kLatencyBytes) return {"linear", "blocks of more than " + kib(kLatencyBytes)};
      return {"binomial", "blocks of at most " + kib(kLatencyBytes)};
    case CollectiveKind::allgather:
      if (fits_staging) return staged;
      if (team.progress_cores > 0 && collectives::shared_node(team, collective) && bytes * size > kDividedBytes)
        return {"divided", "more than " + kib(kDividedBytes) + " on one node with communication cores"};
      if (bytes * size > kLatencyBytes && is_hierarchy)
        return {"leader_ring", "more than " + kib(kLatencyBytes) + " in all; " + hierarchy};
      if (is_flat_power_of_two && bytes < kLatencyBytes)
        return {"recursive_doubling", "less than " + kib(kLatencyBytes) + " per rank; " + flat_power_of_two};
      if (bytes * size > kLatencyBytes) return {"ring", "more than " + kib(kLatencyBytes) + " in all"};
      if (is_hierarchy && nodes <= kShortRing)
        return {"leader_ring",
                "at most " + std::to_string(kShortRing) + " nodes: no more rounds between them; " + hierarchy};
      if (collectives::power_of_two(team, collective)) return {"recursive_doubling", "short, and 2^k ranks"};
      return {"bruck", "at most " + kib(kLatencyBytes) + " in all"};
    case CollectiveKind::alltoall: {
      if (team.progress_cores > 0 && collectives::shared_pairs(team, collective) && bytes * size > kDividedBytes)
        return {"divided", "more than " + kib(kDividedBytes) + " per rank on one node with communication cores"};
      if (is_hierarchy && bytes * size <= kLatencyBytes) return {"hierarchical", hierarchy};
      // Of 4 ranks, each sends two messages in two rounds instead of three in one. If ranks share cores, that takes
      // less of them, and others have the core while a rank waits for the second round. It also pays for longer blocks
      // then: what it saves is processor time, of which there is too little.
      const std::uint64_t most_in_rounds = team.shares_cores ? kLatencyBytes : kBruckBytes;
      if (size > (team.shares_cores ? 3 : 4) && bytes * size <= most_in_rounds)
        return {"bruck",
                "at most " + kib(most_in_rounds) + " per rank" + (team.shares_cores ? "; ranks share cores" : "")};
      if (fits_staging) return staged;
      return {"pairwise", "every block goes straight to its rank"};
    }
    case CollectiveKind::reduce_scatter_block:
    case CollectiveKind::reduce_scatter: {
      if (fits_staging) return staged;
      if (collectives::shared_node(team, collective) && all_parts_bytes > kDividedBytes)
        return {"divided", "more than " + kib(kDividedBytes) + " on one node: every core takes what it has time for"};
      // The leaders combine what all ranks of their node have: if they are few, that takes longer than the links.
      const std::vector<int> sizes = collectives::sizes_of_nodes(team);
      const auto [fewest, most] = std::ranges::minmax_element(sizes);
      const bool are_alike = is_hierarchy && *most <= 2 * *fewest;
      constexpr std::uint64_t kPairBytes = 8 << 10;  // two nodes take one round either way
      const std::uint64_t most_bytes = are_alike && nodes == 2 ? kPairBytes : kLatencyBytes;
      if (all_parts_bytes > most_bytes) return {are_alike ? "multi_leader" : "ring", "more than " + kib(most_bytes)};
      if (is_hierarchy) return {"hierarchical", hierarchy};
      return {"recursive_halving", "at most " + kib(kLatencyBytes)};
    }
    case CollectiveKind::scan:
    case CollectiveKind::exscan:
      if (fits_staging) return staged;
      if (collectives::shared_node(team, collective) && bytes > kDividedBytes)
        return {"divided", "more than " + kib(kDividedBytes) + " on one node: every core takes what it has time for"};
      if (bytes > kDividedBytes) return {"chain", "more than " + kib(kDividedBytes)};
      if (collectives::nodes_in_order(team, collective)) return {"hierarchical", hierarchy};
      return {"doubling", "at most " + kib(kDividedBytes)};
    case CollectiveKind::gatherv:
    case CollectiveKind::scatterv: return {"linear", "the root alone knows the counts"};
    case CollectiveKind::alltoallv:
    case CollectiveKind::alltoallw: return {"pairwise", "each rank knows its own counts only"};
    case CollectiveKind::neighbor_allgather:
    case CollectiveKind::neighbor_alltoall: {
      if (!is_hierarchy) return {"direct", "every block goes straight to its neighbour"};
      const collectives::Crossing crossing = collectives::crossing_of(team, *collective.graph);
      const std::string messages = std::to_string(crossing.of_rank) + " messages between nodes at the busiest rank, " +
                                   std::to_string(crossing.of_leader) + " at the busiest leader if they are combined";
      const bool is_short = bytes * crossing.edges <= kLatencyBytes * crossing.node_pairs;
      if (crossing.of_rank > crossing.of_leader && is_short)
        return {"combined", messages + ", at most " + kib(kLatencyBytes) + " each"};
      return {"direct", is_short ? messages : "more than " + kib(kLatencyBytes) + " between two nodes"};
    }
    case CollectiveKind::neighbor_allgatherv:
    case CollectiveKind::neighbor_alltoallv:
    case CollectiveKind::neighbor_alltoallw: return {"direct", "every block goes straight to its neighbour"};
    case CollectiveKind::allgatherv: {
      if (fits_staging) return staged;
      if (team.progress_cores > 0 && collectives::shared_node(team, collective) && all_parts_bytes > kDividedBytes)
        return {"divided", "more than " + kib(kDividedBytes) + " on one node with communication cores"};
      if (size == 2) return {"ring", "2 ranks: one round, and no more copies"};
      if (all_parts_bytes > kLatencyBytes) return {"ring", "more than " + kib(kLatencyBytes) + " in all"};
      return {"bruck", "at most " + kib(kLatencyBytes) + " in all"};
    }
    case CollectiveKind::barrier:
      if (is_hierarchy) return {"hierarchical", hierarchy};
      return {"dissemination", nodes > 1 ? "every rank is on a node of its own" : "many ranks of one node"};
  }
  return {};
}

}  // namespace collectives

std::string_view name(CollectiveKind kind) noexcept { return row(kind).name; }
bool is_rooted(CollectiveKind kind) noexcept { return row(kind).is_rooted; }
bool computes(CollectiveKind kind) noexcept { return row(kind).computes; }
bool has_counts(CollectiveKind kind) noexcept { return has_send_counts(kind) || has_receive_counts(kind); }
bool has_datatypes(CollectiveKind kind) noexcept {
  return kind == CollectiveKind::alltoallw || kind == CollectiveKind::neighbor_alltoallw;
}
bool is_neighborhood(CollectiveKind kind) noexcept {
  return kind == CollectiveKind::neighbor_allgather || kind == CollectiveKind::neighbor_allgatherv ||
         kind == CollectiveKind::neighbor_alltoall || kind == CollectiveKind::neighbor_alltoallv ||
         kind == CollectiveKind::neighbor_alltoallw;
}
bool has_send_counts(CollectiveKind kind) noexcept {
  return kind == CollectiveKind::scatterv || kind == CollectiveKind::alltoallv || kind == CollectiveKind::alltoallw ||
         kind == CollectiveKind::neighbor_alltoallv || kind == CollectiveKind::neighbor_alltoallw;
}
bool has_receive_counts(CollectiveKind kind) noexcept {
  return kind == CollectiveKind::gatherv || kind == CollectiveKind::allgatherv ||
         kind == CollectiveKind::reduce_scatter || kind == CollectiveKind::neighbor_allgatherv ||
         (has_send_counts(kind) && kind != CollectiveKind::scatterv);
}

CollectiveKind collective_kind_from_name(std::string_view given) {
  std::string known;
  for (std::size_t i = 0; i < kKinds.size(); ++i) {
    if (kKinds[i].name == given) return static_cast<CollectiveKind>(i);
    known += (i ? ", " : "") + std::string(kKinds[i].name);
  }
  throw Error(ErrorCode::invalid_argument, "unknown collective '" + std::string(given) + "'; expected one of " + known);
}

Choice choose(const Team& team, const Collective& collective) {
  check(team, collective);
  Choice choice{named(team, collective), "asked for by name"};
  if (choice.algorithm == nullptr) {
    std::optional<Tuning::Found> tuned;
    // Tables have no entries for counts, some of which only one rank knows, nor for orders of combination.
    const bool is_measured = !has_counts(collective.kind) && collective.commutative && !fixes_order(collective);
    if (team.tuning != nullptr && collective.split == Collective::kAutomatic && is_measured)
      tuned = team.tuning->find(team, collective);
    const auto cheapest = tuned || team.by_cost == nullptr ? nullptr : team.by_cost->find(collective);
    if (tuned) {
      choice = {.algorithm = find(collective.kind, tuned->algorithm),
                .reason = tuned->reason,
                .segment_bytes = tuned->segment_bytes};
    } else if (cheapest != nullptr && fits(*cheapest->algorithm, team, collective)) {
      choice = {.algorithm = cheapest->algorithm, .reason = cheapest->reason, .segment_bytes = cheapest->segment_bytes};
    } else {
      collectives::Default chosen = collectives::choose_default(team, collective);
      choice = {find(collective.kind, chosen.name), std::move(chosen.reason)};
    }
  }
  if (collective.segment_bytes != 0) choice.segment_bytes = collective.segment_bytes;
  choice.radix = team.by_cost != nullptr ? team.by_cost->radix_of(*choice.algorithm, collective) : collective.radix;
  if (!has_split_tree(collective.kind) || choice.algorithm->name == "divided") return choice;
  // Only levels inside the nodes are split. Levels between nodes belong on communication cores.
  if (collective.split == Collective::kAutomatic && team.progress_cores == 0) return choice;
  const int inside = collectives::levels(collectives::largest_node(team), collective.radix);
  choice.split = std::min(
      collective.split != Collective::kAutomatic ? collective.split : split_point(team, collective).best_split, inside);
  return choice;
}

Plan plan_collective(const Team& team, const Collective& collective) {
  const Choice choice = choose(team, collective);
  Collective chosen = collective;
  chosen.segment_bytes = choice.segment_bytes;
  chosen.radix = choice.radix;
  if (collectives::is_reduce_scatter(chosen.kind)) chosen.receive.displacements.clear();  // its parts are consecutive
  collectives::place_blocks(chosen.send);
  collectives::place_blocks(chosen.receive);
  Plan plan = choice.algorithm->plan(team, chosen);
  if (choice.split > 0) plan::split_tree(plan, choice.split);
  return plan;
}

}  // namespace penstock
