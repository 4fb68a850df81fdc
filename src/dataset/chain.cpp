#include "dataset/chain.hpp"

#include <algorithm>
#include <utility>

#include "dataset/decoder.hpp"
#include "dataset/pipeline.hpp"
#include "penstock/error.hpp"

namespace penstock {

using dataset::Chain;

namespace dataset {

std::optional<SampleForm> Chain::fixed_form() const {
  if (stages.empty()) return std::nullopt;
  const auto* decode = std::get_if<DecodeOptions>(&stages.back());
  if (decode == nullptr || decode->shape.empty()) return std::nullopt;
  return SampleForm{decode->dtype, decode->shape};
}

}  // namespace dataset

namespace {

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorCode::invalid_argument, message); }

std::shared_ptr<Chain> copy(const Chain& chain) { return std::make_shared<Chain>(chain); }

Dataset from_source(dataset::SourcePtr source) {
  auto chain = std::make_shared<Chain>();
  chain->order = dataset::sequential(source->size());
  chain->source = std::move(source);
  return Dataset(std::move(chain));
}

/// What a dataset that is made of several takes from them.
struct Several {
  std::shared_ptr<Chain> chain;
  std::vector<dataset::OrderPtr> orders;
  std::vector<std::uint64_t> sizes;
};

Several together(const std::vector<const Chain*>& parts, const std::string& stage) {
  if (parts.empty()) refuse(stage + " needs at least one dataset");
  Several several{std::make_shared<Chain>(), {}, {}};
  std::vector<dataset::SourcePtr> sources;
  for (const Chain* part : parts) {
    if (!part->stages.empty() || part->cache || part->ignored_stages || part->sharding || part->prefetch != 0 ||
        part->repeat != 1)
      refuse(stage +
             " takes datasets that have only been shuffled, taken from, skipped, mixed or interleaved; put the other "
             "stages after it, so that they apply to all of them");
    several.orders.push_back(part->order);
    sources.push_back(part->source);
    several.sizes.push_back(part->source->size());
  }
  several.chain->calls = parts.front()->calls;
  several.chain->limits = parts.front()->limits;
  several.chain->budget = parts.front()->budget;
  several.chain->source = dataset::concatenated(std::move(sources));
  return several;
}

// Saved positions count in the order of all ranks, so nothing may reorder the samples of one rank alone.
void check_before_delivery(const Chain& chain, const std::string& stage) {
  if (chain.batched) refuse(stage + " works on samples; put it before batch()");
  if (chain.sharded) refuse(stage + " changes the order of all ranks; put it before shard()");
}

void check_on_samples(const Chain& chain, const std::string& stage) {
  if (chain.batched) refuse(stage + " works on samples; put it before batch()");
}

std::shared_ptr<Chain> with_cache(const Chain& of, std::shared_ptr<dataset::Cache> cache) {
  check_on_samples(of, "cache()");
  if (of.cache) refuse("the samples are cached already; use cache() once");
  auto chain = copy(of);
  chain->cache = std::move(cache);
  chain->cached_stages = chain->stages.size();
  return chain;
}

std::int64_t check_threads(int count, const std::string& what) {
  if (count < 0 || count > 1024)
    refuse(what + " cannot be " + std::to_string(count) + "; expected 1 to 1024, or 0 for the default");
  return count;
}

}  // namespace

std::uint64_t SampleForm::size_bytes() const {
  std::uint64_t size = penstock::size_bytes(dtype);
  for (std::uint64_t extent : shape)
    if (__builtin_mul_overflow(size, extent, &size)) refuse("a sample of " + describe() + " is too large");
  return size;
}

std::string SampleForm::describe() const {
  std::string text(name(dtype));
  text += " (";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + (shape.size() == 1 ? ",)" : ")");
}

Dataset Dataset::from_files(std::vector<std::string> paths, std::vector<std::int64_t> labels) {
  return from_source(dataset::file_source(std::move(paths), std::move(labels)));
}

Dataset Dataset::from_bytes(std::vector<std::vector<std::byte>> samples, std::vector<std::int64_t> labels) {
  return from_source(dataset::memory_source(std::move(samples), std::move(labels)));
}

Dataset Dataset::from_objects(ObjectSource source) { return from_source(dataset::object_source(std::move(source))); }

Dataset Dataset::from_reader(ReaderSource source) { return from_source(dataset::reader_source(std::move(source))); }

Dataset Dataset::from_index(std::shared_ptr<const SampleIndex> index) {
  return from_source(dataset::index_source(std::move(index)));
}

Dataset Dataset::interleave(std::span<const Dataset> datasets, std::uint64_t block) {
  if (block == 0) refuse("interleave() cannot take blocks of 0 samples; expected 1 or more");
  std::vector<const Chain*> parts;
  for (const Dataset& one : datasets) parts.push_back(one.chain_.get());
  Several several = together(parts, "interleave()");
  several.chain->order = dataset::interleaved(std::move(several.orders), several.sizes, block);
  return Dataset(std::move(several.chain));
}

Dataset Dataset::mix(std::span<const Dataset> datasets, std::span<const std::uint32_t> weights,
                     std::optional<std::uint64_t> samples) {
  if (datasets.size() != weights.size())
    refuse("mix() got " + std::to_string(weights.size()) + " weights for " + std::to_string(datasets.size()) +
           " datasets; pass one for each");
  std::vector<const Chain*> parts;
  for (std::size_t i = 0; i < datasets.size(); ++i) {
    if (weights[i] == 0) refuse("mix() got a weight of 0; leave that dataset out");
    if (samples.value_or(0) > 0 && datasets[i].samples() == 0)
      refuse("mix() cannot repeat a dataset without samples; leave that dataset out");
    parts.push_back(datasets[i].chain_.get());
  }
  Several several = together(parts, "mix()");
  several.chain->order =
      dataset::mixed(std::move(several.orders), several.sizes, {weights.begin(), weights.end()}, samples);
  return Dataset(std::move(several.chain));
}

Dataset Dataset::shuffle(std::uint64_t seed) const {
  check_before_delivery(*chain_, "shuffle()");
  auto chain = copy(*chain_);
  chain->order = dataset::shuffled(chain->order, seed);
  return Dataset(std::move(chain));
}

Dataset Dataset::shuffle(std::uint64_t seed, const ShuffleBlocks& blocks) const {
  check_before_delivery(*chain_, "shuffle()");
  if (blocks.block == 0 || blocks.window == 0)
    refuse("shuffle() cannot use " + std::to_string(blocks.window) + " blocks of " + std::to_string(blocks.block) +
           " samples; expected 1 or more of each");
  auto chain = copy(*chain_);
  chain->order = dataset::shuffled_in_blocks(chain->order, seed, blocks.block, blocks.window);
  return Dataset(std::move(chain));
}

Dataset Dataset::bucket_by_length(std::vector<std::uint32_t> lengths, std::uint64_t group, std::uint64_t window) const {
  check_before_delivery(*chain_, "bucket_by_length()");
  if (lengths.size() != chain_->source->size())
    refuse("bucket_by_length() got " + std::to_string(lengths.size()) + " lengths for " +
           std::to_string(chain_->source->size()) + " samples; pass one for each");
  constexpr std::uint64_t kLargest = std::uint64_t{1} << 24;
  if (group == 0 || window == 0 || group > kLargest || window > kLargest)
    refuse("bucket_by_length() cannot sort " + std::to_string(window) + " batches of " + std::to_string(group) +
           " samples; expected 1 to 2^24 of each");
  auto chain = copy(*chain_);
  chain->order = dataset::bucketed(chain->order, std::make_shared<const std::vector<std::uint32_t>>(std::move(lengths)),
                                   group, window);
  return Dataset(std::move(chain));
}

Dataset Dataset::take(std::uint64_t samples) const {
  check_before_delivery(*chain_, "take()");
  auto chain = copy(*chain_);
  chain->order = dataset::window(chain->order, 0, samples);
  return Dataset(std::move(chain));
}

Dataset Dataset::skip(std::uint64_t samples) const {
  check_before_delivery(*chain_, "skip()");
  auto chain = copy(*chain_);
  chain->order = dataset::window(chain->order, samples, chain->order->size());
  return Dataset(std::move(chain));
}

Dataset Dataset::decode(const DecodeOptions& options) const {
  check_on_samples(*chain_, "decode()");
  dataset::check(options);
  for (const dataset::Stage& stage : chain_->stages)
    if (std::holds_alternative<DecodeOptions>(stage)) refuse("the samples are decoded already; use decode() once");
  static_cast<void>(SampleForm{options.dtype, options.shape}.size_bytes());
  auto chain = copy(*chain_);
  chain->threads = std::max(chain->threads, options.threads);
  chain->stages.emplace_back(options);
  return Dataset(std::move(chain));
}

Dataset Dataset::map(std::function<void(Sample&)> function, int parallel) const {
  check_on_samples(*chain_, "map()");
  if (!function) refuse("map() needs a function");
  check_threads(parallel, "the number of parallel calls of map()");
  auto chain = copy(*chain_);
  chain->threads = std::max(chain->threads, parallel);
  chain->stages.emplace_back(dataset::MapStage{std::move(function), parallel});
  return Dataset(std::move(chain));
}

Dataset Dataset::cache(std::uint64_t max_bytes) const {
  return Dataset(with_cache(*chain_, dataset::memory_cache(max_bytes)));
}

Dataset Dataset::cache(CacheFiles files) const {
  if (files.folder.empty()) refuse("cache() needs the path of a folder");
  return Dataset(with_cache(
      *chain_, dataset::file_cache(std::move(files), [source = chain_->source] { return source->digest(); })));
}

Dataset Dataset::ignore_errors(const IgnoreOptions& options) const {
  check_on_samples(*chain_, "ignore_errors()");
  if (options.max < -1)
    refuse("ignore_errors() cannot have the maximum " + std::to_string(options.max) + "; expected -1 or more");
  auto chain = copy(*chain_);
  chain->ignored_stages = chain->stages.size();
  chain->ignore = options;
  return Dataset(std::move(chain));
}

Dataset Dataset::limits(const SampleLimits& limits) const {
  if (limits.bytes == 0 || limits.pixels == 0 || limits.time.count() < 0)
    refuse("a sample cannot have the limits " + std::to_string(limits.bytes) + " bytes, " +
           std::to_string(limits.pixels) + " pixels, " + std::to_string(limits.time.count()) +
           " ms; expected at least 1 byte, 1 pixel and 0 ms");
  auto chain = copy(*chain_);
  chain->limits = limits;
  return Dataset(std::move(chain));
}

Dataset Dataset::budget(const Budget& budget) const {
  check_threads(budget.cpus, "the CPUs of budget()");
  auto chain = copy(*chain_);
  chain->budget = budget;
  return Dataset(std::move(chain));
}

Dataset Dataset::objects(ObjectCalls calls) const {
  if (!calls.collate) refuse("objects() needs a function that makes a batch of samples");
  auto chain = copy(*chain_);
  chain->calls = std::move(calls);
  return Dataset(std::move(chain));
}

Dataset Dataset::batch(std::uint64_t samples, bool drop_remainder) const {
  if (chain_->batched) refuse("the samples are in batches already; use batch() once");
  if (samples == 0 || samples > (std::uint64_t{1} << 32))
    refuse("a batch cannot have " + std::to_string(samples) + " samples; expected 1 to 2^32");
  auto chain = copy(*chain_);
  dataset::Sharding sharding = chain->sharding.value_or(dataset::Sharding{});
  sharding.batch = samples;
  sharding.drop_remainder = drop_remainder;
  sharding.contiguous = !chain->sharded;
  chain->sharding = sharding;
  chain->batched = true;
  return Dataset(std::move(chain));
}

Dataset Dataset::prefetch(int batches, std::uint64_t max_bytes, bool in_order, bool adapts) const {
  if (!chain_->batched) refuse("prefetch() counts batches; put it after batch()");
  if (batches < 0 || batches > (1 << 20))
    refuse("cannot prefetch " + std::to_string(batches) + " batches; expected 0 or more");
  auto chain = copy(*chain_);
  chain->prefetch = batches;
  chain->prefetch_max_bytes = max_bytes;
  chain->in_order = in_order;
  chain->adapts_prefetch = adapts;
  return Dataset(std::move(chain));
}

Dataset Dataset::shard(int rank, int size) const {
  if (size < 1 || rank < 0 || rank >= size)
    refuse("cannot be rank " + std::to_string(rank) + " of " + std::to_string(size) + "; expected 0 <= rank < size");
  if (chain_->sharded) refuse("the dataset is sharded already; use shard() once");
  auto chain = copy(*chain_);
  dataset::Sharding sharding = chain->sharding.value_or(dataset::Sharding{});
  sharding.rank = rank;
  sharding.size = size;
  chain->sharding = sharding;
  chain->sharded = true;
  return Dataset(std::move(chain));
}

Dataset Dataset::repeat(std::uint64_t epochs) const {
  auto chain = copy(*chain_);
  chain->repeat = epochs;
  return Dataset(std::move(chain));
}

std::uint64_t Dataset::samples() const { return chain_->order->size(); }

std::uint64_t Dataset::batches() const {
  if (!chain_->batched) refuse("the samples are not in batches; add batch()");
  const std::uint64_t size = samples();
  const std::uint64_t global = chain_->sharding->global_batch();
  return size / global + (size % global != 0 && !chain_->sharding->drop_remainder ? 1 : 0);
}

std::string Dataset::order() const { return chain_->order->describe(); }

std::string Dataset::digest() const { return chain_->source->digest(); }

std::uint64_t Dataset::index_at(std::uint64_t epoch, std::uint64_t position) const {
  if (position >= samples())
    refuse("there is no position " + std::to_string(position) + " in an epoch of " + std::to_string(samples()) +
           " samples");
  return chain_->order->at(epoch, position);
}

DatasetState Dataset::merge(std::span<const DatasetState> ranks) const {
  const dataset::Sharding sharding = chain_->sharding.value_or(dataset::Sharding{});
  if (ranks.size() != static_cast<std::size_t>(sharding.size))
    refuse("merge() got " + std::to_string(ranks.size()) + " states; expected one of each of the " +
           std::to_string(sharding.size) + " ranks");
  const auto where = [](const DatasetState& state) { return std::pair(state.epoch, state.position); };
  DatasetState merged = *std::ranges::min_element(ranks, {}, where);
  merged.given.clear();
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const DatasetState& state = ranks[rank];
    merged.skipped = std::max(merged.skipped, state.skipped);
    merged.given.insert(merged.given.end(), state.given.begin(), state.given.end());
    // What this rank has consumed beyond the position of the slowest one.
    dataset::Sharding of_rank = sharding;
    of_rank.rank = static_cast<int>(rank);
    for (DatasetState at{merged.epoch, merged.position}; where(at) < where(state);) {
      const std::uint64_t end = sharding.end(at.position, samples());
      if (end == at.position) {
        at = {at.epoch + 1, 0};
        continue;
      }
      const dataset::Share share = of_rank.share(at.position, end);
      merged.given.push_back({at.epoch, share.first, share.stride, share.count});
      at.position = end;
    }
  }
  dataset::simplify(merged.given, merged.epoch, merged.position);
  return merged;
}

DatasetIterator Dataset::iterate(const DatasetState& from) const {
  if (!chain_->batched) refuse("the samples are not in batches; add batch()");
  if (from.position > samples())
    refuse("cannot start at position " + std::to_string(from.position) + " in an epoch of " +
           std::to_string(samples()) + " samples; is this the dataset that the state was saved from?");
  if (chain_->repeat == 0 && batches() == 0)
    refuse("an epoch has no batch, so it cannot be repeated without end; give more samples or smaller batches");
  if (chain_->cache) chain_->cache->begin();
  return DatasetIterator(dataset::Pipeline::start(chain_, from));
}

}  // namespace penstock
