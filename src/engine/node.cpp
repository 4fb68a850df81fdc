#include "engine/node.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <random>
#include <system_error>

#include "engine/progress.hpp"
#include "engine/single_copy.hpp"

namespace penstock::engine {
namespace {

/// What every rank tells the others first.
struct Card {
  std::int64_t process;
  std::uint64_t probe_address;  ///< where the others may try to read probe_value
  std::uint64_t probe_value;
  std::uint64_t eager_bytes;
  std::uint64_t communicator;  ///< as rank 0 counts them
  std::int64_t max_tag;
  SegmentLayout layout;  ///< ranks == 0: this rank has made no segment
  char segment[64];
  char problem[160];
};

/// What every rank found then.
struct Verdict {
  std::uint8_t mapped;
  std::uint8_t single_copy;
  char problem[160];
  char single_copy_problem[96];
};

template <std::size_t N>
void write_text(char (&to)[N], const std::string& text) {
  std::memset(to, 0, N);
  std::memcpy(to, text.data(), std::min(text.size(), N - 1));
}

template <typename T>
std::vector<T> gather(Transport& transport, const T& mine) {
  std::vector<T> all(static_cast<std::size_t>(transport.size()));
  transport.allgather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  return all;
}

std::string problem_of(const std::exception& error) { return error.what(); }

std::string try_single_copy(const std::vector<Card>& cards, const std::vector<std::int32_t>& ranks) {
  for (const std::int32_t rank : ranks) {
    const Card& card = cards[static_cast<std::size_t>(rank)];
    std::uint64_t value = 0;
    const int error =
        read_memory(static_cast<pid_t>(card.process), card.probe_address, std::as_writable_bytes(std::span(&value, 1)));
    if (error != 0) return "process_vm_readv: " + std::generic_category().message(error);
    if (value != card.probe_value) return "the ranks do not see each other's process numbers";
    // Changes nothing, so that the others may do it at the same time.
    const int refused =
        write_memory(static_cast<pid_t>(card.process), card.probe_address, std::as_bytes(std::span(&value, 1)));
    if (refused != 0) return "process_vm_writev: " + std::generic_category().message(refused);
  }
  return {};
}

}  // namespace

Node Node::set_up(Transport& transport, const EngineOptions& options) {
  Node node;
  const std::vector<std::int32_t>& nodes = transport.node_of_rank();
  const auto me = static_cast<std::size_t>(transport.rank());
  std::vector<std::int32_t> neighbours;
  for (std::size_t rank = 0; rank < nodes.size(); ++rank)
    if (nodes[rank] == nodes[me]) neighbours.push_back(static_cast<std::int32_t>(rank));
  const auto local_rank = static_cast<std::uint32_t>(std::find(neighbours.begin(), neighbours.end(), transport.rank()) -
                                                     neighbours.begin());

  // Atomic only so that the other threads of a LocalTransport may read it by a system call while it lives.
  static std::atomic<std::uint64_t> probe{std::random_device{}() | std::uint64_t{1} << 40};
  Card card{};
  card.process = ::getpid();
  card.probe_address = reinterpret_cast<std::uint64_t>(&probe);
  card.probe_value = probe.load();
  card.eager_bytes = options.eager_bytes;
  card.max_tag = transport.max_tag();
  static std::atomic<std::uint64_t> communicators{std::random_device{}()};
  card.communicator = communicators.fetch_add(1, std::memory_order_relaxed);
  std::string problem = options.shared_memory ? "" : "switched off by PENSTOCK_SHARED_MEMORY";
  if (neighbours.size() > 1 && local_rank == 0 && problem.empty()) try {
      const std::uint64_t free_bytes = Segment::free_bytes();
      const auto layout = SegmentLayout::fit(static_cast<std::uint32_t>(neighbours.size()), options.eager_bytes,
                                             std::min(options.shared_bytes, free_bytes / 2));  // others need some, too
      if (layout.ranks == 0)
        throw Error(ErrorCode::no_space, "too little for " + std::to_string(neighbours.size()) +
                                             " ranks: PENSTOCK_SHARED_BYTES=" + std::to_string(options.shared_bytes) +
                                             ", and half of the " + std::to_string(free_bytes) +
                                             " bytes that are free in /dev/shm");
      node.segment = Segment::make(layout, local_rank);
      card.layout = layout;
      write_text(card.segment, node.segment->name());
    } catch (const std::exception& error) {
      problem = problem_of(error);
    }
  write_text(card.problem, problem);
  const std::vector<Card> cards = gather(transport, card);
  node.communicator = static_cast<std::uint16_t>(cards[0].communicator);

  Verdict verdict{};
  const Card& maker = cards[static_cast<std::size_t>(neighbours[0])];
  if (neighbours.size() > 1) {
    try {
      if (problem.empty() && maker.layout.ranks == 0) problem = maker.problem;
      if (problem.empty() && local_rank != 0) node.segment = Segment::open(maker.segment, maker.layout, local_rank);
    } catch (const std::exception& error) {
      problem = problem_of(error);
    }
    const std::string copy_problem =
        options.single_copy ? try_single_copy(cards, neighbours) : "switched off by PENSTOCK_SINGLE_COPY";
    verdict.mapped = problem.empty();
    verdict.single_copy = copy_problem.empty();
    write_text(verdict.problem, problem);
    write_text(verdict.single_copy_problem, copy_problem);
  }
  const std::vector<Verdict> verdicts = gather(transport, verdict);
  if (node.segment != nullptr) node.segment->unlink();

  // The same on all ranks: a node shares memory when all its ranks could.
  std::map<std::int32_t, bool> shares;
  for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
    const bool mapped = verdicts[rank].mapped != 0;
    const auto found = shares.emplace(nodes[rank], mapped).first;
    found->second = found->second && mapped;
    if (!mapped && verdicts[rank].problem[0] != '\0' && node.facts.empty())
      node.facts.push_back("shared memory: given up on the node of rank " + std::to_string(rank) + ": " +
                           verdicts[rank].problem);
  }
  node.team.rank = transport.rank();
  std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> numbers;
  node.eager_bytes = cards[0].eager_bytes;
  node.max_tag = static_cast<int>(cards[0].max_tag);
  for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
    const auto key = std::pair(nodes[rank], shares[nodes[rank]] ? -1 : static_cast<std::int32_t>(rank));
    const auto number = numbers.emplace(key, static_cast<std::int32_t>(numbers.size())).first->second;
    node.team.node_of_rank.push_back(number);
    node.eager_bytes = std::min(node.eager_bytes, cards[rank].eager_bytes);
    node.max_tag = std::min(node.max_tag, static_cast<int>(cards[rank].max_tag));
    const std::uint64_t arena =
        cards[rank].layout.ranks > 0 && shares[nodes[rank]] ? cards[rank].layout.arena_bytes : 0;
    if (arena > 0)
      node.shared_limit_bytes = node.shared_limit_bytes == 0 ? arena : std::min(node.shared_limit_bytes, arena);
  }
  node.team.shared_limit_bytes = node.shared_limit_bytes;
  // A rank that is alone on its node reads and writes its own memory.
  std::map<std::int32_t, int> ranks_of;
  for (const std::int32_t number : node.team.node_of_rank) ++ranks_of[number];
  for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
    const bool has_peers = ranks_of[node.team.node_of_rank[rank]] > 1;
    const bool has_board = cards[rank].layout.ranks == 0 || cards[rank].layout.board_offset_bytes != 0;
    if (has_peers && (verdicts[rank].single_copy == 0 || !has_board)) node.team.single_copy = false;
  }
  // Where a node became several, nobody knows how many of these have one.
  node.team.progress_cores = numbers.size() == shares.size() ? options.progress_cores : 0;
  std::vector<std::int32_t> workers = options.progress_cpus;
  workers.resize(static_cast<std::size_t>(std::max(options.progress_threads, 0)), -1);
  node.workers = Progress::of_process().claim_threads(std::move(workers));

  node.local_rank.assign(nodes.size(), -1);
  if (neighbours.size() < 2 || !shares[nodes[me]]) {
    node.segment.reset();
    if (node.facts.empty()) node.facts.push_back("shared memory: none, no other rank on this node");
    return node;
  }
  node.ranks = neighbours;
  node.single_copy = true;
  std::string copy_problem;
  for (std::size_t i = 0; i < neighbours.size(); ++i) {
    const auto rank = static_cast<std::size_t>(neighbours[i]);
    node.local_rank[rank] = static_cast<std::int32_t>(i);
    node.process.push_back(static_cast<pid_t>(cards[rank].process));
    if (verdicts[rank].single_copy == 0 && node.single_copy) {
      node.single_copy = false;
      copy_problem = verdicts[rank].single_copy_problem;
    }
  }
  node.facts.push_back("shared memory: " + std::to_string(neighbours.size()) + " ranks of this node, " +
                       std::to_string(node.segment->layout().total_bytes >> 10) + " KiB in /dev/shm");
  node.facts.push_back(node.single_copy
                           ? "single copy: on, by process_vm_readv"
                           : "single copy: given up, " + copy_problem + "; long messages are copied twice");
  return node;
}

}  // namespace penstock::engine
