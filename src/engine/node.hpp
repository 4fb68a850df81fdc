// Sets up the shared memory of a communicator's nodes.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.hpp"
#include "engine/segment.hpp"
#include "engine/transport.hpp"

namespace penstock::engine {

/// This rank's node, as the engine sees it.
struct Node {
  Team team;                             ///< its nodes are those that really share memory
  std::shared_ptr<Segment> segment;      ///< nullptr: this rank shares memory with no other rank
  std::vector<std::int32_t> ranks;       ///< by local rank; empty without a segment
  std::vector<std::int32_t> local_rank;  ///< by rank; -1 on other nodes
  std::vector<pid_t> process;            ///< by local rank
  /// A number, equal on all ranks and different from that of recent communicators. MPI may reuse the context of a freed
  /// communicator, so a new one can receive probes and notices that were sent to the old one; their number differs.
  std::uint16_t communicator = 0;
  int max_tag = 32767;                   ///< the smallest Transport::max_tag() of all ranks
  bool single_copy = false;              ///< ranks of the node can read each other's memory
  std::uint64_t eager_bytes = 0;         ///< the minimum over all ranks
  std::uint64_t shared_limit_bytes = 0;  ///< the smallest ring of all nodes
  std::vector<std::string> facts;        ///< for report()
  std::shared_ptr<const void> workers;   ///< holds the progress threads that the options ask for
};

/// How a Node is made: by two exchanges between the ranks, which also carry what the maker of the communicator has to
/// say, and whether a rank has failed. What keeps a rank from sharing memory makes all ranks of its node do without.
/// By the first exchange the ranks promise what they can do. If they keep the promises, which the second one tells, the
/// Node that was made of them in between is right, and all is done.
///
/// A rank that has failed, or has run out of memory, takes part in the next exchange, by which all ranks learn of it.
/// So nothing that exchanges need is allocated here, but by the caller.
class NodeSetup {
 public:
  /// Sizes of what the maker adds to each exchange.
  struct More {
    std::size_t facts_bytes = 0;
    std::size_t results_bytes = 0;
  };
  static std::size_t memory_bytes(int ranks, const More& more) noexcept;

  /// Local. `memory`: of memory_bytes().
  NodeSetup(Transport& transport, std::vector<std::byte> memory, const More& more) noexcept;
  ~NodeSetup();
  NodeSetup(const NodeSetup&) = delete;
  NodeSetup& operator=(const NodeSetup&) = delete;

  /// The first exchange. Blocking and collective. If a rank passes a `failure`, all ranks throw as all_or_none() does.
  /// `more`: of the size that the constructor was told, or shorter on all ranks.
  void exchange_facts(const EngineOptions& options, ConstBytes more = {}, const std::exception_ptr& failure = nullptr);
  /// Local. The node if all ranks keep their promises; std::nullopt: this rank does not. An engine of it may be made,
  /// but not used before exchange_results() has returned true.
  std::optional<Node> promised(const EngineOptions& options);
  /// The second exchange, as the first one. `is_ready`: this rank has made all that it needs of promised(). Returns
  /// whether all ranks have. If not, what was made of it must be destroyed, and finish() makes the node.
  bool exchange_results(ConstBytes more = {}, bool is_ready = false, const std::exception_ptr& failure = nullptr);
  /// What that rank has added to the facts, and to the results.
  ConstBytes more_facts_of(std::int32_t rank) const { return facts_.of(rank).subspan(facts_.own_bytes); }
  ConstBytes more_results_of(std::int32_t rank) const { return results_.of(rank).subspan(results_.own_bytes); }

  /// Local. Only the options of progress may differ from those of the exchanges.
  Node finish(const EngineOptions& options);

 private:
  struct RankInfo;
  struct SetupResult;
  using Text = std::array<char, 256>;

  /// A record of each rank: first what the engine needs, then what the maker has added.
  struct Gathered {
    Bytes bytes;
    std::size_t own_bytes;
    std::size_t stride_bytes = 0;

    ConstBytes of(std::int32_t rank) const {
      return ConstBytes(bytes).subspan(static_cast<std::size_t>(rank) * stride_bytes, stride_bytes);
    }
  };

  template <typename T>
  void exchange(const T& mine, ConstBytes more, Gathered& gathered);
  void find_neighbours() noexcept;
  template <typename Record>
  Record record_of(const Gathered& gathered, std::int32_t rank) const;
  RankInfo info_of(std::int32_t rank) const;
  SetupResult result_of(std::int32_t rank) const;
  template <typename Record>
  void throw_if_failed(const Gathered& gathered, const std::exception_ptr& failure) const;
  void write_facts(RankInfo& mine, const EngineOptions& options) noexcept;
  void keep_promises() noexcept;
  void locate_segment() noexcept;
  void try_single_copy() noexcept;
  void agree_on_problem();
  void add_levels(Node& node, const EngineOptions& options) const;

  Transport& transport_;
  std::vector<std::byte> memory_;
  std::span<std::int32_t> neighbours_;  ///< the ranks of this node
  Bytes sent_;
  Gathered facts_;
  Gathered results_;
  std::uint32_t local_rank_ = 0;
  Text problem_{};        ///< why this rank can share no memory
  Text copy_problem_{};   ///< why it cannot read that of others
  Text first_problem_{};  ///< that of the first rank that has one
  std::int32_t first_with_problem_ = -1;
  bool are_kept_ = false;   ///< keep_promises() has been called
  bool is_mapped_ = false;  ///< the memory of all ranks of the node
  bool has_single_copy_ = false;
  std::shared_ptr<Segment> segment_;
};

}  // namespace penstock::engine
