#include "engine/node_setup.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <map>
#include <random>
#include <utility>

#include "engine/all_or_none.hpp"
#include "engine/progress.hpp"
#include "host/process_memory.hpp"

namespace penstock::engine {
namespace {

void write(std::array<char, 256>& text, const char* what) noexcept { std::strncpy(text.data(), what, text.size() - 1); }

}  // namespace

std::size_t NodeSetup::memory_bytes(int ranks, const More& more) noexcept {
  const std::size_t facts = RankRecords<RankInfo>::bytes_of_one(more.facts_bytes);
  const std::size_t results = RankRecords<SetupResult>::bytes_of_one(more.results_bytes);
  return static_cast<std::size_t>(ranks) * (sizeof(std::int32_t) + facts + results) + std::max(facts, results);
}

NodeSetup::NodeSetup(Transport& transport, std::vector<std::byte> memory, const More& more) noexcept
    : transport_(transport), memory_(std::move(memory)) {
  const auto ranks = static_cast<std::size_t>(transport.size());
  const std::size_t facts = RankRecords<RankInfo>::bytes_of_one(more.facts_bytes);
  const std::size_t results = RankRecords<SetupResult>::bytes_of_one(more.results_bytes);
  Bytes rest = memory_;
  const auto take = [&](std::size_t bytes) {
    const Bytes taken = rest.first(bytes);
    rest = rest.subspan(bytes);
    return taken;
  };
  neighbours_ = {reinterpret_cast<std::int32_t*>(take(ranks * sizeof(std::int32_t)).data()), ranks};
  const Bytes all_facts = take(ranks * facts);
  const Bytes all_results = take(ranks * results);
  infos_ = {all_facts, rest};
  results_ = {all_results, rest};
}

void NodeSetup::find_neighbours() noexcept {
  const std::vector<std::int32_t>& nodes = transport_.node_of_rank();
  const auto me = static_cast<std::size_t>(transport_.rank());
  std::size_t count = 0;
  for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
    if (nodes[rank] != nodes[me]) continue;
    if (rank == me) local_rank_ = static_cast<std::uint32_t>(count);
    neighbours_[count++] = static_cast<std::int32_t>(rank);
  }
  neighbours_ = neighbours_.first(count);
}

template <typename Record>
void NodeSetup::throw_if_failed(const RankRecords<Record>& records, const std::exception_ptr& failure) const {
  for (std::int32_t rank = 0; rank < transport_.size(); ++rank)
    if (records.of(rank).has_failed != 0) throw_on_all(transport_, rank, failure);
}

void NodeSetup::write_facts(RankInfo& mine, const EngineOptions& options) noexcept {
  // Atomic only so that the other threads of a LocalTransport may read it by a system call while it lives.
  static std::atomic<std::uint64_t> probe{std::random_device{}() | std::uint64_t{1} << 40};
  mine.process = ::getpid();
  mine.probe_address = reinterpret_cast<std::uint64_t>(&probe);
  mine.probe_value = probe.load();
  mine.eager_bytes = options.eager_bytes;
  mine.caches = options.caches;
  static std::atomic<std::uint64_t> communicators{std::random_device{}()};
  mine.communicator = static_cast<std::uint16_t>(communicators.fetch_add(1, std::memory_order_relaxed));
  mine.single_copy = options.single_copy ? 1 : 0;
  if (!options.shared_memory) write(problem_, "switched off by PENSTOCK_SHARED_MEMORY");
  if (neighbours_.size() == 1 || !options.shared_memory) return;
  try {
    const auto local_size = static_cast<std::uint32_t>(neighbours_.size());
    // The first rank asks for all how much is free.
    const std::uint64_t free_bytes = local_rank_ == 0 ? host::Heap::of_process()->free_bytes() : ~std::uint64_t{0};
    const std::uint64_t wanted_bytes =
        options.shared_bytes != 0 ? options.shared_bytes : SegmentLayout::usual_bytes(local_size);
    const std::uint64_t limit_bytes = std::min(wanted_bytes, free_bytes / 2);  // others need some, too
    const SegmentLayout layout = SegmentLayout::fit(local_size, mine.eager_bytes, limit_bytes);
    if (layout.ranks == 0)
      throw Error(ErrorCode::no_space,
                  "given " + std::to_string(wanted_bytes) +
                      " bytes of shared memory (PENSTOCK_SHARED_BYTES) and half of the " + std::to_string(free_bytes) +
                      " bytes that are free in /dev/shm; expected more for " + std::to_string(local_size) + " ranks");
    segment_ = std::make_shared<Segment>(layout, local_rank_);
    mine.block = segment_->address();
    mine.sizes = layout.sizes();
  } catch (const std::exception& error) {
    write(problem_, error.what());
  }
}

void NodeSetup::exchange_facts(const EngineOptions& options, ConstBytes more, const std::exception_ptr& failure) {
  RankInfo mine{};
  if (failure == nullptr) {
    find_neighbours();
    write_facts(mine, options);
    mine.max_tag = transport_.max_tag();
  } else {
    mine.has_failed = 1;
  }
  infos_.exchange(transport_, mine, more);
  throw_if_failed(infos_, failure);
}

void NodeSetup::locate_segment() noexcept {
  if (segment_ == nullptr) return;
  SegmentSizes sizes = infos_.of(neighbours_[0]).sizes;
  for (const std::int32_t rank : neighbours_) sizes = sizes.common_with(infos_.of(rank).sizes);
  try {
    if (sizes.cells_per_rank > 0) {
      segment_->locate(SegmentLayout::of(static_cast<std::uint32_t>(neighbours_.size()), sizes),
                       [&](std::uint32_t i) { return infos_.of(neighbours_[i]).block; });
      is_mapped_ = true;
      return;
    }
  } catch (const std::exception& error) {
    write(problem_, error.what());
  }
  segment_.reset();
}

void NodeSetup::try_single_copy() noexcept {
  const auto give_up = [&](const char* what, int error) noexcept {
    std::snprintf(copy_problem_.data(), copy_problem_.size(), "%s%s%s", what, error != 0 ? ": " : "",
                  error != 0 ? std::strerror(error) : "");
  };
  if (infos_.of(transport_.rank()).single_copy == 0) return give_up("switched off by PENSTOCK_SINGLE_COPY", 0);
  for (const std::int32_t rank : neighbours_) {
    const RankInfo peer = infos_.of(rank);
    const host::AccessObstacle found =
        host::obstacle_to_access(static_cast<pid_t>(peer.process), peer.probe_address, peer.probe_value);
    if (found.what != nullptr) return give_up(found.what, found.error);
  }
  has_single_copy_ = true;
}

void NodeSetup::keep_promises() noexcept {
  if (std::exchange(are_kept_, true) || neighbours_.size() == 1) return;
  locate_segment();
  try_single_copy();
}

std::optional<Node> NodeSetup::promised(const EngineOptions& options) {
  keep_promises();
  const bool is_alone = neighbours_.size() == 1;
  const bool all_have_blocks =
      std::ranges::all_of(neighbours_, [&](std::int32_t rank) { return infos_.of(rank).sizes.cells_per_rank > 0; });
  const bool breaks_one =
      (all_have_blocks && !is_mapped_) || (infos_.of(transport_.rank()).single_copy != 0 && !has_single_copy_);
  if (problem_[0] != '\0' || (!is_alone && breaks_one)) return std::nullopt;
  for (std::int32_t rank = 0; rank < transport_.size(); ++rank) {
    const RankInfo info = infos_.of(rank);
    results_.set(rank, {.mapped = static_cast<std::uint8_t>(info.sizes.cells_per_rank > 0 ? 1 : 0),
                        .single_copy = info.single_copy,
                        .has_text = 0,
                        .is_ready = 0,
                        .has_failed = 0});
  }
  return finish(options);
}

bool NodeSetup::exchange_results(ConstBytes more, bool is_ready, const std::exception_ptr& failure) {
  keep_promises();
  const auto flag = [](bool is_set) { return static_cast<std::uint8_t>(is_set ? 1 : 0); };
  const SetupResult mine{.mapped = flag(is_mapped_),
                         .single_copy = flag(has_single_copy_),
                         .has_text = flag(neighbours_.size() > 1 && problem_[0] != '\0'),
                         .is_ready = flag(is_ready),
                         .has_failed = flag(failure != nullptr)};
  results_.exchange(transport_, mine, more);
  throw_if_failed(results_, failure);
  // From here on ranks of a node have its segment together, or do without.
  if (!std::ranges::all_of(neighbours_, [&](std::int32_t rank) { return results_.of(rank).mapped != 0; }))
    segment_.reset();
  if (segment_ != nullptr) segment_->join();
  bool are_all_ready = true;
  for (std::int32_t rank = 0; rank < transport_.size(); ++rank)
    are_all_ready = are_all_ready && results_.of(rank).is_ready != 0;
  if (!are_all_ready) agree_on_problem();
  return are_all_ready;
}

void NodeSetup::agree_on_problem() {
  for (std::int32_t rank = 0; rank < transport_.size() && first_with_problem_ < 0; ++rank)
    if (results_.of(rank).has_text != 0) first_with_problem_ = rank;
  if (first_with_problem_ < 0) return;
  std::array<std::uint64_t, sizeof(Text) / sizeof(std::uint64_t)> words{};
  if (first_with_problem_ == transport_.rank()) std::memcpy(words.data(), problem_.data(), sizeof words);
  transport_.maximum(words, {});
  std::memcpy(first_problem_.data(), words.data(), sizeof words);
}

/// Team and limits: the same on all ranks.
void NodeSetup::add_levels(Node& node, const EngineOptions& options) const {
  const std::vector<std::int32_t>& nodes = transport_.node_of_rank();
  struct Level {
    bool is_shared = true;  ///< all its ranks could
    std::uint32_t ranks = 0;
    SegmentSizes sizes;
  };
  std::map<std::int32_t, Level> levels;
  for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
    const SegmentSizes sizes = infos_.of(static_cast<std::int32_t>(rank)).sizes;
    Level& level = levels[nodes[rank]];
    level.sizes = level.ranks++ == 0 ? sizes : level.sizes.common_with(sizes);
    level.is_shared = level.is_shared && results_.of(static_cast<std::int32_t>(rank)).mapped != 0;
  }
  node.team.rank = transport_.rank();
  node.team.node_of_rank.reserve(nodes.size());
  std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> numbers;
  node.eager_bytes = infos_.of(0).eager_bytes;
  host::CacheSizes caches = infos_.of(0).caches;
  node.max_tag = infos_.of(0).max_tag;
  for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
    const RankInfo info = infos_.of(static_cast<std::int32_t>(rank));
    const bool is_shared = levels[nodes[rank]].is_shared;
    const auto key = std::pair(nodes[rank], is_shared ? -1 : static_cast<std::int32_t>(rank));
    const auto number = numbers.emplace(key, static_cast<std::int32_t>(numbers.size())).first->second;
    node.team.node_of_rank.push_back(number);
    node.eager_bytes = std::min(node.eager_bytes, info.eager_bytes);
    caches = {std::min(caches.core, info.caches.core), std::min(caches.last, info.caches.last)};
    node.max_tag = std::min(node.max_tag, info.max_tag);
    if (is_shared && results_.of(static_cast<std::int32_t>(rank)).single_copy == 0) node.team.single_copy = false;
  }
  node.team.message_bytes = node.eager_bytes;
  for (const auto& [number, level] : levels) {
    if (!level.is_shared) continue;
    const SegmentLayout layout = SegmentLayout::of(level.ranks, level.sizes);
    node.shared_limit_bytes =
        node.shared_limit_bytes == 0 ? layout.ring_bytes : std::min(node.shared_limit_bytes, layout.ring_bytes);
    if (layout.task_table_offset_bytes == 0) node.team.single_copy = false;
    if (level.ranks > 1) node.team.message_bytes = std::min(node.team.message_bytes, layout.payload_bytes);
  }
  node.team.shared_limit_bytes = node.shared_limit_bytes;
  node.team.core_cache_bytes = caches.core;
  node.team.last_cache_bytes = caches.last;
  // Where a node became several, nobody knows how many of these have one.
  node.team.progress_cores = numbers.size() == levels.size() ? options.progress_cores : 0;
}

Node NodeSetup::finish(const EngineOptions& options) {
  Node node;
  node.communicator = infos_.of(0).communicator;
  if (first_with_problem_ >= 0)
    node.facts.push_back("shared memory: given up on the node of rank " + std::to_string(first_with_problem_) + ": " +
                         first_problem_.data());
  add_levels(node, options);
  std::vector<std::int32_t> workers = options.progress_cpus;
  workers.resize(static_cast<std::size_t>(std::max(options.progress_threads, 0)), -1);
  node.workers = Progress::of_process().claim_threads(std::move(workers));

  node.local_rank.assign(static_cast<std::size_t>(transport_.size()), -1);
  node.segment = segment_;
  if (node.segment == nullptr) {
    if (node.facts.empty()) node.facts.push_back("shared memory: none, no other rank on this node");
    return node;
  }
  node.ranks.assign(neighbours_.begin(), neighbours_.end());
  node.single_copy = true;
  for (std::size_t i = 0; i < neighbours_.size(); ++i) {
    const std::int32_t rank = neighbours_[i];
    node.local_rank[static_cast<std::size_t>(rank)] = static_cast<std::int32_t>(i);
    node.process.push_back(static_cast<pid_t>(infos_.of(rank).process));
    if (results_.of(rank).single_copy != 0) continue;
    node.single_copy = false;
    if (copy_problem_[0] == '\0') write(copy_problem_, ("rank " + std::to_string(rank) + " says why").c_str());
  }
  node.facts.push_back("shared memory: " + std::to_string(neighbours_.size()) +
                       " ranks of this node, taken as needed, " +
                       std::to_string(node.segment->layout().total_bytes >> 10) + " KiB in /dev/shm at most");
  if (node.single_copy)
    node.facts.push_back("single copy: on, by process_vm_readv");
  else
    node.facts.push_back("single copy: given up, " + std::string(copy_problem_.data()) +
                         "; long messages are copied twice");
  return node;
}

}  // namespace penstock::engine
