#include "arrays/local_redistribution.hpp"

#include <algorithm>
#include <utility>

namespace penstock::arrays {
namespace {

/// Offsets of the pairs' memory in the input or the output of a plan, as the planner assigns them.
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

}  // namespace

LocalRedistribution::LocalRedistribution(std::span<const LayoutPair> given_pairs, const RedistributionOptions& options,
                                         const Team& team, MemoryPlacement placement)
    : placement_(std::move(placement)) {
  std::vector<LayoutPair> pairs(given_pairs.begin(), given_pairs.end());
  const auto bytes = [&](const Layout& layout, const std::optional<LocalMemory>& memory, DType dtype) {
    const std::int64_t elems = memory ? memory->size_elems : layout.local_size_elems(team.rank);
    return static_cast<std::uint64_t>(elems) * size_bytes(dtype);
  };
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    pairs[i].source_memory = placement_.inputs[i];
    pairs[i].target_memory = placement_.outputs[i];
    input_bytes_.push_back(bytes(pairs[i].source, placement_.inputs[i], options.input_dtype()));
    output_bytes_.push_back(bytes(pairs[i].target, placement_.outputs[i], options.dtype));
  }
  plan_ = std::make_shared<const Plan>(plan_redistribution(pairs, options, team));
}

std::shared_ptr<const Plan> LocalRedistribution::plan_for(std::span<const ConstBytes> inputs,
                                                          std::span<const Bytes> outputs, ConstBytes input,
                                                          Bytes output) {
  if (input_bytes_.size() == 1) return plan_;
  const std::lock_guard lock(mutex_);
  const std::size_t count = inputs.size() + outputs.size();
  const auto address = [&](std::size_t i) -> const std::byte* {
    return i < inputs.size() ? inputs[i].data() : outputs[i - inputs.size()].data();
  };
  bool is_known = last_.addresses.size() == count;
  for (std::size_t i = 0; is_known && i < count; ++i) is_known = last_.addresses[i] == address(i);
  if (is_known) return last_.plan;
  auto moved = std::make_shared<Plan>(*plan_);
  moved->input_bytes = input.size();
  moved->output_bytes = output.size();
  const std::vector<std::uint64_t> input_begins = begins(input_bytes_);
  const std::vector<std::uint64_t> output_begins = begins(output_bytes_);
  for (Step& step : moved->steps) {
    if (step.from.buffer == Buffer::input) move_region(step.from, input_begins, inputs, input.data());
    if (step.to.buffer == Buffer::output)
      move_region(step.to, output_begins, outputs, output.data());
    else if (step.to.buffer == Buffer::input)
      step.to.offset_bytes = 0;  // the step has no target
  }
  last_.addresses.resize(count);
  for (std::size_t i = 0; i < count; ++i) last_.addresses[i] = address(i);
  last_.plan = std::move(moved);
  return last_.plan;
}

}  // namespace penstock::arrays
