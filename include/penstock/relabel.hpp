// How much two layouts have for each other, and the relabeling of the target's ranks that makes the communication
// between them cheapest (COPR: COSTA, Section 4 and Algorithm 1), as an exact linear assignment.
//
// All functions are pure: local, any thread, no communication. They throw Error(invalid_argument) where the shapes do
// not fit together under `op`.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/export.hpp"
#include "penstock/layout.hpp"

namespace penstock {

/// What happens to the source on its way: N, T and C of ScaLAPACK. The transpositions are for two dimensions.
enum class MatrixOp : std::uint8_t { none, transpose, conjugate_transpose };

/// From "N", "T" or "C". Throws Error(invalid_argument) for anything else.
PENSTOCK_API MatrixOp matrix_op_from_name(std::string_view name);

/// How much one rank of the source has for one rank of the target.
struct PairVolume {
  std::int32_t source = 0;
  std::int32_t target = 0;
  std::int64_t elems = 0;

  friend bool operator==(const PairVolume&, const PairVolume&) = default;
};

/// All pairs with something to move, in order of (source, target). Block-cyclic axes cost what one common period holds,
/// however long they are.
PENSTOCK_API std::vector<PairVolume> transfer_volumes(const Layout& source, const Layout& target,
                                                      MatrixOp op = MatrixOp::none);

/// Part of what one rank of the source has for one rank of the target.
struct TransferPackage {
  std::int32_t source = 0;
  std::uint64_t bytes = 0;
};

/// What packages cost: w(p_i, p_j, S) of COSTA, Section 3, in any unit. A value; copies share what it was made of.
class PENSTOCK_API TransferCost {
 public:
  /// Equation 1: the bytes that change their rank. Computed in integers. The default.
  TransferCost() = default;

  /// Between each two ranks L + B * bytes. Matrices in row order, entry (source, target) of ranks * ranks; what is on
  /// the diagonal is the cost of what stays on a rank (0: it is free).
  static TransferCost pairs(std::vector<double> latency, std::vector<double> per_byte);
  /// The same by the nodes on which the ranks live: matrices of nodes * nodes. Ranks of one node pay what is on the
  /// diagonal; what stays on a rank is free. O(n^2 + n * nodes^2) for n ranks, where the others take O(n^3).
  static TransferCost nodes(std::vector<std::int32_t> node_of_rank, std::vector<double> latency,
                            std::vector<double> per_byte);
  /// Any function of the source rank, the target rank and the bytes of a package (more than 0).
  static TransferCost function(std::function<double(std::int32_t, std::int32_t, std::uint64_t)> cost);
  /// Any function of all packages for one part of the target: it adds to cost[r] what these packages cost if rank r
  /// takes that part.
  using PartCost = std::function<void(std::span<const TransferPackage> packages, std::span<double> cost)>;
  static TransferCost parts(PartCost cost);

  /// This and, for every byte that rank r gets, also from itself, the cost per_byte[r] of transforming it on receipt.
  TransferCost with_transformation(std::vector<double> per_byte) const;

  bool is_volume() const { return terms_.empty(); }
  /// How many ranks this was made for; 0 where for any number.
  std::int32_t ranks() const { return ranks_; }
  /// Adds to cost[r] what these packages cost if rank r takes them.
  void add(std::span<const TransferPackage> packages, std::span<double> cost) const;

 private:
  void append(PartCost term, std::size_t ranks);

  std::vector<std::shared_ptr<const PartCost>> terms_;  ///< none: the volume
  std::int32_t ranks_ = 0;
};

/// Whether to look for a relabeling.
enum class RelabelPolicy : std::uint8_t {
  never,
  worthwhile,  ///< unless solving takes longer than all that a relabeling could save, by an estimate
  always,
};

struct RelabelOptions {
  std::size_t element_bytes = 1;
  MatrixOp op = MatrixOp::none;
  /// At least so many ranks, and all of both layouts, are permuted.
  std::int32_t ranks = 1;
  TransferCost cost = {};
  RelabelPolicy policy = RelabelPolicy::always;
  /// How often what is planned will run, for RelabelPolicy::worthwhile, which is for the volume only. It takes a rank
  /// to send 1 GB/s; what is estimated below a millisecond is always worth solving.
  double expected_runs = 100;
};

struct Relabeling {
  std::vector<std::int32_t> permutation;  ///< permutation[r]: the rank that takes the part of the target's rank r
  std::uint64_t bytes_before = 0;         ///< bytes that change their rank with the target as given
  std::uint64_t bytes_after = 0;          ///< ... with the target relabeled
  double cost_before = 0;                 ///< the same in the unit of the cost function
  double cost_after = 0;
  std::string skipped;  ///< why no relabeling was looked for; empty where it was, and the permutation is the best
};

/// The relabeling of least cost (COSTA, Theorem 1): exact, any permutation; the identity where nothing is better. For
/// costs other than the volume, which are real numbers, exact to 2^-53 of the greatest. Layouts of thousands of ranks
/// in which few have something for each other take memory for those that do, others 8 bytes for each two ranks.
PENSTOCK_API Relabeling relabel(const Layout& source, const Layout& target, const RelabelOptions& options);

/// For a square matrix of n*n weights: the column of each row such that the sum of the chosen weights is greatest.
/// Exact. O(n^3) worst case, mostly about 50 * n^2; memory O(n) besides the weights. The magnitudes must sum up to less
/// than 2^61, or n times the difference of the greatest and the least weight to less than 2^60.
PENSTOCK_API std::vector<std::int32_t> assign_max_weight(std::int32_t n, std::span<const std::int64_t> weights);

/// One weight above 0 of a matrix whose other weights are 0.
struct SparseWeight {
  std::int32_t row = 0;
  std::int32_t column = 0;
  std::int64_t weight = 0;
};
/// The same for few weights, in any order, none twice; memory O(n + weights).
PENSTOCK_API std::vector<std::int32_t> assign_max_weight_sparse(std::int32_t n, std::span<const SparseWeight> weights);

}  // namespace penstock
