// Sets the option `debug` during a test.
#pragma once

#include <cstdint>

#include "penstock/options.hpp"

namespace penstock::comm {

class DebugLevel {
 public:
  explicit DebugLevel(std::int64_t level) { options().debug = level; }
  ~DebugLevel() { options().debug = 0; }
};

}  // namespace penstock::comm
