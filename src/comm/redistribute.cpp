#include "penstock/redistribute.hpp"

#include <algorithm>
#include <bit>
#include <functional>
#include <mutex>
#include <string>
#include <utility>

#include "penstock/comm.hpp"
#include "penstock/error.hpp"
#include "plan/arithmetic.hpp"
#include "redistribute/overlay.hpp"

namespace penstock {
namespace {

std::uint64_t hash(std::string_view text, std::uint64_t seed = 0xcbf29ce484222325u) {
  for (const char letter : text) seed = (seed ^ static_cast<unsigned char>(letter)) * 0x100000001b3u;
  return std::rotl(seed, 31) * 0x9e3779b97f4a7c15u;
}

std::uint64_t mix(std::uint64_t mixed, double value) {
  mixed = (std::rotl(mixed, 27) ^ std::bit_cast<std::uint64_t>(value)) * 0xff51afd7ed558ccdu;
  return mixed ^ mixed >> 32;
}

std::uint64_t hash_of_part(const RedistributionOptions& options) {
  std::uint64_t part = options.has_window() ? 1 : 0;
  for (const auto* list : {&options.source_begin, &options.target_begin, &options.shape}) {
    part = mix(part, static_cast<double>(list->size()));
    for (const std::int64_t length : *list) part = hash(std::to_string(length), part);
  }
  return part;
}

void check_size(const char* what, std::uint64_t given_bytes, std::uint64_t expected_bytes, DType dtype) {
  if (given_bytes == expected_bytes) return;
  throw Error(ErrorCode::invalid_argument,
              std::string("redistribute: the ") + what + " has " + std::to_string(given_bytes) + " bytes; expected " +
                  std::to_string(expected_bytes) + ", the " + std::to_string(expected_bytes / size_bytes(dtype)) +
                  " elements of " + std::string(name(dtype)) + " that its layout gives to this rank");
}

/// No output may overlap with an input or with another output.
void check_apart(std::span<const ConstBytes> inputs, std::span<const Bytes> outputs) {
  struct Range {
    const std::byte* begin;
    const std::byte* end;
    bool is_output;
  };
  std::vector<Range> ranges;
  for (const ConstBytes& input : inputs)
    if (!input.empty()) ranges.push_back({input.data(), input.data() + input.size(), false});
  for (const Bytes& output : outputs)
    if (!output.empty()) ranges.push_back({output.data(), output.data() + output.size(), true});
  const std::less<const std::byte*> before;
  std::sort(ranges.begin(), ranges.end(), [&](const Range& a, const Range& b) { return before(a.begin, b.begin); });
  const std::byte* end = nullptr;         // of all ranges so far
  const std::byte* output_end = nullptr;  // of the outputs among them
  for (const Range& range : ranges) {
    const std::byte* const limit = range.is_output ? end : output_end;
    if (limit != nullptr && before(range.begin, limit))
      throw Error(ErrorCode::invalid_argument,
                  "redistribute: the memory of source and target overlaps; give the target memory of its own");
    if (end == nullptr || before(end, range.end)) end = range.end;
    if (range.is_output && (output_end == nullptr || before(output_end, range.end))) output_end = range.end;
  }
}

/// The least range that holds all of these.
template <class Range>
Range hull(std::span<const Range> ranges) {
  auto* begin = ranges[0].data();
  auto* end = begin;
  const std::less<const std::byte*> before;
  for (const Range& range : ranges) {
    if (range.empty()) continue;
    const bool is_first = begin == end;
    if (is_first || before(range.data(), begin)) begin = range.data();
    if (is_first || before(end, range.data() + range.size())) end = range.data() + range.size();
  }
  return {begin, end};
}

/// Where the memory of the pairs begins in the input or the output of a plan, as the planner has it.
std::vector<std::uint64_t> begins(const std::vector<std::uint64_t>& sizes_bytes) {
  std::vector<std::uint64_t> result;
  std::uint64_t at = 0;
  for (const std::uint64_t size_bytes : sizes_bytes) {
    result.push_back(at);
    at += (size_bytes + 63) / 64 * 64;
  }
  return result;
}

template <class Range>
void move_region(Region& region, const std::vector<std::uint64_t>& begin_bytes, std::span<const Range> ranges,
                 const std::byte* base) {
  if (region.size_bytes == 0) {
    region.offset_bytes = 0;
    return;
  }
  const auto next = std::upper_bound(begin_bytes.begin(), begin_bytes.end(), region.offset_bytes);
  const auto pair = static_cast<std::size_t>(next - begin_bytes.begin()) - 1;
  region.offset_bytes += static_cast<std::uint64_t>(ranges[pair].data() - base) - begin_bytes[pair];
}

void check_pair(const LayoutPair& pair, const RedistributionOptions& options, std::int32_t ranks) {
  const MovedParts moved = moved_parts(pair.source, pair.target, options);
  redistribute::Pairing(moved.source, moved.target, options.op);
  plan::check_conversion(options.input_dtype(), options.dtype);
  const std::int32_t needed = std::max(pair.source.ranks(), pair.target.ranks());
  if (needed > ranks)
    throw Error(ErrorCode::invalid_argument, "redistribute: the layouts are for " + std::to_string(needed) +
                                                 " ranks, the communicator has " + std::to_string(ranks));
}

/// Throws Error(mismatch) where the ranks do not agree about what is to be done; the signature of it where they do.
void check_agreement(Comm& comm, std::uint64_t sources, std::uint64_t targets, const RedistributionOptions& options,
                     std::uint64_t& signature) {
  struct Digest {
    std::uint64_t source, target, dtype, op, relabel, segment_bytes, part;
  };
  const Digest mine{sources,
                    targets,
                    static_cast<std::uint64_t>(options.dtype) << 8 | static_cast<std::uint64_t>(options.input_dtype()),
                    static_cast<std::uint64_t>(options.op),
                    static_cast<std::uint64_t>(options.relabel),
                    options.segment_bytes,
                    hash_of_part(options)};
  std::vector<Digest> all(static_cast<std::size_t>(comm.size()));
  comm.allgather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  for (std::size_t r = 1; r < all.size(); ++r) {
    const std::pair<const char*, bool> differences[] = {
        {"source layout", all[r].source != all[0].source},
        {"target layout", all[r].target != all[0].target},
        {"dtype", all[r].dtype != all[0].dtype},
        {"op", all[r].op != all[0].op},
        {"choice to relabel", all[r].relabel != all[0].relabel},
        {"segment length", all[r].segment_bytes != all[0].segment_bytes},
        {"part to be moved", all[r].part != all[0].part}};
    for (const auto& [what, differs] : differences)
      if (differs)
        throw Error(ErrorCode::mismatch,
                    std::string("redistribute: the ") + what + " of rank " + std::to_string(r) +
                        " differs from that of rank 0; give the same on all ranks",
                    static_cast<int>(r));
  }
  signature = hash("redistribute", mine.source ^ std::rotl(mine.target, 21));
  for (const std::uint64_t word : {mine.dtype, mine.op, mine.relabel, mine.segment_bytes, mine.part})
    signature = mix(signature, static_cast<double>(word));
}

/// What rank 0 does for all: each rank would come to the same, but would need the memory and the time of all.
std::vector<Relabeling> decide(const std::vector<LayoutPair>& pairs, const RedistributionOptions& options,
                               std::int32_t ranks) {
  std::vector<Relabeling> relabelings;
  for (const LayoutPair& pair : pairs) {
    const MovedParts moved = moved_parts(pair.source, pair.target, options);
    relabelings.push_back(
        relabel(moved.source, moved.target,
                {.element_bytes = size_bytes(plan::between_dtype(options.input_dtype(), options.dtype)),
                 .op = options.op,
                 .ranks = ranks,
                 .cost = options.cost,
                 .policy = options.relabel,
                 .expected_runs = options.expected_runs}));
  }
  return relabelings;
}

void bcast(Comm& comm, Bytes bytes) { comm.run({.kind = CollectiveKind::bcast, .count = bytes.size()}, {}, bytes); }

/// The relabelings of rank 0 on all ranks. Collective.
std::vector<Relabeling> share(Comm& comm, std::vector<Relabeling> relabelings, std::size_t pairs) {
  struct Facts {
    std::uint64_t bytes_before, bytes_after;
    double cost_before, cost_after;
    char skipped[256];
  };
  relabelings.resize(pairs);
  for (Relabeling& each : relabelings) {
    Facts facts{each.bytes_before, each.bytes_after, each.cost_before, each.cost_after, {}};
    each.skipped.copy(facts.skipped, sizeof facts.skipped - 1);
    bcast(comm, std::as_writable_bytes(std::span(&facts, 1)));
    each.permutation.resize(static_cast<std::size_t>(comm.size()));
    bcast(comm, std::as_writable_bytes(std::span(each.permutation)));
    each.bytes_before = facts.bytes_before;
    each.bytes_after = facts.bytes_after;
    each.cost_before = facts.cost_before;
    each.cost_after = facts.cost_after;
    each.skipped = facts.skipped;
  }
  return relabelings;
}

}  // namespace

struct RedistributionBatch::State {
  Comm comm;
  std::vector<LayoutPair> pairs;
  RedistributionOptions options;

  State(const Comm& given_comm, std::vector<LayoutPair> given_pairs, const RedistributionOptions& given_options)
      : comm(given_comm), pairs(std::move(given_pairs)), options(given_options) {}

  std::vector<Relabeling> relabelings;
  std::vector<std::uint64_t> input_bytes;  ///< of this rank, by pair
  std::vector<std::uint64_t> output_bytes;
  std::shared_ptr<const Plan> plan;
  std::uint64_t signature = 0;

  // A plan has one input and one output. Of a batch they are all memory between its first and its last array, and the
  // plan's regions are moved to where the arrays lie in it; that is kept for the next run with the same arrays.
  struct Moved {
    std::vector<const std::byte*> addresses;
    std::shared_ptr<const Plan> plan;
  };
  std::mutex mutex;
  Moved last;

  std::shared_ptr<const Plan> plan_for(std::span<const ConstBytes> inputs, std::span<const Bytes> outputs,
                                       ConstBytes input, Bytes output) {
    if (pairs.size() == 1) return plan;
    const std::lock_guard lock(mutex);
    const auto address = [&](std::size_t i) -> const std::byte* {
      return i < inputs.size() ? inputs[i].data() : outputs[i - inputs.size()].data();
    };
    bool is_known = last.addresses.size() == 2 * pairs.size();
    for (std::size_t i = 0; is_known && i < last.addresses.size(); ++i) is_known = last.addresses[i] == address(i);
    if (is_known) return last.plan;
    auto moved = std::make_shared<Plan>(*plan);
    moved->input_bytes = input.size();
    moved->output_bytes = output.size();
    const std::vector<std::uint64_t> input_begins = begins(input_bytes);
    const std::vector<std::uint64_t> output_begins = begins(output_bytes);
    for (Step& step : moved->steps) {
      if (step.from.buffer == Buffer::input) move_region(step.from, input_begins, inputs, input.data());
      if (step.to.buffer == Buffer::output)
        move_region(step.to, output_begins, outputs, output.data());
      else if (step.to.buffer == Buffer::input)
        step.to.offset_bytes = 0;  // of a step without a target
    }
    last.addresses.resize(2 * pairs.size());
    for (std::size_t i = 0; i < last.addresses.size(); ++i) last.addresses[i] = address(i);
    last.plan = std::move(moved);
    return last.plan;
  }
};

RedistributionBatch::RedistributionBatch(const Comm& given_comm, std::vector<LayoutPair> pairs,
                                         const RedistributionOptions& options) {
  Comm comm = given_comm;
  auto state = std::make_shared<State>(comm, std::move(pairs), options);
  std::uint64_t sources = state->pairs.size();
  std::uint64_t targets = state->pairs.size();
  comm.agree([&] {
    if (state->pairs.empty())
      throw Error(ErrorCode::invalid_argument, "redistribute: a batch without pairs given, expected at least one");
    if (state->pairs.size() > 1 &&
        (options.has_window() || options.source_leading_elems != 0 || options.target_leading_elems != 0))
      throw Error(ErrorCode::invalid_argument,
                  "redistribute: a part or a leading dimension given for several pairs; plan those one by one");
    for (LayoutPair& pair : state->pairs) {
      sources = hash(pair.source.serialize(), sources);
      targets = hash(pair.target.serialize(), targets);
      check_pair(pair, options, comm.size());
    }
  });
  check_agreement(comm, sources, targets, options, state->signature);
  std::vector<Relabeling> decided;
  comm.agree([&] {
    if (comm.rank() == 0) decided = decide(state->pairs, options, comm.size());
  });
  state->relabelings = share(comm, std::move(decided), state->pairs.size());
  comm.agree([&] {
    for (std::size_t i = 0; i < state->pairs.size(); ++i) {
      LayoutPair& pair = state->pairs[i];
      if (options.relabel != RelabelPolicy::never)
        pair.target = pair.target.relabeled(state->relabelings[i].permutation);
      const auto bytes = [&](const Layout& layout, std::int64_t leading_elems, DType dtype) {
        return static_cast<std::uint64_t>(layout.local_memory(comm.rank(), leading_elems).size_elems) *
               size_bytes(dtype);
      };
      state->input_bytes.push_back(bytes(pair.source, options.source_leading_elems, options.input_dtype()));
      state->output_bytes.push_back(bytes(pair.target, options.target_leading_elems, options.dtype));
    }
    state->plan = std::make_shared<const Plan>(plan_redistribution(state->pairs, options, comm.team()));
  });
  state_ = std::move(state);
}

std::size_t RedistributionBatch::size() const { return state_->pairs.size(); }
const std::vector<LayoutPair>& RedistributionBatch::pairs() const { return state_->pairs; }
const RedistributionOptions& RedistributionBatch::options() const { return state_->options; }
const std::vector<Relabeling>& RedistributionBatch::relabelings() const { return state_->relabelings; }
const Plan& RedistributionBatch::plan() const { return *state_->plan; }
std::uint64_t RedistributionBatch::local_input_bytes(std::size_t pair) const { return state_->input_bytes[pair]; }
std::uint64_t RedistributionBatch::local_output_bytes(std::size_t pair) const { return state_->output_bytes[pair]; }

Request RedistributionBatch::start(std::span<const ConstBytes> inputs, std::span<const Bytes> outputs,
                                   std::complex<double> alpha, std::complex<double> beta) const {
  const RedistributionOptions& options = state_->options;
  const Arithmetic arithmetic{.dtype = options.dtype,
                              .input_dtype = options.input_dtype(),
                              .conjugate = options.op == MatrixOp::conjugate_transpose,
                              .alpha = alpha,
                              .beta = beta};
  Comm comm = state_->comm;
  try {
    if (inputs.size() != size() || outputs.size() != size())
      throw Error(ErrorCode::invalid_argument, "redistribute: " + std::to_string(inputs.size()) + " sources and " +
                                                   std::to_string(outputs.size()) + " targets given for a batch of " +
                                                   std::to_string(size()));
    for (std::size_t i = 0; i < size(); ++i) {
      check_size("source", inputs[i].size(), state_->input_bytes[i], options.input_dtype());
      check_size("target", outputs[i].size(), state_->output_bytes[i], options.dtype);
    }
    check_apart(inputs, outputs);
    plan::check_scaling(arithmetic);
  } catch (const Error& error) {
    comm.fail_next(error.what());
    throw;
  }
  std::uint64_t signature = state_->signature;
  for (const double part : {alpha.real(), alpha.imag(), beta.real(), beta.imag()}) signature = mix(signature, part);
  const ConstBytes input = hull(inputs);
  const Bytes output = hull(outputs);
  return comm.start(state_->plan_for(inputs, outputs, input, output), input, output, arithmetic, signature);
}

void RedistributionBatch::run(std::span<const ConstBytes> inputs, std::span<const Bytes> outputs,
                              std::complex<double> alpha, std::complex<double> beta) const {
  start(inputs, outputs, alpha, beta).wait();
}

void RedistributionBatch::fail(const std::string& message) const noexcept {
  Comm comm = state_->comm;
  comm.fail_next(message);
}

Request Redistribution::start(ConstBytes input, Bytes output, std::complex<double> alpha,
                              std::complex<double> beta) const {
  return batch_.start({&input, 1}, {&output, 1}, alpha, beta);
}

void Redistribution::run(ConstBytes input, Bytes output, std::complex<double> alpha, std::complex<double> beta) const {
  start(input, output, alpha, beta).wait();
}

}  // namespace penstock
