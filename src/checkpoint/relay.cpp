#include "checkpoint/relay.hpp"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

namespace penstock::checkpoint {

class Relay::Channel final : public Peers {
 public:
  Channel(Relay& relay, int channel) : relay_(relay), channel_(channel) {}

  int rank() const override { return relay_.peers_->rank(); }
  int size() const override { return relay_.peers_->size(); }
  void allgather(ConstBytes mine, Bytes all) override {
    relay_.post(channel_, [this, mine, all] { relay_.peers_->allgather(mine, all); });
  }
  void broadcast(Bytes data, int root) override {
    relay_.post(channel_, [this, data, root] { relay_.peers_->broadcast(data, root); });
  }
  void shift(ConstBytes data, int to, Bytes received, int from) override {
    relay_.post(channel_, [this, data, to, received, from] { relay_.peers_->shift(data, to, received, from); });
  }

 private:
  Relay& relay_;
  const int channel_;
};

Relay::Relay(std::shared_ptr<Peers> peers, int channels)
    : peers_(std::move(peers)), slots_(static_cast<std::size_t>(channels)) {}

std::shared_ptr<Peers> Relay::channel(int channel) { return std::make_shared<Channel>(*this, channel); }

void Relay::post(int channel, std::function<void()> collective) {
  std::unique_lock lock(mutex_);
  Slot& slot = slots_[static_cast<std::size_t>(channel)];
  slot.collective = std::move(collective);
  served_.wait(lock, [&] { return !slot.collective; });
  if (slot.failure) std::rethrow_exception(std::exchange(slot.failure, nullptr));
}

void Relay::serve(const Condition& condition) {
  constexpr auto kPause = std::chrono::microseconds(500);
  struct Round {
    std::uint64_t posted = 0;
    std::uint64_t satisfied = 0;
    std::uint64_t wanted_saves = 0;
    std::uint64_t saves = 0;
  };
  std::vector<Round> rounds(static_cast<std::size_t>(peers_->size()));
  while (true) {
    Round mine{0, condition.satisfied() ? 1u : 0u, condition.saves, saves_};
    {
      const std::lock_guard lock(mutex_);
      for (std::size_t c = 0; c < slots_.size(); ++c) {
        if (slots_[c].collective) mine.posted |= std::uint64_t{1} << c;
      }
    }
    peers_->allgather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(rounds)));
    std::uint64_t posted_by_all = ~std::uint64_t{0};
    std::uint64_t saves_of_all = ~std::uint64_t{0};
    for (const Round& round : rounds) {
      posted_by_all &= round.posted;
      saves_of_all = std::min(saves_of_all, round.saves);
    }
    const bool nothing_to_wait_for = std::all_of(rounds.begin(), rounds.end(), [&](const Round& round) {
      return round.satisfied != 0 || round.wanted_saves > saves_of_all;
    });
    for (std::size_t c = 0; c < slots_.size(); ++c) {
      if ((posted_by_all >> c & 1) == 0) continue;
      // The posting thread sleeps until its slot is empty, so the collective runs without the lock.
      std::exception_ptr failure;
      try {
        slots_[c].collective();
      } catch (...) {
        failure = std::current_exception();
      }
      const std::lock_guard lock(mutex_);
      slots_[c].collective = nullptr;
      slots_[c].failure = failure;
      served_.notify_all();
    }
    if (nothing_to_wait_for && mine.satisfied != 0) return;
    if (posted_by_all == 0) std::this_thread::sleep_for(kPause);
  }
}

}  // namespace penstock::checkpoint
