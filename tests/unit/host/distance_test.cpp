#include "host/distance.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace penstock::host {
namespace {

TEST(Distance, LeavesMemoryAsItIsWhateverItsPlaceAndSize) {
  Distance distance;
  std::vector<std::byte> memory(70'000, std::byte{0x5a});
  for (const std::size_t begin : {0u, 1u, 3u, 63u, 64u, 100u})
    for (const std::size_t size : {0u, 1u, 319u, 320u, 321u, 1000u, 65'536u})
      for (int turn = 0; turn < 8; ++turn) distance.is_far(Bytes(memory).subspan(begin, size));
  EXPECT_EQ(std::ranges::count(memory, std::byte{0x5a}), 70'000);
}

// is_far() keeps the content even if another thread writes the memory meanwhile.
TEST(Distance, LosesNothingThatOthersWriteMeanwhile) {
  Distance distance;
  std::vector<std::uint32_t> memory(1 << 12);
  constexpr std::uint32_t kTurns = 20'000;
  std::atomic<bool> done{false};
  std::thread writer([&] {
    for (std::uint32_t turn = 0; turn < kTurns; ++turn)
      for (std::size_t i = 0; i < memory.size(); i += 256) std::atomic_ref(memory[i]).fetch_add(1);
    done = true;
  });
  while (!done) distance.is_far(std::as_writable_bytes(std::span(memory)));
  writer.join();
  for (std::size_t i = 0; i < memory.size(); ++i) ASSERT_EQ(memory[i], i % 256 == 0 ? kTurns : 0) << i;
}

}  // namespace
}  // namespace penstock::host
