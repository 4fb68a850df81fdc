// A started operation, with its checks at debug level 1.
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

/// Detects changes of an operation's send buffer, at debug level 1. Thread-safe.
class Guard {
 public:
  Guard() = default;
  Guard(std::string operation, ConstBytes sent);
  /// Throws Error(invalid_argument), once, if the memory has changed since the operation started.
  void check();

 private:
  std::unique_ptr<std::mutex> mutex_;  ///< nullptr: nothing is checked
  std::string operation_;
  ConstBytes sent_;
  store::Checksum before_;
};

/// One operation of the engine or of MPI. The Request owns it. Thread-safe.
struct Started {
  /// Of an exscan in place: a copy of this rank's contribution, which the other ranks read. Outlives the run.
  std::shared_ptr<const std::vector<std::byte>> contribution{};
  std::shared_ptr<engine::Run> run;
  Guard guard{};
  std::shared_ptr<Agreement> agreement{};  ///< at debug level 1

  bool test();
  void wait();
  bool done() const noexcept { return run->done() && (agreement == nullptr || agreement->done()); }
};

}  // namespace penstock::comm
