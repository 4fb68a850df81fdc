#include "engine/sleeper.hpp"

#include <algorithm>
#include <array>

#include "host/pause.hpp"

namespace penstock::engine {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr milliseconds kPoke{2};  // interval of Transport::poke in a waiting thread

}  // namespace

std::int64_t steady_ns() { return std::chrono::steady_clock::now().time_since_epoch() / nanoseconds(1); }

Awaited awaited_of(const Pollable& pollable, const host::Naps& naps, Caller caller) {
  const std::int64_t until_ns = pollable.transfer_until_ns.load(std::memory_order_relaxed);
  return {.polls_transport = pollable.polls_transport.load(std::memory_order_relaxed),
          .unpolled = nanoseconds((caller == Caller::progress_thread ? pollable.background_nap_ns : pollable.nap_ns)
                                      .load(std::memory_order_relaxed)),
          .is_in_background = caller == Caller::progress_thread,
          .is_transferring = until_ns != 0 && steady_ns() < until_ns,
          .polls_yield = pollable.polls_yield.load(std::memory_order_relaxed),
          .is_crowded = pollable.is_crowded,
          .nap_overrun = naps.overrun()};
}

nanoseconds Sleeper::longest_sleep(bool polls, nanoseconds nap) const {
  nanoseconds longest = polls ? nap : kLongestSleep;
  const auto shorten = [&](const Pollable& waited_for) {
    if (const Awaited awaited = awaited_of(waited_for, naps, caller); Waiting::is_slow(awaited))
      longest = std::min(longest, awaited.unpolled - awaited.nap_overrun);
  };
  if (home != nullptr) shorten(*home);
  for (const Pollable* pollable : acquired)
    if (!leaves_alone(*pollable)) shorten(*pollable);
  if (caller == Caller::application) return std::min<nanoseconds>(longest, kPoke);
  // If nothing is in flight, only the attention bell ends the sleep of a progress thread.
  return acquired.empty() ? std::chrono::hours(24) : longest;
}

void Sleeper::sleep(nanoseconds nap) const noexcept {
  std::array<Listening, kMaxListening + 1> listening;
  std::size_t count = 0;
  bool polling = false;
  const auto listen = [&](Doorbell& bell) {
    if (count >= listening.size()) return;
    bell.sleepers.fetch_add(1, std::memory_order_seq_cst);
    listening[count++] = {&bell, bell.word.load(std::memory_order_seq_cst)};
  };
  if (home != nullptr) listen(home->bell());
  listen(attention);
  for (Pollable* pollable : acquired)
    if (!leaves_alone(*pollable)) listen(pollable->bell());

  // Changes before the words were read do not ring any more, so check for them.
  bool idle = !ended.load(std::memory_order_seq_cst) && generation.load(std::memory_order_seq_cst) == seen_generation;
  if (home != nullptr) {
    idle = idle && home->can_sleep(caller);
    polling = home->needs_polling(caller);
  }
  for (Pollable* pollable : acquired) {
    if (leaves_alone(*pollable)) continue;
    idle = idle && pollable->can_sleep(caller);
    polling = polling || pollable->needs_polling(caller);
  }
  if (idle) {
    const nanoseconds timeout = longest_sleep(polling, nap);
    const std::int64_t tick = host::coarse_ns();
    const std::int64_t begin = steady_ns();
    sleep_on({listening.data(), count}, timeout);
    if (const nanoseconds took(steady_ns() - begin); took >= timeout)
      naps.ended(timeout, took, tick, host::coarse_ns());
  }
  for (std::size_t i = 0; i < count; ++i) listening[i].bell->sleepers.fetch_sub(1, std::memory_order_relaxed);
}

void leave_to_progress_threads(Pollable& home, const std::atomic<bool>& finished) noexcept {
  Doorbell& bell = home.asleep_bell();
  bool suffices = true;
  while (suffices && !finished.load(std::memory_order_acquire)) {
    bell.sleepers.fetch_add(1, std::memory_order_seq_cst);
    const Listening listening{&bell, bell.word.load(std::memory_order_seq_cst)};
    suffices = home.threads_suffice();
    if (suffices && !finished.load(std::memory_order_seq_cst)) sleep_on({&listening, 1}, kLongestSleep);
    bell.sleepers.fetch_sub(1, std::memory_order_relaxed);
  }
}

}  // namespace penstock::engine
