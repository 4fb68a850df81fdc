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
#include "preload/recent.hpp"

namespace penstock::preload {

/// Measures a call, if there is to be a report.
class Timer {
 public:
  Timer(const Communicator& on, std::uint64_t& total_ticks) : total_ticks_(on.times ? &total_ticks : nullptr) {
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

/// nullptr if Penstock serves the communicator now, which it may prepare for that. All ranks of `on` come to the same
/// answer: it depends on the calls before this one, and on what MPI wants to be equal.
const char* why_native(Communicator& on, const Call& call, Form form);

Request start(Communicator& on, const Translated& call);
void run(Communicator& on, const Translated& call);

/// Of a call that is counted for the report.
inline std::uint64_t payload_bytes(const Communicator& on, const Call& call, const Recent::Entry* known) {
  return known != nullptr && known->has_payload ? known->payload_bytes : payload_bytes(call, on.members());
}

template <typename Native>
int run_native(Communicator& on, const Call& call, Form form, const char* reason, const Native& native,
               const Recent::Entry* known = nullptr) {
  Tally& tally = on.tally(call.kind, form);
  ++tally.native;
  tally.reason = reason;
  if (on.times) tally.native_bytes += payload_bytes(on, call, known);
  const Timer timer(on, tally.native_ticks);
  return native();
}

/// Runs `action` in place of the program's call.
template <typename Action>
int serve(Communicator& on, const Call& call, Form form, const Translated& translated, const Recent::Entry* known,
          const Action& action) {
  Tally& tally = on.tally(call.kind, form);
  ++tally.served;
  if (on.times) tally.served_bytes += payload_bytes(on, call, known);
  const Timer timer(on, tally.served_ticks);
  try {
    return action(on, translated);
  } catch (const std::exception& error) {
    return raise(on.handle, error);
  }
}

template <typename Native, typename Action>
int run_by_penstock(Communicator& on, const Call& call, Form form, Counter counter, const Native& native,
                    const Action& action) {
  if (Recent::Entry* const known = on.recent(form).find(call))
    if (const Translated* const translated = known->of(call)) return serve(on, call, form, *translated, known, action);
  const char* reason = nullptr;
  Translated translated;
  Recent::Entry* kept = nullptr;
  try {
    const OwnCall own;
    reason = translate(call, on.members(), translated);
    if (reason == nullptr) kept = on.recent(form).keep(call, on.members(), on.times, counter, translated);
  } catch (const std::exception& error) {
    on.penstock->fail_next(error.what());  // the others must not wait for this rank
    return raise(on.handle, error);
  }
  if (reason != nullptr) return run_native(on, call, form, reason, native);
  return serve(on, call, form, kept != nullptr ? kept->translated : translated, kept, action);
}

/// A blocking call that Penstock can serve. Who does is measured.
template <typename Native, typename Action>
int run_measured(Communicator& on, const Call& call, Contest& contest, const Native& native, const Action& action) {
  if (contest.trial().asks()) on.measured->blocking.ask(contest);
  bool ends_round = false;
  const Counter counter{.trial = &contest.trial()};
  const auto serve_by = [&](Server server, bool is_measured) {
    if (!is_measured) on.blocking_recent.keep(call, on.members(), on.times, counter);
    if (server == Server::penstock) return run_by_penstock(on, call, Form::blocking, counter, native, action);
    return run_native(on, call, Form::blocking, is_measured ? "measured in turns" : kMpiWasFaster, native);
  };
  const auto bytes = [&] { return payload_bytes(call, on.members()); };
  const int result = contest.play(ends_round, serve_by, ticks, bytes);
  if (ends_round) on.measured->blocking.end_round(contest, call);
  return result;
}

enum class Known : std::uint8_t { nothing, native, served };

inline bool is_mpis_choice(const Recent::Entry& known) {
  return known.counter.trial != nullptr && known.counter.trial->choice() == Server::mpi;
}

/// Who serves a call that is kept, if that is known without the whole way. Counts it then. A call that is to wait for
/// all ranks takes the whole way while something is due: others may have other arguments, and so not know it.
[[gnu::always_inline]] inline Known known_server(const Communicator& on, const Recent::Entry& known, Form form) {
  if (known.reason != nullptr) return Known::native;
  if (form == Form::blocking && known.synchronises && on.measured != nullptr && on.measured->is_due())
    return Known::nothing;
  if (known.counter.trial == nullptr) return Known::served;
  if (!known.counter.rests()) return Known::nothing;
  return is_mpis_choice(known) ? Known::native : Known::served;
}

/// Gives a call to Penstock or to `native` that is not known.
template <typename Native, typename Action>
int dispatch_unknown(Communicator& on, const Call& call, Form form, const Native& native, const Action& action) {
  if (const char* const reason = why_native(on, call, form)) return run_native(on, call, form, reason, native);
  if (const char* const reason = why_always_native(call)) {
    on.recent(form).keep_native(call, on.members(), on.times, reason);
    return run_native(on, call, form, reason, native);
  }
  Counter counter;
  if (Measured* const measured = on.measured.get()) {
    if (form == Form::blocking) {
      if (measured->is_due() && synchronises(call)) {
        try {
          measured->settle(*on.penstock, on.members());
        } catch (const std::exception& error) {
          return raise(on.handle, error);
        }
      }
      if (Contest* const contest = measured->blocking.of(call, on.members()))
        return run_measured(on, call, *contest, native, action);
    } else if (measured->has_nonblocking) {
      if (Rehearsals::Part* const part = measured->nonblocking.of(call, on.members())) {
        counter = {.trial = &part->trial, .part = part};
        on.nonblocking_recent.keep(call, on.members(), on.times, counter);
        if (part->trial.choice() == Server::mpi) return run_native(on, call, form, kMpiWasFaster, native);
      }
    }
  }
  return run_by_penstock(on, call, form, counter, native, action);
}

/// What is known of a call by its communicator and arguments.
struct Lookup {
  Communicator* on = nullptr;
  Recent::Entry* known = nullptr;
  bool passes = false;  ///< MPI serves it, and nothing more is to be done for it
};

/// Counts a call that passes. Inline, with an own Call for it, so that arguments stay in registers: a call that passes
/// has nothing else to hide this time behind.
[[gnu::always_inline]] inline Lookup look(const Call& call, Form form) {
  if (own_depth > 0) return {.passes = true};
  Communicator* const on = communicator_of(call.comm);
  if (on == nullptr) return {.passes = true};
  Recent::Entry* const known = on->recent(form).find(call);
  if (on->times) return {.on = on, .known = known};
  if (known == nullptr)
    return {.on = on, .passes = !on->why_native.empty() || (form == Form::nonblocking && on->only_blocking)};
  const bool passes =
      known->reason != nullptr || (is_mpis_choice(*known) && known_server(*on, *known, form) == Known::native);
  return {.on = on, .known = known, .passes = passes};
}

/// Gives a call that does not pass to Penstock or to `native`. `action(on, translated)` runs it in Penstock.
template <typename Native, typename Action>
int dispatch(const Lookup& looked, const Call& call, Form form, const Native& native, const Action& action) {
  Communicator& on = *looked.on;
  if (Recent::Entry* const known = looked.known) {
    const Known server = known_server(on, *known, form);
    if (server == Known::native)
      return run_native(on, call, form, known->reason != nullptr ? known->reason : kMpiWasFaster, native, known);
    if (server == Known::served) {
      const Translated* const translated = known->of(call);
      return translated != nullptr ? serve(on, call, form, *translated, known, action)
                                   : run_by_penstock(on, call, form, known->counter, native, action);
    }
  } else if (form == Form::blocking && !on.why_native.empty()) {
    return run_native(on, call, form, on.why_native.c_str(), native);
  }
  return dispatch_unknown(on, call, form, native, action);
}

}  // namespace penstock::preload
