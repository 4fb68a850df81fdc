// How ranks that make a communicator fail together.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <span>

#include "engine/transport.hpp"

namespace penstock::engine {

/// What the action throws; nullptr: nothing.
template <typename Action>
std::exception_ptr failure_of(Action action) noexcept {
  try {
    action();
  } catch (const std::exception&) {
    return std::current_exception();
  }
  return nullptr;
}

/// Collective, if all ranks know that rank `first` is the lowest that has failed. Throws on all of them: the own
/// `failure`, or on ranks without one Error(peer_failed) with the text of the first, of itself or of the rank that
/// failed its operation. Without memory for that error it throws std::bad_alloc.
[[noreturn]] void throw_on_all(Transport& transport, int first, const std::exception_ptr& failure);

/// Collective: one exchange. Runs the action on every rank. If it throws on a rank, all ranks throw, as throw_on_all().
/// If the action runs operations of an engine, `meanwhile` makes progress there: no rank leaves before all have ended
/// their actions, so one whose operation fails always tells those that wait in theirs.
template <typename Action>
void all_or_none(Transport& transport, Action action, const std::function<void()>& meanwhile = {}) {
  const std::exception_ptr failure = failure_of(action);
  // The maximum tells the lowest rank.
  std::uint64_t ranks_from_first =
      failure != nullptr ? static_cast<std::uint64_t>(transport.size() - transport.rank()) : 0;
  transport.maximum(std::span(&ranks_from_first, 1), meanwhile);
  if (ranks_from_first > 0) throw_on_all(transport, transport.size() - static_cast<int>(ranks_from_first), failure);
}

}  // namespace penstock::engine
