#include "penstock/redistribute.hpp"

#include <bit>
#include <functional>
#include <numeric>
#include <string>
#include <utility>

#include "penstock/comm.hpp"
#include "penstock/error.hpp"
#include "plan/arithmetic.hpp"

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

void check_apart(ConstBytes input, ConstBytes output) {
  const std::less<const std::byte*> before;
  if (before(input.data(), output.data() + output.size()) && before(output.data(), input.data() + input.size()))
    throw Error(ErrorCode::invalid_argument,
                "redistribute: the memory of source and target overlaps; give the target memory of its own");
}

}  // namespace

struct Redistribution::State {
  Comm comm;
  Layout source;
  Layout target;
  RedistributionOptions options;
  Relabeling relabeling;
  std::shared_ptr<const Plan> plan;
  std::uint64_t signature = 0;
};

Redistribution::Redistribution(const Comm& given_comm, const Layout& source, const Layout& target,
                               const RedistributionOptions& options) {
  Comm comm = given_comm;
  auto state = std::make_shared<State>(State{comm, source, target, options, {}, nullptr, 0});
  comm.agree([&] {
    const MovedParts moved = moved_parts(source, target, options);
    state->relabeling = relabel(moved.source, moved.target, size_bytes(options.dtype), options.op, comm.size());
    if (options.relabel) {
      state->target = target.relabeled(state->relabeling.permutation);
    } else {
      std::iota(state->relabeling.permutation.begin(), state->relabeling.permutation.end(), 0);
      state->relabeling.bytes_after = state->relabeling.bytes_before;
    }
    state->plan = std::make_shared<const Plan>(plan_redistribution(source, state->target, options, comm.team()));
  });

  struct Digest {
    std::uint64_t source, target, dtype, op, relabel, segment_bytes, part;
  };
  const Digest mine{hash(source.serialize()),
                    hash(target.serialize()),
                    static_cast<std::uint64_t>(options.dtype),
                    static_cast<std::uint64_t>(options.op),
                    options.relabel ? 1u : 0u,
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
  state->signature = hash("redistribute", mine.source ^ std::rotl(mine.target, 21));
  for (const std::uint64_t word : {mine.dtype, mine.op, mine.relabel, mine.segment_bytes, mine.part})
    state->signature = mix(state->signature, static_cast<double>(word));
  state_ = std::move(state);
}

const Layout& Redistribution::source() const { return state_->source; }
const Layout& Redistribution::target() const { return state_->target; }
const RedistributionOptions& Redistribution::options() const { return state_->options; }
const Relabeling& Redistribution::relabeling() const { return state_->relabeling; }
const Plan& Redistribution::plan() const { return *state_->plan; }

Request Redistribution::start(ConstBytes input, Bytes output, std::complex<double> alpha,
                              std::complex<double> beta) const {
  const RedistributionOptions& options = state_->options;
  const Arithmetic arithmetic{
      .dtype = options.dtype, .conjugate = options.op == MatrixOp::conjugate_transpose, .alpha = alpha, .beta = beta};
  Comm comm = state_->comm;
  try {
    check_size("source", input.size(), state_->plan->input_bytes, options.dtype);
    check_size("target", output.size(), state_->plan->output_bytes, options.dtype);
    check_apart(input, output);
    plan::check_scaling(arithmetic);
  } catch (const Error& error) {
    comm.fail_next(error.what());
    throw;
  }
  std::uint64_t signature = state_->signature;
  for (const double part : {alpha.real(), alpha.imag(), beta.real(), beta.imag()}) signature = mix(signature, part);
  return comm.start(state_->plan, input, output, arithmetic, signature);
}

void Redistribution::run(ConstBytes input, Bytes output, std::complex<double> alpha, std::complex<double> beta) const {
  start(input, output, alpha, beta).wait();
}

void Redistribution::fail(const std::string& message) const noexcept {
  Comm comm = state_->comm;
  comm.fail_next(message);
}

}  // namespace penstock
