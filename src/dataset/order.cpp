#include "dataset/order.hpp"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <deque>
#include <tuple>
#include <utility>

#include "dataset/permutation.hpp"

namespace penstock::dataset {

namespace {

class Sequential : public Order {
 public:
  explicit Sequential(std::uint64_t size) : size_(size) {}
  std::uint64_t size() const override { return size_; }
  std::uint64_t at(std::uint64_t, std::uint64_t position) const override { return position; }
  std::string describe() const override { return std::to_string(size_) + " samples"; }

 private:
  std::uint64_t size_;
};

class Shuffled : public Order {
 public:
  Shuffled(OrderPtr order, std::uint64_t seed) : order_(std::move(order)), seed_(seed) {}
  std::uint64_t size() const override { return order_->size(); }
  std::uint64_t at(std::uint64_t epoch, std::uint64_t position) const override {
    return order_->at(epoch, Permutation(seed_, epoch, order_->size())(position));
  }
  std::string describe() const override { return order_->describe() + " | shuffle " + std::to_string(seed_); }

 private:
  OrderPtr order_;
  std::uint64_t seed_;
};

class ShuffledInBlocks : public Order {
 public:
  ShuffledInBlocks(OrderPtr order, std::uint64_t seed, std::uint64_t block, std::uint64_t window)
      : order_(std::move(order)), seed_(seed), block_(block), window_(window) {
    assert(block_ > 0 && window_ > 0);
    blocks_ = order_->size() / block_ + (order_->size() % block_ != 0 ? 1 : 0);
  }
  std::uint64_t size() const override { return order_->size(); }

  std::uint64_t at(std::uint64_t epoch, std::uint64_t position) const override {
    // Only the last block may be short. Places are counted as if it were full: it leaves a gap where it is put.
    const Permutation blocks(seed_, epoch, blocks_);
    const std::uint64_t gap = blocks_ * block_ - size();
    const std::uint64_t short_place = gap == 0 ? blocks_ : place_of_last(blocks);
    const std::uint64_t gap_begin = gap == 0 ? size() : (short_place + 1) * block_ - gap;
    const std::uint64_t group = window_ > size() / block_ ? 0 : with_gap(position, gap_begin, gap) / (window_ * block_);
    const std::uint64_t first_place = group * window_;
    const std::uint64_t last_place = std::min(blocks_ - first_place, window_) + first_place;
    const std::uint64_t begin = first_place * block_ - (first_place > short_place ? gap : 0);
    const std::uint64_t end = last_place * block_ - (last_place > short_place ? gap : 0);
    const std::uint64_t key = seed_ + (group + 1) * 0x9e3779b97f4a7c15u;  // Permutation mixes it
    const std::uint64_t mixed = begin + Permutation(key, epoch, end - begin)(position - begin);
    const std::uint64_t place = with_gap(mixed, gap_begin, gap);
    return order_->at(epoch, blocks(place / block_) * block_ + place % block_);
  }

  std::string describe() const override {
    return order_->describe() + " | shuffle " + std::to_string(seed_) + " in windows of " + std::to_string(window_) +
           " blocks of " + std::to_string(block_);
  }

 private:
  static std::uint64_t with_gap(std::uint64_t position, std::uint64_t gap_begin, std::uint64_t gap) {
    return position < gap_begin ? position : position + gap;
  }
  std::uint64_t place_of_last(const Permutation& blocks) const { return blocks.inverse(blocks_ - 1); }

  OrderPtr order_;
  std::uint64_t seed_;
  std::uint64_t block_;
  std::uint64_t window_;
  std::uint64_t blocks_ = 0;
};

class Bucketed : public Order {
 public:
  Bucketed(OrderPtr order, std::shared_ptr<const std::vector<std::uint32_t>> lengths, std::uint64_t group,
           std::uint64_t window)
      : order_(std::move(order)), lengths_(std::move(lengths)), group_(group), window_(window) {
    assert(group_ > 0 && window_ > 0);
  }
  std::uint64_t size() const override { return order_->size(); }
  std::uint64_t at(std::uint64_t epoch, std::uint64_t position) const override {
    const std::uint64_t width = group_ * window_;
    return (*sorted(epoch, position / width))[position % width];
  }
  std::string describe() const override {
    return order_->describe() + " | " + std::to_string(window_) + " buckets of " + std::to_string(group_);
  }

 private:
  using Indices = std::shared_ptr<const std::vector<std::uint64_t>>;
  struct Entry {
    std::uint64_t order, epoch, which;
    Indices indices;
  };

  /// The indices of a window. Each thread keeps its last ones: neighbours are asked for together, and a forked child
  /// must not wait for a lock that its parent held.
  Indices sorted(std::uint64_t epoch, std::uint64_t which) const {
    thread_local std::deque<Entry> kept;
    for (const Entry& entry : kept)
      if (entry.order == number_ && entry.epoch == epoch && entry.which == which) return entry.indices;
    const std::uint64_t begin = which * group_ * window_;
    const std::uint64_t count = std::min(group_ * window_, size() - begin);
    std::vector<std::uint64_t> by_length(count);
    for (std::uint64_t i = 0; i < count; ++i) by_length[i] = order_->at(epoch, begin + i);
    std::ranges::stable_sort(by_length, {}, [this](std::uint64_t index) { return (*lengths_)[index]; });
    // Samples that fill no group stay at the end of the last window: only the last group may be short.
    const std::uint64_t groups = count / group_;
    auto indices = std::make_shared<std::vector<std::uint64_t>>();
    indices->reserve(count);
    const Permutation permutation(which, epoch, groups);
    for (std::uint64_t k = 0; k < groups; ++k) {
      const auto from = by_length.begin() + static_cast<std::ptrdiff_t>(permutation(k) * group_);
      indices->insert(indices->end(), from, from + static_cast<std::ptrdiff_t>(group_));
    }
    indices->insert(indices->end(), by_length.begin() + static_cast<std::ptrdiff_t>(groups * group_), by_length.end());
    kept.push_back({number_, epoch, which, indices});
    if (kept.size() > kKept) kept.pop_front();
    return indices;
  }

  static constexpr std::size_t kKept = 2;
  static inline std::atomic<std::uint64_t> made = 0;
  const std::uint64_t number_ = made++;
  OrderPtr order_;
  std::shared_ptr<const std::vector<std::uint32_t>> lengths_;
  std::uint64_t group_;
  std::uint64_t window_;
};

class Window : public Order {
 public:
  Window(OrderPtr order, std::uint64_t first, std::uint64_t size)
      : order_(std::move(order)),
        first_(std::min(first, order_->size())),
        size_(std::min(size, order_->size() - first_)) {}
  std::uint64_t size() const override { return size_; }
  std::uint64_t at(std::uint64_t epoch, std::uint64_t position) const override {
    return order_->at(epoch, first_ + position);
  }
  std::string describe() const override {
    return order_->describe() + " | from " + std::to_string(first_) + " take " + std::to_string(size_);
  }

 private:
  OrderPtr order_;
  std::uint64_t first_;
  std::uint64_t size_;
};

class Interleaved : public Order {
 public:
  Interleaved(std::vector<OrderPtr> orders, const std::vector<std::uint64_t>& source_sizes, std::uint64_t block)
      : orders_(std::move(orders)), block_(block) {
    assert(block_ > 0 && orders_.size() == source_sizes.size());
    std::uint64_t offset = 0;
    for (std::uint64_t size : source_sizes) {
      offsets_.push_back(offset);
      offset += size;
    }
    // In each round every dataset gives one block. A stretch is a run of rounds with the same members and block sizes.
    // If the size of a dataset is no multiple of the block, its last round is a stretch of its own.
    std::vector<std::uint64_t> cuts{0};
    for (const OrderPtr& order : orders_) {
      cuts.push_back(order->size() / block_);
      cuts.push_back((order->size() + block_ - 1) / block_);
    }
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
      Stretch stretch{size_, cuts[i], {}, 0};
      for (std::size_t k = 0; k < orders_.size(); ++k) {
        const std::uint64_t given = cuts[i] * block_;
        if (orders_[k]->size() <= given) continue;
        stretch.members.push_back({k, stretch.round_samples});
        stretch.round_samples += std::min(block_, orders_[k]->size() - given);
      }
      size_ += stretch.round_samples * (cuts[i + 1] - cuts[i]);
      stretches_.push_back(std::move(stretch));
    }
  }

  std::uint64_t size() const override { return size_; }

  std::uint64_t at(std::uint64_t epoch, std::uint64_t position) const override {
    const auto stretch = std::prev(std::upper_bound(stretches_.begin(), stretches_.end(), position,
                                                    [](std::uint64_t p, const Stretch& s) { return p < s.first; }));
    const std::uint64_t round = (position - stretch->first) / stretch->round_samples;
    const std::uint64_t within = (position - stretch->first) % stretch->round_samples;
    const auto member = std::prev(std::upper_bound(stretch->members.begin(), stretch->members.end(), within,
                                                   [](std::uint64_t w, const Member& m) { return w < m.first; }));
    const std::uint64_t own = (stretch->round + round) * block_ + (within - member->first);
    return offsets_[member->order] + orders_[member->order]->at(epoch, own);
  }

  std::string describe() const override {
    std::string text = "interleave " + std::to_string(block_) + " of";
    for (const OrderPtr& order : orders_) text += " (" + order->describe() + ")";
    return text;
  }

 private:
  struct Member {
    std::size_t order;
    std::uint64_t first;  ///< its first sample within a round
  };
  struct Stretch {
    std::uint64_t first;  ///< position
    std::uint64_t round;  ///< number of its first round
    std::vector<Member> members;
    std::uint64_t round_samples;
  };

  std::vector<OrderPtr> orders_;
  std::vector<std::uint64_t> offsets_;
  std::uint64_t block_;
  std::uint64_t size_ = 0;
  std::vector<Stretch> stretches_;
};

class Mixed : public Order {
 public:
  Mixed(std::vector<OrderPtr> orders, const std::vector<std::uint64_t>& source_sizes,
        std::vector<std::uint32_t> weights, std::optional<std::uint64_t> samples)
      : orders_(std::move(orders)), weights_(std::move(weights)) {
    assert(!orders_.empty() && orders_.size() == source_sizes.size() && orders_.size() == weights_.size());
    std::uint64_t offset = 0;
    for (std::size_t k = 0; k < orders_.size(); ++k) {
      offsets_.push_back(offset);
      offset += source_sizes[k];
      weights_after_.push_back(weights_[k]);
    }
    for (std::size_t k = orders_.size() - 1; k-- > 0;) weights_after_[k] += weights_after_[k + 1];
    size_ = samples ? *samples : until_one_is_exhausted();
    for (std::size_t k = 0; k < orders_.size(); ++k) {
      const std::uint64_t own = orders_[k]->size(), needed = given_by(k, size_);
      passes_.push_back(own == 0 ? 0 : (needed + own - 1) / own);
    }
  }

  std::uint64_t size() const override { return size_; }

  std::uint64_t at(std::uint64_t epoch, std::uint64_t position) const override {
    std::size_t k = 0;
    for (; k + 1 < orders_.size(); ++k) {
      const std::uint64_t before = given_by_first(k, position);
      if (given_by_first(k, position + 1) != before) {
        position = before;
        break;
      }
      position -= before;
    }
    const std::uint64_t own = orders_[k]->size();
    return offsets_[k] + orders_[k]->at(epoch * passes_[k] + position / own, position % own);
  }

  std::string describe() const override {
    std::string text = "mix " + std::to_string(size_) + " of";
    for (std::size_t k = 0; k < orders_.size(); ++k)
      text += " " + std::to_string(weights_[k]) + " x (" + orders_[k]->describe() + ")";
    return text;
  }

 private:
  /// How many of the first `count` samples of orders k, k + 1, … come from order k.
  std::uint64_t given_by_first(std::size_t k, std::uint64_t count) const {
    // Whole rounds and the rest apart, so that no product overflows.
    const std::uint64_t all = weights_after_[k], rest = count % all;
    return count / all * weights_[k] + (rest * weights_[k] + all / 2) / all;
  }
  /// How many of the first `count` samples of all orders come from order k.
  std::uint64_t given_by(std::size_t k, std::uint64_t count) const {
    for (std::size_t i = 0; i < k; ++i) count -= given_by_first(i, count);
    return k + 1 == orders_.size() ? count : given_by_first(k, count);
  }
  std::uint64_t until_one_is_exhausted() const {
    std::uint64_t fits = 0, beyond = 1;
    for (const OrderPtr& order : orders_) beyond += order->size();
    while (fits + 1 < beyond) {
      const std::uint64_t middle = fits + (beyond - fits) / 2;
      bool enough = true;
      for (std::size_t k = 0; k < orders_.size(); ++k) enough = enough && given_by(k, middle) <= orders_[k]->size();
      (enough ? fits : beyond) = middle;
    }
    return fits;
  }

  std::vector<OrderPtr> orders_;
  std::vector<std::uint32_t> weights_;
  std::vector<std::uint64_t> weights_after_;  ///< the sum of the weights of orders k, k + 1, …
  std::vector<std::uint64_t> offsets_;
  std::vector<std::uint64_t> passes_;  ///< how many epochs of order k one epoch of the mix begins
  std::uint64_t size_ = 0;
};

}  // namespace

OrderPtr sequential(std::uint64_t size) { return std::make_shared<Sequential>(size); }

OrderPtr shuffled(OrderPtr order, std::uint64_t seed) { return std::make_shared<Shuffled>(std::move(order), seed); }

OrderPtr shuffled_in_blocks(OrderPtr order, std::uint64_t seed, std::uint64_t block, std::uint64_t window) {
  return std::make_shared<ShuffledInBlocks>(std::move(order), seed, block, window);
}

OrderPtr bucketed(OrderPtr order, std::shared_ptr<const std::vector<std::uint32_t>> lengths, std::uint64_t group,
                  std::uint64_t window) {
  return std::make_shared<Bucketed>(std::move(order), std::move(lengths), group, window);
}

OrderPtr window(OrderPtr order, std::uint64_t first, std::uint64_t size) {
  return std::make_shared<Window>(std::move(order), first, size);
}

OrderPtr interleaved(std::vector<OrderPtr> orders, const std::vector<std::uint64_t>& source_sizes,
                     std::uint64_t block) {
  return std::make_shared<Interleaved>(std::move(orders), source_sizes, block);
}

OrderPtr mixed(std::vector<OrderPtr> orders, const std::vector<std::uint64_t>& source_sizes,
               std::vector<std::uint32_t> weights, std::optional<std::uint64_t> samples) {
  return std::make_shared<Mixed>(std::move(orders), source_sizes, std::move(weights), samples);
}

std::uint64_t Sharding::end(std::uint64_t position, std::uint64_t samples) const {
  if (position >= samples) return position;
  const std::uint64_t left = samples - position;
  if (left < global_batch()) return drop_remainder ? position : samples;
  return position + global_batch();
}

Share Sharding::share(std::uint64_t begin, std::uint64_t end) const {
  const std::uint64_t count = end - begin;
  const auto ranks = static_cast<std::uint64_t>(size);
  const auto own = static_cast<std::uint64_t>(rank);
  const std::uint64_t local = count / ranks + (own < count % ranks ? 1 : 0);
  if (!contiguous) return {begin + own, ranks, local};
  return {begin + count / ranks * own + std::min(own, count % ranks), 1, local};
}

bool contains(const std::vector<GivenSamples>& given, std::uint64_t epoch, std::uint64_t position) {
  return std::ranges::any_of(given, [&](const GivenSamples& some) {
    if (some.epoch != epoch || position < some.first) return false;
    const std::uint64_t distance = position - some.first;
    return distance % some.stride == 0 && distance / some.stride < some.count;
  });
}

void simplify(std::vector<GivenSamples>& given, std::uint64_t epoch, std::uint64_t position) {
  for (GivenSamples& some : given) {
    if (some.count == 1) some.stride = 1;
    if (some.epoch < epoch) some.count = 0;
    if (some.epoch != epoch || some.first >= position) continue;
    const std::uint64_t passed = std::min(some.count, (position - some.first + some.stride - 1) / some.stride);
    some.first += passed * some.stride;
    some.count -= passed;
  }
  std::erase_if(given, [](const GivenSamples& some) { return some.count == 0; });
  // Those that can be joined become neighbours.
  std::ranges::sort(given, {}, [](const GivenSamples& some) {
    return std::tuple(some.epoch, some.stride, some.first % some.stride, some.first);
  });
  std::size_t kept = 0;
  for (std::size_t i = 1; i < given.size(); ++i) {
    GivenSamples& last = given[kept];
    const GivenSamples& some = given[i];
    const bool alike =
        last.epoch == some.epoch && last.stride == some.stride && last.first % last.stride == some.first % some.stride;
    if (alike && some.first <= last.first + last.count * last.stride)
      last.count = std::max(last.count, (some.first - last.first) / last.stride + some.count);
    else
      given[++kept] = some;
  }
  if (!given.empty()) given.resize(kept + 1);
}

}  // namespace penstock::dataset
