#include "checkpoint/rate_limit.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

namespace penstock::checkpoint {

Clock Clock::system() {
  return {[] { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); },
          [](double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }};
}

void RateLimit::take(std::uint64_t bytes) {
  if (bytes_per_s_ == 0) return;
  const double now_s = clock_.now_s();
  if (free_at_s_ > now_s) {
    clock_.sleep_s(free_at_s_ - now_s);
    waited_s_ = waited_s_ + (free_at_s_ - now_s);
  }
  free_at_s_ = std::max(free_at_s_, now_s) + static_cast<double>(bytes) / bytes_per_s_;
}

}  // namespace penstock::checkpoint
