// Making a communicator where a rank runs out of memory, over threads of this process as ranks.
#include <gtest/gtest.h>

#include <memory>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/state.hpp"
#include "engine/local_transport.hpp"
#include "penstock/error.hpp"

namespace penstock::comm {
namespace {

enum class Lacking { description, nodes };

/// Where this rank looks at what it has, for the first time, there is no memory.
class Starved final : public engine::Transport {
 public:
  Starved(std::unique_ptr<engine::Transport> under, Lacking lacking) : under_(std::move(under)), lacking_(lacking) {}

  int rank() const override { return under_->rank(); }
  int size() const override { return under_->size(); }
  const std::vector<std::int32_t>& node_of_rank() const override {
    starve(Lacking::nodes);
    return under_->node_of_rank();
  }
  bool any_thread() const override { return under_->any_thread(); }
  std::string description() const override {
    starve(Lacking::description);
    return under_->description();
  }
  int max_tag() const override { return under_->max_tag(); }
  bool isend(ConstBytes from, int peer, int tag, Token token) override { return under_->isend(from, peer, tag, token); }
  void irecv(Bytes to, int peer, int tag, Token token) override { under_->irecv(to, peer, tag, token); }
  bool take(Bytes to, int tag, Token token) override { return under_->take(to, tag, token); }
  void poll(std::vector<Completion>& complete) override { under_->poll(complete); }
  void cancel(Token receive) override { under_->cancel(receive); }
  void poke() noexcept override { under_->poke(); }
  void allgather(ConstBytes mine, Bytes all) override { under_->allgather(mine, all); }

 private:
  void starve(Lacking what) const {
    if (what == lacking_ && std::exchange(is_first_, false)) throw std::bad_alloc();
  }

  const std::unique_ptr<engine::Transport> under_;
  const Lacking lacking_;
  mutable bool is_first_ = true;
};

TEST(MakeComm, FailsOnAllRanksWhereOneLacksMemory) {
  constexpr int kRanks = 3;
  for (const Lacking lacking : {Lacking::description, Lacking::nodes})
    for (int victim = 0; victim < kRanks; ++victim) {
      auto transports = engine::make_local_transports(std::vector<std::int32_t>(kRanks));
      std::vector<std::string> outcomes(kRanks);
      std::vector<std::thread> threads;
      for (int rank = 0; rank < kRanks; ++rank)
        threads.emplace_back([&, rank] {
          auto& outcome = outcomes[static_cast<std::size_t>(rank)];
          const MakeLink make_link = [&] {
            auto& own = transports[static_cast<std::size_t>(rank)];
            if (rank == victim) own = std::make_unique<Starved>(std::move(own), lacking);
            return std::move(own);
          };
          try {
            make_comm(make_link, {.progress_cores = 1});
            outcome = "made";
          } catch (const std::bad_alloc&) {
            outcome = "no memory";
          } catch (const Error& error) {
            outcome =
                std::string(name(error.code())) + " of rank " + std::to_string(error.rank()) + ": " + error.message();
          }
        });
      for (std::thread& thread : threads) thread.join();
      for (int rank = 0; rank < kRanks; ++rank)
        EXPECT_EQ(outcomes[static_cast<std::size_t>(rank)], rank == victim
                                                                ? "no memory"
                                                                : "peer_failed of rank " + std::to_string(victim) +
                                                                      ": there is not enough memory for a communicator")
            << "rank " << rank;
    }
}

}  // namespace
}  // namespace penstock::comm
