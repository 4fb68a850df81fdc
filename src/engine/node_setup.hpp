// Sets up the shared memory of a communicator's nodes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/engine.hpp"
#include "engine/node.hpp"
#include "engine/rank_records.hpp"
#include "engine/transport.hpp"

namespace penstock::engine {

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
  ConstBytes more_facts_of(std::int32_t rank) const { return infos_.more_of(rank); }
  ConstBytes more_results_of(std::int32_t rank) const { return results_.more_of(rank); }

  /// Local. Only the options of progress may differ from those of the exchanges.
  Node finish(const EngineOptions& options);

 private:
  /// What every rank tells the others first.
  struct RankInfo {
    std::int32_t process;
    std::uint16_t communicator;   ///< Node::communicator; rank 0's counts
    std::uint64_t probe_address;  ///< other ranks test single copy by reading probe_value there
    std::uint64_t probe_value;
    std::uint64_t eager_bytes;
    host::CacheSizes caches;
    SegmentSizes sizes;  ///< of its block; without cells: it has none, and its node does without shared memory
    BlockAddress block;
    std::int32_t max_tag;      ///< Transport::max_tag()
    std::uint8_t single_copy;  ///< it tries it
    std::uint8_t has_failed;   ///< then nothing else counts
  };

  /// What every rank found then.
  struct SetupResult {
    std::uint8_t mapped;
    std::uint8_t single_copy;
    std::uint8_t has_text;  ///< it has a text that says what failed
    std::uint8_t is_ready;  ///< see exchange_results()
    std::uint8_t has_failed;
  };
  using Text = std::array<char, 256>;

  void find_neighbours() noexcept;
  template <typename Record>
  void throw_if_failed(const RankRecords<Record>& records, const std::exception_ptr& failure) const;
  void write_facts(RankInfo& mine, const EngineOptions& options) noexcept;
  void keep_promises() noexcept;
  void locate_segment() noexcept;
  void try_single_copy() noexcept;
  void agree_on_problem();
  void add_levels(Node& node, const EngineOptions& options) const;

  Transport& transport_;
  std::vector<std::byte> memory_;
  std::span<std::int32_t> neighbours_;  ///< the ranks of this node
  RankRecords<RankInfo> infos_;
  RankRecords<SetupResult> results_;
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
