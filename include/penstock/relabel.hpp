// The volume that two layouts exchange, and the relabeling of the target's ranks with the least communication (COPR:
// COSTA, Section 4 and Algorithm 1), as an exact linear assignment.
//
// All functions are pure: local, thread-safe, no communication. They throw Error(invalid_argument) if the shapes do not
// match under `op`.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/export.hpp"
#include "penstock/layout.hpp"

namespace penstock {

/// The op of A = alpha*op(B) + beta*A: ScaLAPACK's N, T and C. T and C need two dimensions.
enum class MatrixOp : std::uint8_t { none, transpose, conjugate_transpose };

/// From "N", "T" or "C". Throws Error(invalid_argument) for other names.
PENSTOCK_API MatrixOp matrix_op_from_name(std::string_view name);

/// Number of elements that a rank of the source sends to a rank of the target.
struct PairVolume {
  std::int32_t source = 0;
  std::int32_t target = 0;
  std::int64_t elems = 0;

  friend bool operator==(const PairVolume&, const PairVolume&) = default;
};

/// All pairs of ranks with elements to move, sorted by (source, target). For block-cyclic axes the time depends on
/// their common period, not on their length.
PENSTOCK_API std::vector<PairVolume> transfer_volumes(const Layout& source, const Layout& target,
                                                      MatrixOp op = MatrixOp::none);

/// The data that one rank of the source sends to a given rank of the target.
struct TransferPackage {
  std::int32_t source = 0;
  std::uint64_t bytes = 0;
};

/// The cost of packages: w(p_i, p_j, S) of COSTA, Section 3, in any unit. A value; copies share its definition.
class PENSTOCK_API TransferCost {
 public:
  /// Equation 1: the bytes that change rank, computed in integers. The default.
  TransferCost() = default;

  /// latency + per_byte * bytes, for each pair of ranks. Matrices of ranks * ranks in row-major order, entry (source,
  /// target). The diagonal is the cost of data that stays on its rank (0: free).
  static TransferCost pairs(std::vector<double> latency, std::vector<double> per_byte);
  /// The same by node, with matrices of nodes * nodes. The diagonal is for ranks of one node. Data that stays on its
  /// rank is free. Takes O(n^2 + n * nodes^2) for n ranks; the other costs take O(n^3).
  static TransferCost nodes(std::vector<std::int32_t> node_of_rank, std::vector<double> latency,
                            std::vector<double> per_byte);
  /// Any function of the source rank, the target rank and the bytes (> 0) of a package.
  static TransferCost function(std::function<double(std::int32_t, std::int32_t, std::uint64_t)> cost);
  /// Any function of all packages for one part of the target. It adds to cost[r] their cost if rank r takes that part.
  using PartCost = std::function<void(std::span<const TransferPackage> packages, std::span<double> cost)>;
  static TransferCost parts(PartCost cost);

  /// This cost, plus per_byte[r] for each byte that rank r receives and transforms, from itself too.
  TransferCost with_transformation(std::vector<double> per_byte) const;

  bool is_volume() const { return terms_.empty(); }
  /// The number of ranks that this is made for; 0: any.
  std::int32_t ranks() const { return ranks_; }
  /// Adds to cost[r] the cost of these packages if rank r receives them.
  void add(std::span<const TransferPackage> packages, std::span<double> cost) const;

 private:
  void append(PartCost term, std::size_t ranks);

  std::vector<std::shared_ptr<const PartCost>> terms_;  ///< empty: the volume
  std::int32_t ranks_ = 0;
};

/// Whether to search for a relabeling.
enum class RelabelPolicy : std::uint8_t {
  never,
  worthwhile,  ///< unless the search is estimated to take longer than a relabeling can save
  always,
};

struct RelabelOptions {
  std::size_t element_bytes = 1;
  MatrixOp op = MatrixOp::none;
  /// Permute at least this many ranks, and at least all ranks of both layouts.
  std::int32_t ranks = 1;
  TransferCost cost = {};
  RelabelPolicy policy = RelabelPolicy::always;
  /// Number of runs of the plan, for RelabelPolicy::worthwhile, which applies to the volume only. It assumes that a
  /// rank sends 1 GB/s. A search below an estimated millisecond is always worthwhile.
  double expected_runs = 100;
};

struct Relabeling {
  std::vector<std::int32_t> permutation;  ///< rank permutation[r] takes the part of the target's rank r
  std::uint64_t bytes_before = 0;         ///< bytes that change rank, with the target as given
  std::uint64_t bytes_after = 0;          ///< bytes that change rank, with the target relabeled
  double cost_before = 0;                 ///< the same in the unit of the cost
  double cost_after = 0;
  std::string skipped;  ///< why there was no search; empty if there was one: the permutation is then optimal
};

/// The relabeling with the least cost (COSTA, Theorem 1). Exact, over all permutations; the identity if none is better.
/// Costs other than the volume are real numbers: exact to 2^-53 of the largest. Memory: if few pairs of thousands of
/// ranks have elements to move, proportional to these; else 8 bytes per pair of ranks.
PENSTOCK_API Relabeling relabel(const Layout& source, const Layout& target, const RelabelOptions& options);

/// The layout of a redistribution whose ranks are permuted.
enum class RelabeledSide : std::uint8_t { source, target };

/// One of several redistributions whose layouts are relabeled together.
struct RelabelTransfer {
  Layout source;
  Layout target;
  RelabeledSide side = RelabeledSide::target;
  std::optional<std::size_t> element_bytes = {};  ///< empty: that of the options
  std::optional<MatrixOp> op = {};                ///< empty: that of the options
};

/// One permutation for several layouts, with the least sum of costs: for arrays that meet in a computation, such as the
/// factors and the product of a matrix product, whose parts then stay on the same ranks (COSTA, Section 7.3). Rank
/// permutation[r] takes the parts of rank r in each relabeled layout. Bytes and costs are sums over all transfers. Data
/// that several transfers move between the same two ranks is one package. With a relabeled source only the volume can
/// be minimized: other costs throw Error(invalid_argument). No transfers: the identity of options.ranks.
PENSTOCK_API Relabeling relabel(std::span<const RelabelTransfer> transfers, const RelabelOptions& options);

/// Linear assignment: one column per row of an n*n matrix, with the largest sum of weights. Exact. O(n^3) in the worst
/// case, usually about 50 * n^2; memory O(n) besides the weights. The sum of the magnitudes must be less than 2^61, or
/// n times the difference of the largest and the smallest weight less than 2^60.
PENSTOCK_API std::vector<std::int32_t> assign_max_weight(std::int32_t n, std::span<const std::int64_t> weights);

/// A positive entry of a sparse matrix of weights.
struct SparseWeight {
  std::int32_t row = 0;
  std::int32_t column = 0;
  std::int64_t weight = 0;
};
/// The same for a sparse matrix. Entries may have any order; no position occurs twice. Memory O(n + weights).
PENSTOCK_API std::vector<std::int32_t> assign_max_weight_sparse(std::int32_t n, std::span<const SparseWeight> weights);

}  // namespace penstock
