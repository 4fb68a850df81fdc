// A = alpha*op(B) + beta*A, where B and A are n-d arrays in any two layouts on the ranks of one communicator
// (COSTA, Algorithm 3), with the relabeling of the target's ranks that leaves the least to communicate (relabel.hpp).
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
  /// Of the source, where it is another: then its elements are converted to `dtype`, and alpha, beta and op are applied
  /// to what they have become. What travels are the smaller of the two. From complex to real and from floating point
  /// to integers there is no conversion.
  std::optional<DType> source_dtype = {};
  MatrixOp op = MatrixOp::none;
  /// Whether relabel() chooses which rank gets which part of the target, and by which cost; rank 0 decides for all.
  RelabelPolicy relabel = RelabelPolicy::never;
  TransferCost cost = {};
  double expected_runs = RelabelOptions{}.expected_runs;
  /// What a rank has for another goes in segments of about this length, so that packing, moving and unpacking overlap
  /// and happen in the caches; a few of them per pair are in flight, in scratch memory. Equal on all ranks.
  std::uint64_t segment_bytes = std::uint64_t{1} << 20;

  /// Only a part: `shape` (of the source, before op) from `source_begin` on goes to where `target_begin` is; equal on
  /// all ranks. Empty: all of it. What lies outside of the part in the target stays as it is.
  std::vector<std::int64_t> source_begin = {};
  std::vector<std::int64_t> target_begin = {};
  std::vector<std::int64_t> shape = {};
  /// This rank's leading dimensions, see Layout::local_memory(); ranks may differ.
  std::int64_t source_leading_elems = 0;
  std::int64_t target_leading_elems = 0;

  DType input_dtype() const { return source_dtype.value_or(dtype); }
  bool has_window() const { return !source_begin.empty() || !target_begin.empty() || !shape.empty(); }
};

/// The parts of source and target that the options choose, as layouts of their own: what is moved, and what relabel()
/// and transfer_volumes() are to be asked about. Throws Error(invalid_argument) where a part does not lie inside.
struct MovedParts {
  Layout source;
  Layout target;
};
PENSTOCK_API MovedParts moved_parts(const Layout& source, const Layout& target, const RedistributionOptions& options);

/// The plan of one rank of a team (which may be larger than either layout): one message per pair of ranks and segment,
/// packed by plain moves and unpacked with op, alpha and beta; what stays on a rank goes straight from input to output,
/// and so do long runs between ranks of a node that can read each other's memory.
/// No rank writes its output before all ranks have started, so an operation that fails on its arguments moves nothing.
PENSTOCK_API Plan plan_redistribution(const Layout& source, const Layout& target, const RedistributionOptions& options,
                                      const Team& team);

struct LayoutPair {
  Layout source;
  Layout target;
  /// Where this rank has its parts, see Layout::placed_memory(); nothing: dense, or with the options' leading
  /// dimension. Ranks may differ.
  std::optional<LocalMemory> source_memory = {};
  std::optional<LocalMemory> target_memory = {};
};

/// One of the arrays that a rank's part of a layout consists of (Layout::local_part_shapes()), in memory of its own.
struct ConstStridedPart {
  const std::byte* data = nullptr;          ///< of the first element
  std::vector<std::int64_t> strides_elems;  ///< one per dimension, also negative ones
};
struct StridedPart {
  std::byte* data = nullptr;
  std::vector<std::int64_t> strides_elems;
};
/// All of them, for one side of one pair.
using ConstStridedParts = std::vector<ConstStridedPart>;
using StridedParts = std::vector<StridedPart>;

/// Memory that a plan needs for its messages while it runs, instead of memory of the communicator: writable, at least
/// workspace_bytes() at any address, apart from all inputs and outputs. May be given to another run when the request
/// is complete. What it holds means nothing.
using Workspace = std::optional<Bytes>;

/// The same for several pairs at once, which share the messages. Input and output of the plan are the memory of the
/// pairs one after another, each from a multiple of 64 bytes on.
PENSTOCK_API Plan plan_redistribution(std::span<const LayoutPair> pairs, const RedistributionOptions& options,
                                      const Team& team);

/// Several redistributions that are planned once and run together, any number of times: what one rank has for another
/// in all of them goes in the same messages, so small arrays wait once. A handle: copies share the plan.
class PENSTOCK_API RedistributionBatch {
 public:
  /// Collective and blocking. All pairs have the options' dtype and op; each target is relabeled on its own. With more
  /// than one pair all of each is moved, from dense memory. Throws on every rank: the same Error where the arguments
  /// are wrong, Error(mismatch) where the ranks do not agree about them, Error(peer_failed) where another rank's are
  /// wrong.
  RedistributionBatch(const Comm& comm, std::vector<LayoutPair> pairs, const RedistributionOptions& options);

  std::size_t size() const;
  /// Sources, and targets after relabeling: what the outputs are laid out by.
  const std::vector<LayoutPair>& pairs() const;
  const RedistributionOptions& options() const;
  /// By pair: permutation, bytes_before and bytes_after; the identity with equal bytes unless relabeling was asked for.
  const std::vector<Relabeling>& relabelings() const;
  /// This rank's plan.
  const Plan& plan() const;
  /// Of this rank's memory for a pair: what start() expects.
  std::uint64_t local_input_bytes(std::size_t pair) const;
  std::uint64_t local_output_bytes(std::size_t pair) const;
  /// Of this rank's workspace, wherever its arrays lie: for what goes to other nodes and comes from there, and for long
  /// runs that it offers to ranks of its node and whose memory has gaps. 0 where there is neither.
  std::uint64_t workspace_bytes() const;

  /// outputs[i] = alpha*op(inputs[i]) + beta*outputs[i] for this rank's parts of each pair, dense as the layouts say,
  /// or with the leading dimension of the options. Collective; non-blocking, the memory belongs to the operation until
  /// the request is complete. With beta 0 the outputs are not read. Wrong sizes, overlapping memory or factors that
  /// the dtype cannot hold throw Error(invalid_argument) here and Error(peer_failed) on the other ranks, and no output
  /// has changed. Allocates where the memory lies elsewhere than in the last run of a batch.
  Request start(std::span<const ConstBytes> inputs, std::span<const Bytes> outputs, std::complex<double> alpha = 1.0,
                std::complex<double> beta = 0.0, Workspace workspace = {}) const;
  /// start() and wait.
  void run(std::span<const ConstBytes> inputs, std::span<const Bytes> outputs, std::complex<double> alpha = 1.0,
           std::complex<double> beta = 0.0, Workspace workspace = {}) const;
  /// The same with this rank's parts anywhere and in any order of their elements; those of a pair lie whole elements
  /// apart from each other. This rank's plan is made anew where they lie otherwise than in the last run. Ranks may
  /// differ in which form they call.
  Request start_parts(std::span<const ConstStridedParts> inputs, std::span<const StridedParts> outputs,
                      std::complex<double> alpha = 1.0, std::complex<double> beta = 0.0,
                      Workspace workspace = {}) const;
  /// Instead of start(), by a rank whose caller was wrong in a way that only the caller can see: fails the operation
  /// on all ranks with this message. Never blocks.
  void fail(const std::string& message) const noexcept;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// A batch of one.
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

/// What has to be known for one redistribution, see start_redistribution().
struct RedistributionCall {
  const Layout& source;
  const Layout& target;
  const RedistributionOptions& options;
  std::complex<double> alpha = 1.0;
  std::complex<double> beta = 0.0;
  Workspace workspace = {};
};

/// output = alpha*op(input) + beta*output without a plan of the caller's own. Collective. The communicator keeps the
/// plans of the last such calls, so that an equal one starts at once: equal in layouts, types, op and part (of the
/// options), whatever the memory. A call that differs from all of those plans together with the other ranks, and
/// blocks as long. All ranks give the same but for memory, leading dimensions and workspace; where they do not, all get
/// Error(mismatch), or Error(peer_failed) with its text, and nothing was written. Relabeling would change the target:
/// Error(invalid_argument).
PENSTOCK_API Request start_redistribution(const Comm& comm, const RedistributionCall& call, ConstBytes input,
                                          Bytes output);
PENSTOCK_API Request start_redistribution(const Comm& comm, const RedistributionCall& call,
                                          const ConstStridedParts& input, const StridedParts& output);
PENSTOCK_API void run_redistribution(const Comm& comm, const RedistributionCall& call, ConstBytes input, Bytes output);

}  // namespace penstock
