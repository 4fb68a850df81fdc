// Makes writers put more deltas than they would, while it lives.
#pragma once

#include <cstdint>

#include "store/blob_state.hpp"

namespace penstock::store {

class FrequentDeltas {
 public:
  explicit FrequentDeltas(std::uint64_t interval) : before_(delta_rule) {
    delta_rule = {.interval = interval, .least_cost = 0, .cost = before_.cost};
  }
  ~FrequentDeltas() { delta_rule = before_; }
  FrequentDeltas(const FrequentDeltas&) = delete;
  FrequentDeltas& operator=(const FrequentDeltas&) = delete;

 private:
  const DeltaRule before_;
};

}  // namespace penstock::store
