// Who serves a call: Penstock, or the next library with that name. Counts and measures it for the report.
#pragma once

#include PENSTOCK_MPI_HEADER

#include <cstdint>
#include <exception>

#include "penstock/comm.hpp"
#include "preload/call.hpp"
#include "preload/clock.hpp"
#include "preload/communicators.hpp"
#include "preload/errors.hpp"
#include "preload/own_calls.hpp"
#include "preload/settings.hpp"

namespace penstock::preload {

/// Measures a call, if there is to be a report.
class Timer {
 public:
  explicit Timer(std::uint64_t& total_ticks) : total_ticks_(settings().times ? &total_ticks : nullptr) {
    if (total_ticks_ != nullptr) begin_ = ticks();
  }
  ~Timer() {
    if (total_ticks_ == nullptr) return;
    const std::uint64_t end = ticks();  // counters of two cores may differ
    if (end > begin_) *total_ticks_ += end - begin_;
  }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

 private:
  std::uint64_t* total_ticks_;
  std::uint64_t begin_ = 0;
};

/// nullptr if Penstock serves the communicator now, which it may prepare for that. All ranks of `on` come to the same
/// answer: it depends on the number of calls before this one, and on what MPI wants to be equal.
const char* why_native(Communicator& on, const Call& call, Form form);

Request start(Communicator& on, const Translated& call);
void run(Communicator& on, const Translated& call);

template <typename Native>
int run_native(Communicator& on, const Call& call, Form form, const char* reason, Native native) {
  Tally& tally = on.tally(call.kind, form);
  ++tally.native;
  tally.reason = reason;
  if (settings().times) tally.native_bytes += payload_bytes(call, on.members());
  const Timer timer(tally.native_ticks);
  return native();
}

/// Runs `action` in place of the program's call.
template <typename Action>
int serve(Communicator& on, const Call& call, Form form, Action action) {
  Tally& tally = on.tally(call.kind, form);
  ++tally.served;
  if (settings().times) tally.served_bytes += payload_bytes(call, on.members());
  const Timer timer(tally.served_ticks);
  try {
    return action();
  } catch (const std::exception& error) {
    return raise(on.handle, error);
  }
}

/// A call for which it is MPI's turn.
template <typename Native>
int run_contested(Communicator& on, const Call& call, Contest& contest, Native native) {
  if (contest.is_over()) return run_native(on, call, Form::blocking, "MPI was faster", native);
  return run_native(on, call, Form::blocking, "measured in turns", [&] {
    try {
      return contest.run(*on.penstock, native);
    } catch (const std::exception& error) {
      return raise(on.handle, error);
    }
  });
}

/// Gives the call to Penstock or to `native`. `action(on, translated)` runs it in Penstock.
template <typename Native, typename Action>
int dispatch(const Call& call, Form form, Native native, Action action) {
  Communicator* const on = own_depth > 0 ? nullptr : communicator_of(call.comm);
  if (on == nullptr) return native();
  const char* reason = why_native(*on, call, form);
  if (reason == nullptr) reason = why_always_native(call);
  if (reason != nullptr) return run_native(*on, call, form, reason, native);
  Contest* const contest =
      form == Form::blocking && on->contests != nullptr ? on->contests->of(call, on->members()) : nullptr;
  if (contest != nullptr && contest->turn() == Server::mpi) return run_contested(*on, call, *contest, native);
  Translated translated;
  try {
    const OwnCall own;
    reason = translate(call, on->members(), translated);
  } catch (const std::exception& error) {
    on->penstock->fail_next(error.what());  // the others must not wait for this rank
    return raise(on->handle, error);
  }
  if (reason != nullptr) return run_native(*on, call, form, reason, native);
  return serve(*on, call, form, [&] {
    const auto served = [&] { return action(*on, translated); };
    return contest != nullptr ? contest->run(*on->penstock, served) : served();
  });
}

}  // namespace penstock::preload
