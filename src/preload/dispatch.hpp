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

inline constexpr const char* kMpiWasFaster = "MPI was faster";

/// Whether it is known that MPI serves the call. Then its trial has counted it. A call that is to wait for all ranks is
/// not passed while something is due, since others may have other arguments, and so not know it.
inline bool is_passed(const Communicator& on, const Call& call, Form form) {
  if (on.measured == nullptr || form == Form::persistent) return false;
  const Measured& measured = *on.measured;
  const Passed& passed = form == Form::blocking ? measured.blocking_passed : measured.nonblocking_passed;
  const Passed::Entry* const entry = passed.find(call);
  if (entry == nullptr || (form == Form::blocking && entry->synchronises && measured.is_due())) return false;
  return entry->trial->passes();
}

/// nullptr if Penstock serves the communicator now, which it may prepare for that. All ranks of `on` come to the same
/// answer: it depends on the calls before this one, and on what MPI wants to be equal.
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

template <typename Native, typename Action>
int run_by_penstock(Communicator& on, const Call& call, Form form, Native native, Action action) {
  const char* reason = nullptr;
  Translated translated;
  try {
    const OwnCall own;
    reason = translate(call, on.members(), translated);
  } catch (const std::exception& error) {
    on.penstock->fail_next(error.what());  // the others must not wait for this rank
    return raise(on.handle, error);
  }
  if (reason != nullptr) return run_native(on, call, form, reason, native);
  return serve(on, call, form, [&] { return action(on, translated); });
}

/// A blocking call that Penstock can serve. Who does is measured.
template <typename Native, typename Action>
int run_measured(Communicator& on, const Call& call, Contest& contest, Native native, Action action) {
  if (contest.trial().asks()) on.measured->blocking.ask(contest);
  bool ends_round = false;
  const auto serve_by = [&](Server server, bool is_measured) {
    if (server == Server::penstock) return run_by_penstock(on, call, Form::blocking, native, action);
    if (is_measured) return run_native(on, call, Form::blocking, "measured in turns", native);
    on.measured->blocking_passed.keep(call, contest.trial());
    return run_native(on, call, Form::blocking, kMpiWasFaster, native);
  };
  const auto bytes = [&] { return payload_bytes(call, on.members()); };
  const int result = contest.play(ends_round, serve_by, ticks, bytes);
  if (ends_round) on.measured->blocking.end_round(contest, call);
  return result;
}

/// Gives the call to Penstock or to `native`. `action(on, translated)` runs it in Penstock.
template <typename Native, typename Action>
int dispatch(const Call& call, Form form, Native native, Action action) {
  Communicator* const on = own_depth > 0 ? nullptr : communicator_of(call.comm);
  if (on == nullptr) return native();
  if (is_passed(*on, call, form)) return run_native(*on, call, form, kMpiWasFaster, native);
  const char* reason = why_native(*on, call, form);
  if (reason == nullptr) reason = why_always_native(call);
  if (reason != nullptr) return run_native(*on, call, form, reason, native);
  if (Measured* const measured = form == Form::persistent ? nullptr : on->measured.get()) {
    if (form == Form::blocking) {
      if (measured->is_due() && synchronises(call)) {
        try {
          measured->settle(*on->penstock, on->members());
        } catch (const std::exception& error) {
          return raise(on->handle, error);
        }
      }
      if (Contest* const contest = measured->blocking.of(call, on->members()))
        return run_measured(*on, call, *contest, native, action);
    } else if (measured->has_nonblocking) {
      Trial* const trial = measured->nonblocking.of(call, on->members());
      if (trial != nullptr && trial->choice() == Server::mpi) {
        measured->nonblocking_passed.keep(call, *trial);
        return run_native(*on, call, form, kMpiWasFaster, native);
      }
    }
  }
  return run_by_penstock(*on, call, form, native, action);
}

}  // namespace penstock::preload
