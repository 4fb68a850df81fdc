// Sets up the shared memory of a communicator's nodes.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.hpp"
#include "engine/segment.hpp"
#include "engine/transport.hpp"

namespace penstock::engine {

/// This rank's node, as the engine sees it.
struct Node {
  Team team;                             ///< its nodes are those that really share memory
  std::unique_ptr<Segment> segment;      ///< nullptr: this rank shares memory with no other rank
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
/// say. Whatever fails on one rank makes all ranks of its node do without shared memory.
class NodeSetup {
 public:
  /// Local. Takes all memory that the exchanges need; `more_*_bytes` bound what the maker adds to each.
  NodeSetup(Transport& transport, const EngineOptions& options, std::size_t more_facts_bytes = 0,
            std::size_t more_results_bytes = 0);
  ~NodeSetup();
  NodeSetup(const NodeSetup&) = delete;
  NodeSetup& operator=(const NodeSetup&) = delete;

  /// Blocking and collective, one after the other, with as many bytes on all ranks.
  void exchange_facts(ConstBytes more = {});
  void exchange_results(ConstBytes more = {});
  /// What that rank has added to the facts, and to the results.
  ConstBytes more_facts_of(std::int32_t rank) const;
  ConstBytes more_results_of(std::int32_t rank) const;

  /// Local. `options` replaces the options of the constructor; only those of progress may differ.
  Node finish(const EngineOptions& options);

 private:
  struct RankInfo;
  struct SetupResult;
  using Text = std::array<char, 256>;

  /// What all ranks have sent: of each first what the engine needs, then what the maker has added.
  struct Gathered {
    std::vector<std::byte> bytes;
    std::size_t stride_bytes = 0;
  };

  template <typename T>
  void exchange(const T& mine, ConstBytes more, Gathered& gathered);
  RankInfo info_of(std::int32_t rank) const;
  SetupResult result_of(std::int32_t rank) const;
  void write_facts(RankInfo& mine, const EngineOptions& options) noexcept;
  void take_segment(SetupResult& mine) noexcept;
  void try_single_copy(SetupResult& mine) noexcept;
  void add_levels(Node& node) const;

  Transport& transport_;
  EngineOptions options_;
  std::vector<std::int32_t> neighbours_;  ///< the ranks of this node
  std::uint32_t local_rank_ = 0;
  Text problem_{};        ///< why this rank can share no memory
  Text copy_problem_{};   ///< why it cannot read that of others
  Text first_problem_{};  ///< that of the first rank that has one
  std::int32_t first_with_problem_ = -1;
  std::unique_ptr<Segment> segment_;
  std::vector<std::byte> sent_;
  Gathered facts_;
  Gathered results_;
};

}  // namespace penstock::engine
