// What starting an operation leaves to the progress threads, so that the caller can compute at once.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "engine/engine.hpp"
#include "engine/progress.hpp"
#include "host/cpu_placement.hpp"
#include "local_transport.hpp"
#include "make_engine.hpp"
#include "plans.hpp"
#include "ranks.hpp"
#include "wrapped_transport.hpp"

namespace penstock::engine {
namespace {

using Senders = std::vector<std::thread::id>;

/// Notes which thread sends messages of `bytes`.
class WatchedTransport final : public WrappedTransport {
 public:
  WatchedTransport(std::unique_ptr<Transport> inner, std::uint64_t bytes, Senders& senders)
      : WrappedTransport(std::move(inner)), bytes_(bytes), senders_(senders) {}

  bool isend(ConstBytes from, int peer, int tag, Token token) override {
    if (from.size() == bytes_) senders_.push_back(std::this_thread::get_id());  // under the lock of the engine
    return WrappedTransport::isend(from, peer, tag, token);
  }

 private:
  const std::uint64_t bytes_;
  Senders& senders_;
};

enum class Call { start, run };

/// Two ranks on two nodes with a progress thread exchange a message. Returns who sent the messages of the calling
/// thread's rank.
Senders senders_of(Call call, std::uint64_t bytes) {
  Senders senders;
  auto transports = make_local_transports({0, 1}, {});
  const EngineOptions options{.progress_threads = 1};
  const auto claim = Progress::of_process().claim_threads({host::WorkerPin::kAnyCpu});
  const auto exchange = [&](std::unique_ptr<Transport> transport, int rank) {
    const auto engine = make_engine(std::move(transport), options);
    std::vector<std::uint8_t> in(2 * bytes, static_cast<std::uint8_t>(rank + 1));
    std::vector<std::uint8_t> out(in.size());
    const Bindings bindings{bytes_of(std::as_const(in)), bytes_of(out)};
    if (call == Call::run) {
      engine->run(alltoall_plan(rank, 2, bytes), bindings, {}, 0);
    } else {
      const auto run = engine->start(alltoall_plan(rank, 2, bytes), bindings, {}, 0);
      while (!run->done()) std::this_thread::yield();  // without help of this thread
      run->wait();
    }
    EXPECT_EQ(out[static_cast<std::size_t>(1 - rank) * bytes], 2 - rank);
  };
  std::thread other([&, transport = std::move(transports[1])]() mutable { exchange(std::move(transport), 1); });
  exchange(std::make_unique<WatchedTransport>(std::move(transports[0]), bytes, senders), 0);
  other.join();
  return senders;
}

constexpr std::uint64_t kLong = 1 << 20;
constexpr std::uint64_t kShort = 64;

TEST(Start, LeavesLongSendsToProgressThreads) {
  const Senders senders = senders_of(Call::start, kLong);
  ASSERT_EQ(senders.size(), 1U);
  EXPECT_NE(senders[0], std::this_thread::get_id());
}

TEST(Start, SendsShortMessagesAtOnce) {
  EXPECT_EQ(senders_of(Call::start, kShort), Senders{std::this_thread::get_id()});
}

// The caller has nothing else to do.
TEST(Start, LeavesNothingIfTheCallerWaits) {
  EXPECT_EQ(senders_of(Call::run, kLong), Senders{std::this_thread::get_id()});
}

}  // namespace
}  // namespace penstock::engine
