// Redistribution: A = alpha*op(B) + beta*A, where B and A are n-d arrays in any two layouts on the ranks of one
// communicator (COSTA, Algorithm 3). Relabeling of the target's ranks (relabel.hpp) can reduce the communication.
#pragma once

#include <complex>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "penstock/export.hpp"
#include "penstock/layout.hpp"
#include "penstock/plan.hpp"
#include "penstock/relabel.hpp"
#include "penstock/types.hpp"

namespace penstock {

class Comm;
class Request;

struct RedistributionOptions {
  DType dtype = DType::float64;
  /// Element type of the source. Empty: `dtype`. Elements are converted to `dtype`; then alpha, beta and op apply. The
  /// smaller of the two types travels. No conversion from complex to real, or from floating point to integer.
  std::optional<DType> source_dtype = {};
  MatrixOp op = MatrixOp::none;
  /// Whether relabel() permutes the target's ranks, and the cost it minimizes. Rank 0 computes it for all ranks.
  RelabelPolicy relabel = RelabelPolicy::never;
  TransferCost cost = {};
  double expected_runs = RelabelOptions{}.expected_runs;
  /// One relabeling for all targets of a batch, so that parts that belong together stay on one rank. Needs `relabel`.
  bool relabel_jointly = false;
  /// Length of a segment. Data between two ranks moves in segments, so that packing, transfer and unpacking overlap and
  /// stay in the caches. A few segments per pair are in flight, in scratch memory. Equal on all ranks.
  std::uint64_t segment_bytes = std::uint64_t{1} << 20;

  /// Move a subarray only: `shape` (of the source, before op) from `source_begin` to `target_begin`. The rest of the
  /// target keeps its values. Empty: the whole array. Equal on all ranks.
  std::vector<std::int64_t> source_begin = {};
  std::vector<std::int64_t> target_begin = {};
  std::vector<std::int64_t> shape = {};
  /// Leading dimensions of this rank's local arrays, see Layout::local_memory(). Ranks may differ.
  std::int64_t source_leading_elems = 0;
  std::int64_t target_leading_elems = 0;

  DType input_dtype() const { return source_dtype.value_or(dtype); }
  bool has_subarray() const { return !source_begin.empty() || !target_begin.empty() || !shape.empty(); }
};

/// The subarrays of source and target that the options select, as layouts. Pass them to relabel() and
/// transfer_volumes(). Throws Error(invalid_argument) if a subarray does not lie inside its array.
struct MovedLayouts {
  Layout source;
  Layout target;
};
PENSTOCK_API MovedLayouts moved_layouts(const Layout& source, const Layout& target,
                                        const RedistributionOptions& options);

/// The plan of one rank of a team, which may be larger than either layout. Pure and local. Between nodes, the plan
/// sends one message per pair of ranks and segment; the source packs it, and the target unpacks it with op, alpha and
/// beta. Data that stays on a rank moves directly from input to output; so do long runs between ranks of a node that
/// can read each other's memory. No rank writes its output before all ranks have started: an operation with invalid
/// arguments writes nothing.
PENSTOCK_API Plan plan_redistribution(const Layout& source, const Layout& target, const RedistributionOptions& options,
                                      const Team& team);

struct LayoutPair {
  Layout source;
  Layout target;
  /// Placement of this rank's parts, see Layout::placed_memory(). Empty: dense, or with the leading dimension of the
  /// options. Ranks may differ.
  std::optional<LocalMemory> source_memory = {};
  std::optional<LocalMemory> target_memory = {};
};

/// One of a rank's local arrays (Layout::local_part_shapes()), with its own memory and strides.
struct ConstStridedPart {
  const std::byte* data = nullptr;          ///< first element (all indices 0)
  std::vector<std::int64_t> strides_elems;  ///< one per dimension; may be negative
};
struct StridedPart {
  std::byte* data = nullptr;
  std::vector<std::int64_t> strides_elems;
};
/// All local arrays of a rank, for one side of one pair.
using ConstStridedParts = std::vector<ConstStridedPart>;
using StridedParts = std::vector<StridedPart>;

/// Memory for the messages of a run, instead of memory of the communicator. Writable, at least workspace_bytes() at any
/// alignment, disjoint from inputs and outputs. Belongs to the operation until the request is complete. Its contents
/// are undefined before and after.
using Workspace = std::optional<Bytes>;

/// The same for several pairs, which share messages. The plan's input and output are the memories of the pairs, one
/// after another, each at a multiple of 64 bytes.
PENSTOCK_API Plan plan_redistribution(std::span<const LayoutPair> pairs, const RedistributionOptions& options,
                                      const Team& team);

/// Several redistributions, planned once and run together any number of times. Data of all pairs between two ranks
/// travels in the same messages, so small arrays pay one latency. A handle: copies share the plan.
class PENSTOCK_API RedistributionBatch {
 public:
  /// Plans. Collective and blocking. All pairs have the dtype and op of the options; each target is relabeled
  /// separately, or all jointly if the options say so. With more than one pair, whole arrays move, from dense memory.
  /// Errors, on every rank: invalid arguments throw the same Error if all ranks pass them, Error(mismatch) if ranks
  /// pass different ones, and Error(peer_failed) on ranks whose own arguments are valid.
  RedistributionBatch(const Comm& comm, std::vector<LayoutPair> pairs, const RedistributionOptions& options);

  std::size_t size() const;
  /// The layouts of inputs and outputs: the sources, and the targets after relabeling.
  const std::vector<LayoutPair>& pairs() const;
  const RedistributionOptions& options() const;
  /// One per pair. Without relabeling: the identity, with equal bytes. Relabeled jointly they have one permutation,
  /// and each its pair's bytes and cost.
  const std::vector<Relabeling>& relabelings() const;
  /// This rank's plan.
  const Plan& plan() const;
  /// Size of this rank's memory for a pair, as start() expects it.
  std::uint64_t local_input_bytes(std::size_t pair) const;
  std::uint64_t local_output_bytes(std::size_t pair) const;
  /// Size of this rank's workspace, for any strides. It holds messages to and from other nodes, and packed data for
  /// remote reads by ranks of this node. 0 if there is neither.
  std::uint64_t workspace_bytes() const;

  /// Starts outputs[i] = alpha*op(inputs[i]) + beta*outputs[i], on this rank's parts of each pair. Parts are dense as
  /// the layouts say, or have the leading dimension of the options. Collective and non-blocking: the memory belongs to
  /// the operation until the request is complete. With beta 0 the outputs are not read. Wrong sizes, overlapping
  /// memory, or factors that the dtype cannot represent throw Error(invalid_argument) here and Error(peer_failed) on
  /// the other ranks; no output changes then. Allocates if the relative placement differs from the last run of a batch.
  Request start(std::span<const ConstBytes> inputs, std::span<const Bytes> outputs, std::complex<double> alpha = 1.0,
                std::complex<double> beta = 0.0, Workspace workspace = {}) const;
  /// start(), then wait.
  void run(std::span<const ConstBytes> inputs, std::span<const Bytes> outputs, std::complex<double> alpha = 1.0,
           std::complex<double> beta = 0.0, Workspace workspace = {}) const;
  /// The same with strided local arrays. The arrays of a pair must lie a multiple of the element size apart. If their
  /// relative placement differs from the last runs, this rank plans its side again. Ranks may mix start() and this.
  Request start_parts(std::span<const ConstStridedParts> inputs, std::span<const StridedParts> outputs,
                      std::complex<double> alpha = 1.0, std::complex<double> beta = 0.0,
                      Workspace workspace = {}) const;
  /// For a rank that cannot call start() because its caller's arguments are invalid: fails the operation on all ranks
  /// with this message. Never blocks.
  void fail(const std::string& message) const noexcept;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// A batch of one pair.
class PENSTOCK_API Redistribution {
 public:
  Redistribution(const Comm& comm, const Layout& source, const Layout& target, const RedistributionOptions& options)
      : batch_(comm, {{source, target}}, options) {}

  const Layout& source() const { return batch_.pairs()[0].source; }
  const Layout& target() const { return batch_.pairs()[0].target; }
  const RedistributionOptions& options() const { return batch_.options(); }
  const Relabeling& relabeling() const { return batch_.relabelings()[0]; }
  const Plan& plan() const { return batch_.plan(); }
  std::uint64_t local_input_bytes() const { return batch_.local_input_bytes(0); }
  std::uint64_t local_output_bytes() const { return batch_.local_output_bytes(0); }

  std::uint64_t workspace_bytes() const { return batch_.workspace_bytes(); }

  Request start(ConstBytes input, Bytes output, std::complex<double> alpha = 1.0, std::complex<double> beta = 0.0,
                Workspace workspace = {}) const;
  void run(ConstBytes input, Bytes output, std::complex<double> alpha = 1.0, std::complex<double> beta = 0.0,
           Workspace workspace = {}) const;
  Request start_parts(const ConstStridedParts& input, const StridedParts& output, std::complex<double> alpha = 1.0,
                      std::complex<double> beta = 0.0, Workspace workspace = {}) const;
  void fail(const std::string& message) const noexcept { batch_.fail(message); }

 private:
  RedistributionBatch batch_;
};

/// The arguments of start_redistribution().
struct RedistributionCall {
  const Layout& source;
  const Layout& target;
  const RedistributionOptions& options;
  std::complex<double> alpha = 1.0;
  std::complex<double> beta = 0.0;
  Workspace workspace = {};
};

/// Starts output = alpha*op(input) + beta*output with a plan that the communicator caches. Collective. A call with the
/// layouts, types, op and subarray of a cached plan starts at once, whatever its memory. Another call plans first, and
/// blocks until all ranks have planned. All ranks pass equal arguments, except memory, leading dimensions and
/// workspace. If they differ, all ranks throw Error(mismatch), or Error(peer_failed) with its text, and nothing is
/// written. Options that ask for relabeling throw Error(invalid_argument), since relabeling changes the target's
/// layout.
PENSTOCK_API Request start_redistribution(const Comm& comm, const RedistributionCall& call, ConstBytes input,
                                          Bytes output);
PENSTOCK_API Request start_redistribution(const Comm& comm, const RedistributionCall& call,
                                          const ConstStridedParts& input, const StridedParts& output);
PENSTOCK_API void run_redistribution(const Comm& comm, const RedistributionCall& call, ConstBytes input, Bytes output);

}  // namespace penstock
