// A library that the engine calls under its lock may call user code, and that code may release requests.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/engine.hpp"
#include "local_transport.hpp"
#include "make_engine.hpp"
#include "plans.hpp"
#include "ranks.hpp"
#include "wrapped_transport.hpp"

namespace penstock::engine {
namespace {

/// poll() calls a function first.
class CallingTransport final : public WrappedTransport {
 public:
  CallingTransport(std::unique_ptr<Transport> inner, std::function<void()> call)
      : WrappedTransport(std::move(inner)), call_(std::move(call)) {}

  void poll(std::vector<Completion>& complete) override {
    call_();
    WrappedTransport::poll(complete);
  }

 private:
  const std::function<void()> call_;
};

class Callbacks : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(ProgressThreads, Callbacks, testing::Values(0, 1));

TEST_P(Callbacks, LetGoOfRequests) {
  constexpr std::uint64_t kBytes = 64;
  constexpr int kRounds = 100;
  auto transports = make_local_transports({0, 1}, {});
  const EngineOptions options{.progress_threads = GetParam()};
  std::atomic<int> let_go{0};
  const auto op = std::make_shared<const UserOp>(UserOp{.combine = [](ConstBytes, Bytes) {}});

  const auto run = [&](Engine& engine, int rank, const auto& before) {
    std::vector<std::uint8_t> in(2 * kBytes, static_cast<std::uint8_t>(rank + 1));
    std::vector<std::uint8_t> out(in.size());
    for (int round = 0; round < kRounds; ++round) {
      const auto start = [&] {
        return engine.start(alltoall_plan(rank, 2, kBytes), {bytes_of(std::as_const(in)), bytes_of(out)}, {.user = op},
                            0);
      };
      auto first = start();
      first->wait();
      before(round, std::move(first));
      start()->wait();
      EXPECT_EQ(out[(1 - rank) * kBytes], 2 - rank);
    }
  };

  std::shared_ptr<engine::Run> handed_over;  // the other rank waits until poll() releases it
  std::atomic<bool> has_one{false};
  std::thread other([&, transport = std::move(transports[1])]() mutable {
    const auto engine = make_engine(std::move(transport), options);
    run(*engine, 1, [&](int round, std::shared_ptr<engine::Run>) {
      while (let_go.load() <= round) std::this_thread::yield();
    });
  });
  {
    const auto engine = make_engine(std::make_unique<CallingTransport>(std::move(transports[0]),
                                                                       [&] {
                                                                         if (!has_one.exchange(false)) return;
                                                                         handed_over.reset();
                                                                         let_go.fetch_add(1);
                                                                       }),
                                    options);
    run(*engine, 0, [&](int, std::shared_ptr<engine::Run> first) {
      handed_over = std::move(first);
      has_one.store(true);
    });
    EXPECT_EQ(let_go.load(), kRounds);
    other.join();
  }
  EXPECT_EQ(op.use_count(), 1);
}

}  // namespace
}  // namespace penstock::engine
