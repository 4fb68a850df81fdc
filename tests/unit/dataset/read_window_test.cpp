// The window against storage that is simulated: a link of some rate, and a latency.
#include "penstock/read_window.hpp"

#include <gtest/gtest.h>

#include <queue>
#include <random>
#include <string>
#include <tuple>
#include <vector>

namespace penstock {
namespace {

struct Storage {
  double latency_s;
  double rate;  ///< bytes per second
  double read_bytes;
  int reads;
};

struct Outcome {
  double rate;         ///< after the first third
  double reads_ahead;  ///< mean
};

Outcome simulated(const Storage& storage, unsigned seed) {
  std::mt19937 random(seed);
  std::lognormal_distribution<double> size(0, 0.35);
  std::uniform_real_distribution<double> jitter(1, 1.1);
  using Read = std::tuple<double, double, double>;  // end, begin, bytes
  std::priority_queue<Read, std::vector<Read>, std::greater<>> reads;
  ReadWindow window;
  double now = 0, link_free = 0, bytes_ahead = 0;
  double from_s = 0, until_s = 0, delivered = 0, ahead = 0;
  int begun = 0, counted = 0;
  for (int done = 0; done < storage.reads; ++done) {
    const auto may_begin = [&] {
      if (reads.empty()) return true;
      if (window.bytes() == 0) return reads.size() < 10;
      return bytes_ahead + storage.read_bytes <= static_cast<double>(window.bytes());
    };
    while (begun < storage.reads && may_begin()) {
      const double bytes = std::max(1.0, storage.read_bytes * size(random));
      link_free = std::max(link_free, now) + bytes / storage.rate;
      reads.emplace(link_free + storage.latency_s * jitter(random), now, bytes);
      bytes_ahead += bytes;
      ++begun;
    }
    const auto [end, begin, bytes] = reads.top();
    reads.pop();
    now = end;
    bytes_ahead -= bytes;
    window.finished(begin, end, static_cast<std::uint64_t>(bytes));
    if (done == storage.reads / 3) from_s = now;
    if (done <= storage.reads / 3 || begun == storage.reads) continue;  // not the last ones, which few follow
    until_s = now;
    delivered += bytes;
    ahead += static_cast<double>(reads.size());
    ++counted;
  }
  return {delivered / (until_s - from_s), ahead / counted};
}

TEST(ReadWindow, FillsTheLinkAndQueuesLittle) {
  for (const Storage storage :
       {Storage{0.02, 125e6, 100e3, 6000}, Storage{0.02, 12.5e6, 100e3, 6000}, Storage{0.1, 1e9, 100e3, 40000},
        Storage{0.0001, 1e9, 100e3, 6000}, Storage{0.02, 125e6, 4e6, 600}, Storage{0.05, 1.25e9, 100e3, 40000}})
    for (unsigned seed = 1; seed <= 3; ++seed) {
      const Outcome outcome = simulated(storage, seed);
      const double product = storage.latency_s * storage.rate / storage.read_bytes;
      SCOPED_TRACE("latency " + std::to_string(storage.latency_s) + " s, rate " + std::to_string(storage.rate) +
                   " B/s, reads of " + std::to_string(storage.read_bytes) + " bytes, seed " + std::to_string(seed));
      EXPECT_GE(outcome.rate, 0.85 * storage.rate);
      EXPECT_GE(outcome.reads_ahead, product);
      EXPECT_LE(outcome.reads_ahead, 4 * (product + 4));
    }
}

TEST(ReadWindow, SaysNothingBeforeTheFirstRound) {
  ReadWindow window;
  EXPECT_EQ(window.bytes(), 0u);
  EXPECT_EQ(window.reads(), 0);
  window.finished(0, 1, 100);
  EXPECT_EQ(window.bytes(), 0u);
  for (int i = 1; i < 8; ++i) window.finished(i, i + 1, 100);
  // One read at a time, of a second and of 100 bytes.
  EXPECT_DOUBLE_EQ(window.rate(), 100);
  EXPECT_DOUBLE_EQ(window.latency_s(), 1);
  EXPECT_GE(window.reads(), 1);
}

TEST(ReadWindow, TakesClocksThatStandStill) {
  ReadWindow window;
  for (int i = 0; i < 1000; ++i) window.finished(5, 5, 1);
  EXPECT_EQ(window.bytes(), 0u);
}

}  // namespace
}  // namespace penstock
