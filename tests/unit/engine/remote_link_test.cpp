// Messages between nodes, below the engine.
#include "engine/remote_link.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "engine/local_transport.hpp"

namespace penstock::engine {
namespace {

struct Received final : RemoteEvents {
  std::vector<std::uint64_t> sequences;
  void on_packet(const Header& header, ConstBytes) override { sequences.push_back(header.sequence); }
  void on_data_sent(std::uint32_t) override {}
  void on_data_received(std::uint32_t, std::uint64_t) override {}
  void on_released(Operation*) override {}
};

TEST(RemoteLink, DropsWhatAnEarlierCommunicatorLeft) {
  auto transports = make_local_transports({0, 1});
  Received nothing;
  Received received;
  RemoteLink earlier(*transports[0], nothing, 1000, 7);
  RemoteLink later(*transports[0], nothing, 1000, 8);
  RemoteLink receiver(*transports[1], received, 1000, 8);
  earlier.send(1, {.sequence = 1}, {}, nullptr);
  later.send(1, {.sequence = 2}, {}, nullptr);
  earlier.send(1, {.sequence = 3}, {}, nullptr);
  later.send(1, {.sequence = 4}, {}, nullptr);
  for (int round = 0; round < 1000 && received.sequences.size() < 2; ++round) {
    earlier.progress();
    later.progress();
    receiver.progress();
  }
  for (int round = 0; round < 10; ++round) receiver.progress();
  EXPECT_EQ(received.sequences, (std::vector<std::uint64_t>{2, 4}));
}

}  // namespace
}  // namespace penstock::engine
