#include "engine/computations.hpp"

#include <algorithm>

#include "host/topology.hpp"
#include "kernels/arithmetic.hpp"
#include "kernels/copy.hpp"
#include "kernels/reduce_sorted.hpp"
#include "kernels/streaming.hpp"
#include "penstock/trace.hpp"
#include "plan/element_types.hpp"
#include "plan/names.hpp"
#include "plan/order.hpp"

namespace penstock::engine {
namespace {

constexpr std::uint64_t kInlineBytes = 4096;          // running a smaller step costs less than handing it to a thread
constexpr std::uint64_t kLongStagedBytes = 32 << 10;  // for shorter staging buffers the kind of store does not matter
constexpr std::uint64_t kStreamedRunBytes = 4096;

const char* name_of(const Step& step) {
  if (step.source == StepSource::peer_shared) return "read";
  return plan::name(step.computation).data();  // of a literal
}

}  // namespace

void Computations::post(Operation& operation, StepId step, ConstBytes from) {
  const Step& what = operation.step(step);
  const bool may_run = what.lane == Lane::progress || core_.caller == Caller::application;
  // A user operation must not run under the lock: it may need another lock, such as Python's.
  const bool is_users = operation.call.arithmetic.user &&
                        (what.computation == Computation::reduce || what.computation == Computation::reduce_sorted);
  if (std::max(what.from.size_bytes, what.to.size_bytes) > kInlineBytes || !may_run || is_users)
    return core_.add_work(what.lane, {.operation = &operation, .step = step, .worker = this, .from = from});
  compute(operation, step, from);
  core_.complete(operation, step);
}

bool Computations::run(const Work& work) {
  compute(*work.operation, work.step, work.from);
  return true;
}

// Whether to use non-temporal stores. They are faster if the readers are far: cache lines then take longer from another
// core's caches than from memory. They are also faster for outputs that do not fit in the last-level cache together
// with what is copied there: an ordinary store first reads the line that it overwrites.
bool Computations::streams(const Operation& operation, const Step& step, Bytes to) {
  if (step.to.buffer == Buffer::shared) return to.size() >= kLongStagedBytes && distance_.is_far(to);
  return step.to.buffer == Buffer::output && to.size() >= kStreamedRunBytes &&
         operation.call.bindings.output.size() >= host::cache_sizes().last / 2;
}

void Computations::compute(const Operation& operation, StepId step, ConstBytes from) {
  const Step& what = operation.step(step);
  const Arithmetic& arithmetic = operation.call.arithmetic;
  const Bytes to = operation.target(what.to);
  const trace::Span span(name_of(what), what.lane == Lane::progress ? "progress" : "application",
                         std::max(from.size(), to.size()));
  switch (what.computation) {
    case Computation::reduce: return kernels::reduce(arithmetic, from, to);
    case Computation::reduce_sorted: return kernels::reduce_sorted(arithmetic, kernels::parts_of(from, to.size()), to);
    case Computation::transform: {
      const bool non_temporal = what.source == StepSource::local && streams(operation, what, to);
      return kernels::transform(arithmetic, plan::element_types(arithmetic, what), plan::blocks(operation.plan(), what),
                                what.scaled, from, to,
                                non_temporal ? kernels::Stores::non_temporal : kernels::Stores::by_size);
    }
    case Computation::copy:
      if (kernels::copy_as_string(to.data(), from.data(), to.size())) return;
      if (streams(operation, what, to)) return kernels::stream_bytes(to.data(), from.data(), to.size());
      kernels::copy_bytes(to.data(), from.data(), to.size());
  }
}

}  // namespace penstock::engine
