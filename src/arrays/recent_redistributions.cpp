#include "arrays/recent_redistributions.hpp"

#include <utility>

#include "arrays/planned_redistribution.hpp"
#include "base/hash.hpp"

namespace penstock::arrays {

bool RecentRedistributions::Key::operator==(const Key& other) const {
  const RedistributionOptions& x = *options;
  const RedistributionOptions& y = *other.options;
  return x.dtype == y.dtype && x.input_dtype() == y.input_dtype() && x.op == y.op &&
         x.segment_bytes == y.segment_bytes && x.source_begin == y.source_begin && x.target_begin == y.target_begin &&
         x.shape == y.shape && *source == *other.source && *target == *other.target;
}

std::size_t RecentRedistributions::Hash::operator()(const Key& key) const {
  // The shapes of arrays and subarrays distinguish most calls.
  std::uint64_t mixed = static_cast<std::uint64_t>(key.options->dtype);
  for (const auto* lengths : {&key.source->shape(), &key.target->shape(), &key.options->shape,
                              &key.options->source_begin, &key.options->target_begin})
    for (const std::int64_t length : *lengths) mixed = base::mix(mixed, static_cast<std::uint64_t>(length));
  return static_cast<std::size_t>(mixed);
}

std::shared_ptr<PlannedRedistribution> RecentRedistributions::find(const Layout& source, const Layout& target,
                                                                   const RedistributionOptions& options) {
  const auto found = kept_.find({&source, &target, &options});
  return found == kept_.end() ? nullptr : found->value;
}

void RecentRedistributions::add(std::shared_ptr<PlannedRedistribution> planned, std::uint64_t agreed_bytes) {
  const LayoutPair& pair = planned->pairs()[0];
  const Key key{&pair.source, &pair.target, &planned->options()};
  kept_.add(key, std::move(planned), agreed_bytes);
}

}  // namespace penstock::arrays
