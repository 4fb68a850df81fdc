// Random layouts.
#pragma once

#include <algorithm>
#include <numeric>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "penstock/layout.hpp"

namespace penstock::testing_layouts {

inline std::int64_t pick(std::mt19937& random, std::int64_t low, std::int64_t high) {
  return std::uniform_int_distribution<std::int64_t>(low, high)(random);
}

inline std::vector<std::int64_t> random_shape(std::mt19937& random, int dimensions) {
  std::vector<std::int64_t> shape;
  for (int d = 0; d < dimensions; ++d) shape.push_back(pick(random, 0, 40 / dimensions + 3));
  return shape;
}

/// Axes of either kind, with random owners or one tile per rank.
inline Layout random_layout(std::mt19937& random, const std::vector<std::int64_t>& shape, std::int32_t max_ranks) {
  std::vector<Axis> axes;
  std::size_t tiles = 1;
  for (const std::int64_t length : shape) {
    if (pick(random, 0, 1) == 0) {
      const std::int64_t block = pick(random, 1, 7);
      const std::int64_t skipped = pick(random, 0, 2) == 0 ? pick(random, 0, block - 1) : 0;
      axes.push_back(Axis::cyclic(length, block, pick(random, 1, 3), skipped));
    } else {
      std::vector<std::int64_t> borders{0};
      while (borders.back() < length) borders.push_back(std::min(length, borders.back() + pick(random, 1, 9)));
      axes.push_back(Axis::cut(std::move(borders)));
    }
    tiles *= static_cast<std::size_t>(axes.back().coordinates());
  }
  std::vector<std::int32_t> owners(tiles);
  auto ranks = static_cast<std::int32_t>(pick(random, 1, max_ranks));
  if (tiles <= static_cast<std::size_t>(max_ranks) && tiles > 0 && pick(random, 0, 1) == 0) {
    ranks = static_cast<std::int32_t>(tiles);
    std::iota(owners.begin(), owners.end(), 0);
    std::shuffle(owners.begin(), owners.end(), random);
  } else {
    for (std::int32_t& owner : owners) owner = static_cast<std::int32_t>(pick(random, 0, ranks - 1));
  }
  return Layout::from_axes(std::move(axes), std::move(owners), ranks,
                           pick(random, 0, 1) == 0 ? Order::row_major : Order::column_major);
}

/// Random boxes, made by cutting one box in two, repeatedly.
inline Layout random_boxes(std::mt19937& random, const std::vector<std::int64_t>& shape, std::int32_t max_ranks) {
  std::vector<LayoutBox> boxes{{0, std::vector<std::int64_t>(shape.size(), 0), shape}};
  for (std::int64_t cuts = pick(random, 0, 7); cuts > 0; --cuts) {
    LayoutBox& box = boxes[static_cast<std::size_t>(pick(random, 0, static_cast<std::int64_t>(boxes.size()) - 1))];
    const auto d = static_cast<std::size_t>(pick(random, 0, static_cast<std::int64_t>(shape.size()) - 1));
    LayoutBox rest = box;
    box.shape[d] = pick(random, 0, box.shape[d]);
    rest.begin[d] += box.shape[d];
    rest.shape[d] -= box.shape[d];
    boxes.push_back(rest);
  }
  const auto ranks = static_cast<std::int32_t>(pick(random, 1, max_ranks));
  const bool one_each = static_cast<std::size_t>(ranks) >= boxes.size();
  for (std::size_t i = 0; i < boxes.size(); ++i)
    boxes[i].owner = one_each ? static_cast<std::int32_t>(i) : static_cast<std::int32_t>(pick(random, 0, ranks - 1));
  return Layout::boxes(shape, std::move(boxes), ranks,
                       pick(random, 0, 1) == 0 ? Order::row_major : Order::column_major);
}

/// Any kind of layout: axes, boxes, or copies of either on different ranks.
inline Layout random_composed(std::mt19937& random, const std::vector<std::int64_t>& shape, std::int32_t max_ranks) {
  const auto plain = [&](std::int32_t most) {
    return pick(random, 0, 2) == 0 ? random_boxes(random, shape, most) : random_layout(random, shape, most);
  };
  Layout first = plain(max_ranks);
  if (pick(random, 0, 3) != 0) return first;
  std::vector<std::int32_t> free(static_cast<std::size_t>(max_ranks));
  std::iota(free.begin(), free.end(), 0);
  std::shuffle(free.begin(), free.end(), random);
  std::vector<Layout> copies;
  for (int tries = 0; tries < 9; ++tries) {
    const Layout copy = plain(std::max(1, max_ranks / 2));
    const auto ranks = static_cast<std::size_t>(copy.ranks());
    if (ranks > free.size() || (!copies.empty() && copy.storage() != copies[0].storage())) continue;
    copies.push_back(copy.on_ranks(std::span(free).last(ranks), max_ranks));
    free.resize(free.size() - ranks);
  }
  return copies.empty() ? first : Layout::replicated(std::move(copies));
}

template <class Visit>
void for_each_index(const std::vector<std::int64_t>& shape, const Visit& visit) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return;
  std::vector<std::int64_t> index(shape.size(), 0);
  for (bool more = true; more;) {
    visit(index);
    more = false;
    for (std::size_t d = shape.size(); d-- > 0 && !more;) {
      more = ++index[d] < shape[d];
      if (!more) index[d] = 0;
    }
  }
}

inline std::int32_t owner_of(const Layout& layout, const std::vector<std::int64_t>& index) {
  std::vector<std::int64_t> block;
  for (std::size_t d = 0; d < index.size(); ++d) block.push_back(layout.axes()[d].interval_of(index[d]));
  return layout.owner(block);
}

}  // namespace penstock::testing_layouts
