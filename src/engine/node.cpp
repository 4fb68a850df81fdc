#include "engine/node.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
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
  std::int32_t process;
  std::uint16_t communicator;   ///< as rank 0 counts them
  std::uint64_t probe_address;  ///< where the others may try to read probe_value
  std::uint64_t probe_value;
  std::uint64_t eager_bytes;
  std::uint64_t limit_bytes;  ///< of the node's segment, as its first rank sees it; 0: there can be none
  HeapAddress heap;           ///< no descriptor: this rank has none
  std::int64_t max_tag;
};

/// What every rank found then.
struct Verdict {
  std::uint8_t mapped;
  std::uint8_t single_copy;
  std::uint8_t has_text;  ///< to say why not
  std::uint64_t block_offset;
};

using Text = std::array<char, 256>;

Text text_of(const std::string& text) {
  Text result{};
  std::memcpy(result.data(), text.data(), std::min(text.size(), result.size() - 1));
  return result;
}

template <typename T>
std::vector<T> gather(Transport& transport, const T& mine) {
  std::vector<T> all(static_cast<std::size_t>(transport.size()));
  transport.allgather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  return all;
}

/// The layout of a node's segment, from what its first rank has told.
SegmentLayout layout_of(std::uint32_t ranks, const Card& first) {
  return SegmentLayout::fit(ranks, first.eager_bytes, first.limit_bytes);
}

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
  card.communicator = static_cast<std::uint16_t>(communicators.fetch_add(1, std::memory_order_relaxed));
  std::string problem = options.shared_memory ? "" : "switched off by PENSTOCK_SHARED_MEMORY";
  const bool has_neighbours = neighbours.size() > 1;
  const auto local_size = static_cast<std::uint32_t>(neighbours.size());
  if (has_neighbours && problem.empty()) try {
      card.heap = Heap::of_process()->address();
      if (local_rank == 0) {
        const std::uint64_t free_bytes = Heap::free_bytes();
        card.limit_bytes = std::min(options.shared_bytes, free_bytes / 2);  // others need some, too
        if (layout_of(local_size, card).ranks == 0) {
          card.limit_bytes = 0;
          throw Error(ErrorCode::no_space, "too little for " + std::to_string(local_size) +
                                               " ranks: PENSTOCK_SHARED_BYTES=" + std::to_string(options.shared_bytes) +
                                               ", and half of the " + std::to_string(free_bytes) +
                                               " bytes that are free in /dev/shm");
        }
      }
    } catch (const std::exception& error) {
      problem = error.what();
    }
  const std::vector<Card> cards = gather(transport, card);
  node.communicator = cards[0].communicator;

  Verdict verdict{};
  std::string copy_problem;
  if (has_neighbours) {
    const auto has_heap = [&](std::int32_t rank) { return cards[static_cast<std::size_t>(rank)].heap.descriptor >= 0; };
    const Card& first = cards[static_cast<std::size_t>(neighbours[0])];
    if (problem.empty() && first.limit_bytes > 0 && std::ranges::all_of(neighbours, has_heap)) try {
        node.segment = std::make_unique<Segment>(layout_of(local_size, first), local_rank);
        for (std::uint32_t i = 0; i < local_size; ++i)
          node.segment->meet(i, cards[static_cast<std::size_t>(neighbours[i])].heap);
        verdict.block_offset = node.segment->address().offset;
        verdict.mapped = 1;
      } catch (const std::exception& error) {
        problem = error.what();
      }
    copy_problem = options.single_copy ? try_single_copy(cards, neighbours) : "switched off by PENSTOCK_SINGLE_COPY";
    verdict.single_copy = copy_problem.empty();
    verdict.has_text = !problem.empty();
  }
  const std::vector<Verdict> verdicts = gather(transport, verdict);
  const bool shares_here = has_neighbours && std::ranges::all_of(neighbours, [&](std::int32_t rank) {
                             return verdicts[static_cast<std::size_t>(rank)].mapped != 0;
                           });
  if (shares_here)
    node.segment->join([&](std::uint32_t i) { return verdicts[static_cast<std::size_t>(neighbours[i])].block_offset; });
  else
    node.segment.reset();

  // The same on all ranks: a node shares memory when all its ranks could.
  std::map<std::int32_t, bool> shares;
  std::map<std::int32_t, std::uint32_t> sizes;
  for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
    const bool mapped = verdicts[rank].mapped != 0;
    const auto found = shares.emplace(nodes[rank], mapped).first;
    found->second = found->second && mapped;
    ++sizes[nodes[rank]];
  }
  const auto with_text = std::ranges::find_if(verdicts, [](const Verdict& each) { return each.has_text != 0; });
  if (with_text != verdicts.end()) {
    const std::vector<Text> texts = gather(transport, text_of(problem));
    const auto rank = static_cast<std::size_t>(with_text - verdicts.begin());
    node.facts.push_back("shared memory: given up on the node of rank " + std::to_string(rank) + ": " +
                         texts[rank].data());
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
    if (!shares[nodes[rank]]) continue;
    if (verdicts[rank].single_copy == 0) node.team.single_copy = false;
    if (cards[rank].limit_bytes == 0) continue;
    // The first rank of its node.
    const SegmentLayout layout = layout_of(sizes[nodes[rank]], cards[rank]);
    node.shared_limit_bytes =
        node.shared_limit_bytes == 0 ? layout.arena_bytes : std::min(node.shared_limit_bytes, layout.arena_bytes);
    if (layout.board_offset_bytes == 0) node.team.single_copy = false;
  }
  node.team.shared_limit_bytes = node.shared_limit_bytes;
  // Where a node became several, nobody knows how many of these have one.
  node.team.progress_cores = numbers.size() == shares.size() ? options.progress_cores : 0;
  std::vector<std::int32_t> workers = options.progress_cpus;
  workers.resize(static_cast<std::size_t>(std::max(options.progress_threads, 0)), -1);
  node.workers = Progress::of_process().claim_threads(std::move(workers));

  node.local_rank.assign(nodes.size(), -1);
  if (!shares_here) {
    if (node.facts.empty()) node.facts.push_back("shared memory: none, no other rank on this node");
    return node;
  }
  node.ranks = neighbours;
  node.single_copy = true;
  for (std::size_t i = 0; i < neighbours.size(); ++i) {
    const auto rank = static_cast<std::size_t>(neighbours[i]);
    node.local_rank[rank] = static_cast<std::int32_t>(i);
    node.process.push_back(static_cast<pid_t>(cards[rank].process));
    if (verdicts[rank].single_copy != 0) continue;
    node.single_copy = false;
    if (copy_problem.empty()) copy_problem = "rank " + std::to_string(rank) + " says why";
  }
  node.facts.push_back("shared memory: " + std::to_string(neighbours.size()) +
                       " ranks of this node, taken as needed, " +
                       std::to_string(node.segment->layout().total_bytes >> 10) + " KiB in /dev/shm at most");
  node.facts.push_back(node.single_copy
                           ? "single copy: on, by process_vm_readv"
                           : "single copy: given up, " + copy_problem + "; long messages are copied twice");
  return node;
}

}  // namespace penstock::engine
