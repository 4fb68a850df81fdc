// How ranks that share memory agree on the times of a round without waiting for each other. Apart from MPI.
#pragma once

#include <cstddef>
#include <cstdint>

#include "preload/trial.hpp"

namespace penstock::preload {

/// Each rank publishes its times when a round of a trial ends. At some later calls of the trial all ranks ask whether
/// they go by the times from here on. The first rank to ask at a call decides it for all: yes if all have published.
/// The others find its answer, whenever they come to that call.
class SharedTimes {
 public:
  static constexpr std::size_t kMostBytes = std::size_t{63} << 10U;

  /// `memory` of kMostBytes, shared by the ranks, zeroed, and aligned to 64.
  SharedTimes(std::byte* memory, int rank, int ranks) noexcept;

  /// For how many trials there is room. Each has a slot for its life, the same one on all ranks.
  std::size_t slots() const noexcept { return slots_for(ranks_); }

  /// The trial's round has ended on this rank. Until it is judged, by ask() or otherwise, Trial::asks() at some calls.
  void publish(std::size_t slot, Trial& trial) noexcept;
  /// To be called if the trial asks. True if it has judged the round; otherwise the call is no part of one.
  bool ask(std::size_t slot, Trial& trial) noexcept;

 private:
  static std::size_t slots_for(int ranks) noexcept;
  struct Entry;

  std::uint64_t& answer(std::size_t slot, std::uint64_t round) const noexcept;
  Entry& entry(std::size_t slot, std::uint64_t round, int rank) const noexcept;
  bool have_all_published(std::size_t slot, std::uint64_t round) const noexcept;
  Times sum(std::size_t slot, std::uint64_t round) const noexcept;

  std::byte* memory_;
  int rank_;
  int ranks_;
};

}  // namespace penstock::preload
