// The neighbours of each rank: what neighbourhood collectives communicate along.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "penstock/export.hpp"

namespace penstock {

/// One end of an edge, as the rank at the other end sees it.
struct Neighbor {
  static constexpr std::int32_t kNone = -1;
  std::int32_t rank = kNone;  ///< kNone: MPI_PROC_NULL. Its block is neither sent nor written
  std::uint32_t edge = 0;     ///< tells apart the edges from one rank to another; the same at both ends

  friend bool operator==(const Neighbor&, const Neighbor&) = default;
};

/// A directed graph over the ranks of a communicator. Each rank has its sources and its destinations in an order of
/// their own: that of the blocks in its receive and its send buffer. An edge may lead back to its rank, and there may
/// be several between two ranks. Immutable.
class PENSTOCK_API Graph {
 public:
  /// Edges from one rank to another: at most.
  static constexpr std::uint32_t kMostEdges = 4096;

  /// Element r of each list: the sources, and the destinations, of rank r; Neighbor::kNone is allowed. The i-th place
  /// of b among the destinations of a is the i-th place of a among the sources of b, as in MPI_Dist_graph_create.
  /// Throws Error(invalid_argument) if a rank does not exist, or if the two sides differ.
  Graph(const std::vector<std::vector<std::int32_t>>& sources,
        const std::vector<std::vector<std::int32_t>>& destinations);
  /// A Cartesian grid, ranks in row-major order, as MPI_Cart_create makes it. Sources and destinations of a rank: for
  /// each dimension the one below, then the one above. What is sent upwards comes from below, even if both are the same
  /// rank. Throws Error(invalid_argument) for lists of different lengths, and for dimensions below 1.
  static Graph cartesian(std::span<const std::int32_t> dimensions, const std::vector<bool>& periodic);

  std::int32_t size() const { return static_cast<std::int32_t>(sources_.begin.size()) - 1; }
  std::span<const Neighbor> sources(std::int32_t rank) const { return sources_.of(rank); }
  std::span<const Neighbor> destinations(std::int32_t rank) const { return destinations_.of(rank); }
  /// The index in destinations(rank) of the other end of an edge in sources(), and the other way round.
  std::size_t index_at_source(std::int32_t rank, const Neighbor& source) const;
  std::size_t index_at_destination(std::int32_t rank, const Neighbor& destination) const;
  std::uint64_t hash() const { return hash_; }

  friend bool operator==(const Graph& a, const Graph& b) {
    return a.sources_ == b.sources_ && a.destinations_ == b.destinations_;
  }

 private:
  /// Of all ranks, one after the other: rank r has [begin[r], begin[r + 1]).
  struct Lists {
    std::vector<std::size_t> begin{0};
    std::vector<Neighbor> all{};

    std::span<const Neighbor> of(std::int32_t rank) const {
      const auto at = static_cast<std::size_t>(rank);
      return std::span(all).subspan(begin[at], begin[at + 1] - begin[at]);
    }
    void add(std::span<const Neighbor> list) {
      all.insert(all.end(), list.begin(), list.end());
      begin.push_back(all.size());
    }
    friend bool operator==(const Lists&, const Lists&) = default;
  };

  Graph() = default;
  void finish();

  Lists sources_;
  Lists destinations_;
  std::uint64_t hash_ = 0;
};

}  // namespace penstock
