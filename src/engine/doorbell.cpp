#include "engine/doorbell.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <ctime>

namespace penstock::engine {
namespace {

// The kernel's struct futex_waitv and its constants, which headers older than Linux 5.16 do not have.
struct WaitEntry {
  std::uint64_t value;
  std::uint64_t address;
  std::uint32_t flags;
  std::uint32_t reserved;
};
constexpr long kSysFutexWaitv = 449;
constexpr std::uint32_t kFutex32Bits = 2;

std::atomic<bool> can_wait_for_several{true};

timespec to_timespec(std::chrono::nanoseconds time) {
  return {static_cast<time_t>(time.count() / 1'000'000'000), static_cast<long>(time.count() % 1'000'000'000)};
}

void sleep_on_one(const Listening& listening, std::chrono::nanoseconds timeout) noexcept {
  const timespec relative = to_timespec(timeout);
  ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&listening.bell->word), FUTEX_WAIT, listening.value, &relative,
            nullptr, 0);
}

}  // namespace

void Doorbell::ring_always() noexcept {
  word.fetch_add(1, std::memory_order_seq_cst);
  ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void sleep_on(std::span<const Listening> bells, std::chrono::nanoseconds timeout) noexcept {
  constexpr std::chrono::microseconds kShort{200};
  if (bells.size() == 1) return sleep_on_one(bells[0], timeout);
  if (!can_wait_for_several.load(std::memory_order_relaxed))
    return sleep_on_one(bells[0], std::min<std::chrono::nanoseconds>(timeout, kShort));
  if (bells.size() > kMaxListening) {
    bells = bells.first(kMaxListening);
    timeout = std::min<std::chrono::nanoseconds>(timeout, kShort);
  }
  std::array<WaitEntry, kMaxListening> entries;
  for (std::size_t i = 0; i < bells.size(); ++i)
    entries[i] = {bells[i].value, reinterpret_cast<std::uint64_t>(&bells[i].bell->word), kFutex32Bits, 0};
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  const timespec deadline =
      to_timespec(timeout + std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec));
  if (::syscall(kSysFutexWaitv, entries.data(), bells.size(), 0, &deadline, CLOCK_MONOTONIC) < 0 &&
      (errno == ENOSYS || errno == EPERM))
    can_wait_for_several.store(false, std::memory_order_relaxed);
}

}  // namespace penstock::engine
