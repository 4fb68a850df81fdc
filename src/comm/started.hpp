// An operation that runs, with what is watched of it at debug level 1.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/agreement.hpp"
#include "engine/engine.hpp"
#include "penstock/types.hpp"
#include "store/checksum.hpp"

namespace penstock::comm {

/// What an operation sends, watched at debug level 1. Thread-safe.
class Guard {
 public:
  Guard() = default;
  Guard(std::string operation, ConstBytes sent);
  /// Throws Error(invalid_argument), once, when the memory has changed since the operation started.
  void check();

 private:
  std::unique_ptr<std::mutex> mutex_;  ///< or nullptr: nothing is watched
  std::string operation_;
  ConstBytes sent_;
  store::Checksum before_;
};

struct Started {
  /// Of an exscan in place: what this rank contributes, which the others may read in their own time. Outlives the run.
  std::shared_ptr<const std::vector<std::byte>> contribution{};
  std::shared_ptr<engine::Run> run;
  Guard guard{};
  std::shared_ptr<Agreement> agreement{};  ///< at debug level 1

  bool test();
  void wait();
};

}  // namespace penstock::comm
