// The order of samples: a pure function of (epoch, position). Functions here compose one order of others.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "penstock/dataset.hpp"

namespace penstock::dataset {

/// An order of size() samples in each epoch. Immutable and thread-safe.
class Order {
 public:
  virtual ~Order() = default;
  virtual std::uint64_t size() const = 0;
  /// The index in the source of the sample at `position`, which is below size().
  virtual std::uint64_t at(std::uint64_t epoch, std::uint64_t position) const = 0;
  /// Text that is equal for equal functions. Saved states contain it.
  virtual std::string describe() const = 0;
};

using OrderPtr = std::shared_ptr<const Order>;

OrderPtr sequential(std::uint64_t size);
/// `order`, permuted anew in each epoch; see Permutation.
OrderPtr shuffled(OrderPtr order, std::uint64_t seed);
/// `order`, permuted anew in each epoch in two levels: its blocks of `block` neighbours, then the samples of each
/// `window` blocks that follow one another. So at most `window` blocks are in use at a time, and each is needed once
/// per epoch.
OrderPtr shuffled_in_blocks(OrderPtr order, std::uint64_t seed, std::uint64_t block, std::uint64_t window);
/// `order` with samples of similar length side by side: of each `window` groups of `group` samples, sorts the samples
/// by length and permutes the groups. `lengths` has an entry for each index in the source.
OrderPtr bucketed(OrderPtr order, std::shared_ptr<const std::vector<std::uint32_t>> lengths, std::uint64_t group,
                  std::uint64_t window);
/// The positions [first, first + size) of `order`, cut off at its end.
OrderPtr window(OrderPtr order, std::uint64_t first, std::uint64_t size);
/// `block` samples of each order in turn, without orders that are exhausted. Indices refer to the concatenation of the
/// orders' sources, which have `source_sizes` samples.
OrderPtr interleaved(std::vector<OrderPtr> orders, const std::vector<std::uint64_t>& source_sizes, std::uint64_t block);

/// Mixes orders: in any run of positions each order has its weight's share, rounded. Bresenham's line divides the
/// positions between the first order and the rest, then those of the rest in the same way. An order that is exhausted
/// before `samples` goes on with its next epoch. Without `samples` the mix ends when the first order is exhausted.
/// Indices as for interleaved().
OrderPtr mixed(std::vector<OrderPtr> orders, const std::vector<std::uint64_t>& source_sizes,
               std::vector<std::uint32_t> weights, std::optional<std::uint64_t> samples);

/// This rank's positions of one global batch: first, first + stride, …
struct Share {
  std::uint64_t first = 0;   ///< position of the first sample
  std::uint64_t stride = 1;  ///< between the positions of two samples
  std::uint64_t count = 0;
};

/// Whether a position is in a list.
bool contains(const std::vector<GivenSamples>& given, std::uint64_t epoch, std::uint64_t position);
/// Makes of a list, whose parts may overlap, the shortest one with the same samples from (epoch, position) on.
void simplify(std::vector<GivenSamples>& given, std::uint64_t epoch, std::uint64_t position);

/// Divides positions into global batches, and a global batch among ranks.
struct Sharding {
  std::uint64_t batch = 1;  ///< samples in a batch: of all ranks if contiguous, else of each rank
  int rank = 0;
  int size = 1;
  bool contiguous = true;  ///< a rank's positions follow one another; false: they are `size` apart
  bool drop_remainder = false;

  /// The number of positions in one global batch.
  std::uint64_t global_batch() const { return contiguous ? batch : batch * static_cast<std::uint64_t>(size); }
  /// The end of the global batch that begins at `position`; `position` itself if no batch is left.
  std::uint64_t end(std::uint64_t position, std::uint64_t samples) const;
  /// This rank's part of the global batch [begin, end).
  Share share(std::uint64_t begin, std::uint64_t end) const;
};

}  // namespace penstock::dataset
