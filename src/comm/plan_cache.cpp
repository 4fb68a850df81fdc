#include "comm/plan_cache.hpp"

#include <utility>

#include "comm/check.hpp"
#include "plan/memory.hpp"

namespace penstock::comm {

std::uint64_t Planned::memory_bytes() const {
  std::uint64_t counts = 0;
  for (const Blocks* blocks : {&collective.send, &collective.receive})
    counts += blocks->counts.capacity() + blocks->displacements.capacity();
  return sizeof(Planned) + collective.algorithm.capacity() + counts * sizeof(std::uint64_t) +
         (native_reason == nullptr ? 0 : native_reason->capacity()) + plan::memory_bytes(*plan);
}

std::size_t PlanCache::Hash::operator()(const Collective& collective) const {
  return static_cast<std::size_t>(local_hash(collective));
}

PlanCache::Plans::Handle PlanCache::add(std::shared_ptr<Planned> planned) {
  const std::size_t before = plans_.size();
  const Collective& collective = planned->collective;
  const std::uint64_t size_bytes = planned->memory_bytes();
  const auto added = plans_.add(collective, std::move(planned), size_bytes);
  if (plans_.size() <= before) recent_.clear();  // one of them may have been evicted
  return added;
}

void PlanCache::forget_recent() {
  const std::lock_guard lock(mutex_);
  recent_.clear();
}

void PlanCache::for_each(const std::function<void(const Planned&)>& visit) {
  const std::lock_guard lock(mutex_);
  for (const auto& entry : plans_) visit(*entry.value);
}

std::uint64_t PlanCache::size_bytes() {
  const std::lock_guard lock(mutex_);
  return plans_.size_bytes();
}

}  // namespace penstock::comm
