// Kernels on a row of weights, in which the dense assignment spends its time. One source file per instruction set
// includes this, so everything here has internal linkage.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "redistribute/assignment_kernels.hpp"

namespace penstock::redistribute {
namespace {

constexpr std::size_t kLanes = 4;
typedef std::int64_t Lanes __attribute__((vector_size(kLanes * sizeof(std::int64_t))));

#define PENSTOCK_LOAD(lanes, at) std::memcpy(&(lanes), (at), sizeof(Lanes))
#define PENSTOCK_STORE(at, lanes) std::memcpy((at), &(lanes), sizeof(Lanes))

TwoBest two_best(const std::int64_t* weights, const std::int64_t* prices, std::size_t n) {
  constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
  TwoBest best{kLeast, kLeast, 0};
  const auto consider = [&](std::int64_t profit, std::size_t column) {
    if (profit > best.first) {
      best = {profit, best.first, column};
    } else if (profit > best.second) {
      best.second = profit;
    }
  };
  // Two independent sets of lanes hide the latency of the comparisons.
  Lanes first[2], second[2], column[2], here[2];
  for (std::size_t set = 0; set < 2; ++set) {
    first[set] = second[set] = Lanes{kLeast, kLeast, kLeast, kLeast};
    column[set] = Lanes{};
    here[set] = Lanes{0, 1, 2, 3} + static_cast<std::int64_t>(set * kLanes);
  }
  std::size_t j = 0;
  for (; j + 2 * kLanes <= n; j += 2 * kLanes)
    for (std::size_t set = 0; set < 2; ++set) {
      Lanes profit, price;
      PENSTOCK_LOAD(profit, weights + j + set * kLanes);
      PENSTOCK_LOAD(price, prices + j + set * kLanes);
      profit -= price;
      const Lanes is_better = profit > first[set];
      const Lanes lesser = is_better ? first[set] : profit;
      first[set] = is_better ? profit : first[set];
      column[set] = is_better ? here[set] : column[set];
      second[set] = (lesser > second[set]) ? lesser : second[set];
      here[set] += static_cast<std::int64_t>(2 * kLanes);
    }
  for (std::size_t set = 0; set < 2; ++set)
    for (std::size_t lane = 0; lane < kLanes; ++lane)
      consider(first[set][lane], static_cast<std::size_t>(column[set][lane]));
  for (std::size_t set = 0; set < 2; ++set)
    for (std::size_t lane = 0; lane < kLanes; ++lane)
      if (second[set][lane] > best.second) best.second = second[set][lane];
  for (; j < n; ++j) consider(weights[j] - prices[j], j);
  return best;
}

Nearest relax(const std::int64_t* weights, const std::int64_t* prices, std::int64_t base, std::int64_t row,
              const PathState& path, std::size_t n) {
  constexpr std::int64_t kFar = std::numeric_limits<std::int64_t>::max();
  Lanes nearest{kFar, kFar, kFar, kFar};
  Lanes column{};
  Lanes here{0, 1, 2, 3};
  std::size_t j = 0;
  for (; j + kLanes <= n; j += kLanes) {
    Lanes weight, price, distance, previous, state;
    PENSTOCK_LOAD(weight, weights + j);
    PENSTOCK_LOAD(price, prices + j);
    PENSTOCK_LOAD(distance, path.distance + j);
    PENSTOCK_LOAD(previous, path.previous_row + j);
    PENSTOCK_LOAD(state, path.state + j);
    const Lanes through = price - weight + base;
    const Lanes is_shorter = through < distance;
    distance = is_shorter ? through : distance;
    previous = is_shorter ? (Lanes{} + row) : previous;
    PENSTOCK_STORE(path.distance + j, distance);
    PENSTOCK_STORE(path.previous_row + j, previous);
    const Lanes key = (distance << 1) | state;
    const Lanes is_nearer = key < nearest;
    nearest = is_nearer ? key : nearest;
    column = is_nearer ? here : column;
    here += static_cast<std::int64_t>(kLanes);
  }
  Nearest best{kFar, 0};
  for (std::size_t lane = 0; lane < kLanes; ++lane)
    if (nearest[lane] < best.key) best = {nearest[lane], static_cast<std::size_t>(column[lane])};
  for (; j < n; ++j) {
    const std::int64_t through = prices[j] - weights[j] + base;
    if (through < path.distance[j]) {
      path.distance[j] = through;
      path.previous_row[j] = row;
    }
    const std::int64_t key = (path.distance[j] << 1) | path.state[j];
    if (key < best.key) best = {key, j};
  }
  return best;
}

#undef PENSTOCK_LOAD
#undef PENSTOCK_STORE

}  // namespace
}  // namespace penstock::redistribute
