// What a Dataset holds: the stages as data.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "dataset/cache.hpp"
#include "dataset/order.hpp"
#include "dataset/source.hpp"
#include "penstock/dataset.hpp"

namespace penstock::dataset {

/// A stage that runs a function of the caller.
struct MapStage {
  std::function<void(Sample&)> function;
  int parallel = 0;  ///< calls at a time; 0: as many as there are threads
};

using Stage = std::variant<DecodeOptions, MapStage>;

/// The description of a pipeline. Immutable once a Dataset owns it; datasets and pipelines share it.
struct Chain {
  SourcePtr source;
  OrderPtr order;
  std::vector<Stage> stages;
  std::shared_ptr<Cache> cache;
  std::size_t cached_stages = 0;  ///< the cache holds samples after this many stages
  /// Errors of the read and of this many stages are ignored; empty: none.
  std::optional<std::size_t> ignored_stages;
  IgnoreOptions ignore;
  SampleLimits limits;
  Budget budget;
  ObjectCalls calls;
  std::optional<Sharding> sharding;  ///< set by the first of batch() and shard()
  bool batched = false;
  bool sharded = false;
  int prefetch = 0;
  std::uint64_t prefetch_max_bytes = 0;  ///< 0: no limit
  bool in_order = true;
  bool adapts_prefetch = false;
  std::uint64_t repeat = 1;
  int threads = 0;

  /// Samples are delivered as they were read, unless they are objects.
  bool undecoded() const { return stages.empty(); }
  /// Errors of a sample's read (0) or n-th stage are ignored.
  bool ignores(std::size_t stage) const { return ignored_stages && stage <= *ignored_stages; }
  /// The form of delivered samples, if it is known before the first one.
  std::optional<SampleForm> fixed_form() const;
};

}  // namespace penstock::dataset
