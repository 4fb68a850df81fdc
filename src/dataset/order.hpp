// Which sample comes when: a pure function of (epoch, position), composed of stages.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace penstock::dataset {

/// Immutable, thread-safe.
class Order {
 public:
  virtual ~Order() = default;
  virtual std::uint64_t size() const = 0;
  /// Index in the source of the sample at `position` < size().
  virtual std::uint64_t at(std::uint64_t epoch, std::uint64_t position) const = 0;
  /// Equal for equal functions; part of saved states.
  virtual std::string describe() const = 0;
};

using OrderPtr = std::shared_ptr<const Order>;

OrderPtr sequential(std::uint64_t size);
OrderPtr shuffled(OrderPtr order, std::uint64_t seed);
/// The positions [first, first + size) of `order`, cut off at its end.
OrderPtr window(OrderPtr order, std::uint64_t first, std::uint64_t size);
/// `block` samples of each in turn; the sources of the orders are taken as concatenated, `source_sizes` long.
OrderPtr interleaved(std::vector<OrderPtr> orders, const std::vector<std::uint64_t>& source_sizes, std::uint64_t block);

/// The share of each order in any run of positions is its weight, rounded: the positions are divided between two groups
/// of orders by Bresenham's line, and each group's in the same way. An order that is exhausted before `samples` starts
/// again with another epoch's; without `samples`, the first that is exhausted ends it. Sources as for interleaved().
OrderPtr mixed(std::vector<OrderPtr> orders, const std::vector<std::uint64_t>& source_sizes,
               std::vector<std::uint32_t> weights, std::optional<std::uint64_t> samples);

/// A global batch and this rank's part of it.
struct Share {
  std::uint64_t first = 0;   ///< position of the first sample
  std::uint64_t stride = 1;  ///< between the positions of two samples
  std::uint64_t count = 0;
};

/// How positions are dealt out to batches and ranks.
struct Sharding {
  std::uint64_t batch = 1;  ///< of all ranks if contiguous, else of each
  int rank = 0;
  int size = 1;
  bool contiguous = true;
  bool drop_remainder = false;

  /// Positions that one batch of all ranks covers.
  std::uint64_t global_batch() const { return contiguous ? batch : batch * static_cast<std::uint64_t>(size); }
  /// Where the batch that begins at `position` ends, or `position` itself when there is none any more.
  std::uint64_t end(std::uint64_t position, std::uint64_t samples) const;
  Share share(std::uint64_t begin, std::uint64_t end) const;
};

}  // namespace penstock::dataset
