#include "collectives/choose/row_times.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "collectives/choose/defaults.hpp"
#include "collectives/parts/arguments.hpp"

namespace penstock::collectives {
namespace {

// From the shortest data for which staging buffers are the default. In between two lengths rows take over from each
// other gradually. What is the fastest for much longer data also depends on the size of the program's pages.
constexpr std::array<std::uint64_t, 4> kLengths = {16 << 10, 64 << 10, 256 << 10, 1 << 20};
constexpr std::uint64_t kMostBytes = 8 << 20;  // of all blocks of a rank: all ranks allocate it at once

constexpr std::array kWithoutBlocks = {CollectiveKind::bcast, CollectiveKind::reduce, CollectiveKind::allreduce,
                                       CollectiveKind::scan, CollectiveKind::exscan};
constexpr std::array kWithBlocks = {CollectiveKind::allgather, CollectiveKind::alltoall, CollectiveKind::gather,
                                    CollectiveKind::scatter, CollectiveKind::reduce_scatter_block};

bool has_a_block_for_each_rank(CollectiveKind kind) {
  return std::ranges::find(kWithBlocks, kind) != kWithBlocks.end();
}

/// Compositions over two levels are others' doubles, and a tree of tasks is for communication cores. The sorted rows
/// are there for the order of their sums.
bool is_rival(const Algorithm& row, const Team& team) {
  if (row.name == "hierarchical") return !team.domain_of_rank.empty();
  for (const std::string_view prefix : {"leader_", "multi_leader", "node_shared", "tree", "sorted", "shared"})
    if (row.name.starts_with(prefix)) return false;
  return true;
}

}  // namespace

bool has_times(CollectiveKind kind) {
  return has_a_block_for_each_rank(kind) || std::ranges::find(kWithoutBlocks, kind) != kWithoutBlocks.end();
}

Collective measured_call(CollectiveKind kind, std::uint64_t bytes) {
  Collective call{.kind = kind, .dtype = DType::float32};
  call.count = bytes / call.item_bytes();
  return call;
}

std::vector<RowTime> rows_to_measure(const Team& team) {
  std::vector<RowTime> rows;
  const auto add = [&](CollectiveKind kind, std::uint64_t bytes) {
    const Collective collective = measured_call(kind, bytes);
    const std::string_view by_threshold = choose_default(team, collective).name;
    const std::size_t before = rows.size();
    for (const Algorithm& row : algorithms())
      if (row.kind == kind && fits(row, team, collective) && (is_rival(row, team) || row.name == by_threshold))
        rows.push_back({&row, bytes});
    if (rows.size() == before + 1) rows.pop_back();  // nothing to choose
  };
  for (const std::uint64_t bytes : kLengths) {
    for (const CollectiveKind kind : kWithoutBlocks) add(kind, bytes);
    if (static_cast<std::uint64_t>(team.size()) * bytes > kMostBytes) continue;
    for (const CollectiveKind kind : kWithBlocks) add(kind, bytes);
  }
  return rows;
}

std::optional<double> interpolated(std::span<const RowTime> times, const Algorithm& row, std::uint64_t bytes) {
  const RowTime* below = nullptr;
  const RowTime* above = nullptr;
  for (const RowTime& each : times) {
    if (each.algorithm != &row) continue;
    if (each.bytes <= bytes) below = &each;
    if (each.bytes >= bytes && above == nullptr) above = &each;
  }
  if (below == nullptr || below->nanoseconds == 0) return std::nullopt;
  const auto seconds = [](const RowTime& time) { return 1e-9 * static_cast<double>(time.nanoseconds); };
  const double longer = static_cast<double>(bytes) / static_cast<double>(below->bytes);
  if (above == nullptr) return longer <= 2 ? std::optional(longer * seconds(*below)) : std::nullopt;
  if (above->nanoseconds == 0) return std::nullopt;
  if (above == below) return seconds(*below);
  const double share =
      std::log(longer) / std::log(static_cast<double>(above->bytes) / static_cast<double>(below->bytes));
  return seconds(*below) * std::pow(seconds(*above) / seconds(*below), share);
}

}  // namespace penstock::collectives
