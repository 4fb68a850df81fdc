// Training samples, read and decoded in parallel behind the computation (Chien et al., "Characterizing Deep-Learning
// I/O Workloads in TensorFlow", sections II.A and III).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "penstock/export.hpp"
#include "penstock/types.hpp"

namespace penstock {

namespace dataset {
struct Chain;
struct Slot;
class Pipeline;
}  // namespace dataset

/// Element type and shape of one sample. A sample that was not decoded is a line of uint8, as long as its file.
struct SampleForm {
  DType dtype = DType::uint8;
  std::vector<std::uint64_t> shape;

  PENSTOCK_API std::uint64_t size_bytes() const;
  PENSTOCK_API std::string describe() const;  ///< "uint8 (224, 224, 3)"
  bool operator==(const SampleForm&) const = default;
};

/// One sample on its way through map(). The function may change everything but `index` and `epoch`.
struct Sample {
  SampleForm form;
  std::vector<std::byte> data;
  std::int64_t label = 0;
  std::uint64_t index = 0;  ///< place in the source
  std::uint64_t epoch = 0;
};

struct DecodeOptions {
  /// A row of decoders.def, or "auto": chosen per sample by its first bytes.
  std::string format = "auto";
  /// Of the decoded sample. Images: {height, width, 3}, stretched to that; empty: as stored. Raw bytes: any shape
  /// whose size is that of the file.
  std::vector<std::uint64_t> shape;
  /// Images: uint8, or float32 in [0, 1]. Raw bytes: any.
  DType dtype = DType::uint8;
  /// Threads for this and all other stages; 0: the option io_threads.
  int threads = 0;
};

/// Where a dataset stands: everything before has been consumed, by all ranks together. Valid for the same chain of
/// source, shuffle, take, skip and interleave, whatever the ranks, the batch size, the threads and the prefetch depth.
struct DatasetState {
  std::uint64_t epoch = 0;
  std::uint64_t position = 0;  ///< the next sample of that epoch, counted over all ranks
  bool operator==(const DatasetState&) const = default;
};

/// A sample that ignore_errors() left out.
struct SkippedSample {
  std::string path;  ///< for samples in memory: "sample 17 in memory"
  std::uint64_t index = 0;
  std::uint64_t epoch = 0;
  std::uint64_t position = 0;
  std::string reason;
};

/// Since the iterator was made. The seconds of the threads are added up, so they may exceed the time that passed.
struct DatasetStats {
  double wait_s = 0;    ///< the consumer stood still
  double read_s = 0;    ///< threads in reads
  double decode_s = 0;  ///< threads in decoders
  double map_s = 0;     ///< threads in map functions
  std::uint64_t read_bytes = 0;
  std::uint64_t samples = 0;  ///< delivered
  std::uint64_t batches = 0;  ///< delivered
  std::uint64_t skipped = 0;  ///< of the batches delivered
};

/// This rank's part of one global batch, in the order of the global batch. A handle: copies share the memory, which
/// goes back to the pipeline (or is freed, if that is gone) with the last copy. The memory may be written to.
class PENSTOCK_API Batch {
 public:
  std::uint64_t size() const;  ///< samples; the skipped ones are not among them, so it may even be 0
  /// Samples that were not decoded keep their own sizes; all others lie one after another in data().
  bool ragged() const;
  /// Of every sample, unless ragged. Without shape and with size() 0 where no sample was ever seen.
  const SampleForm& form() const;
  Bytes data() const;
  Bytes sample(std::uint64_t i) const;
  std::span<std::int64_t> labels() const;
  std::span<std::uint64_t> indices() const;  ///< of the samples in the source

  explicit Batch(std::shared_ptr<dataset::Slot> slot) : slot_(std::move(slot)) {}

 private:
  std::shared_ptr<dataset::Slot> slot_;
};

/// One pass over a dataset. Not thread-safe but for state(), stats() and skipped(). The destructor stops the threads,
/// at any time; it waits for the samples that are in their hands.
class PENSTOCK_API DatasetIterator {
 public:
  explicit DatasetIterator(std::shared_ptr<dataset::Pipeline> pipeline) : pipeline_(std::move(pipeline)) {}

  /// The next batch, or nothing at the end. Blocks. Throws the error of the first bad sample of the batch, then and at
  /// every later call.
  std::optional<Batch> next();
  /// Waits until next() will not block, for at most `limit`.
  bool ready_within(std::chrono::milliseconds limit);

  DatasetState state() const;  ///< after the last batch that next() returned
  DatasetStats stats() const;
  std::vector<SkippedSample> skipped() const;  ///< of the batches that next() returned

 private:
  std::shared_ptr<dataset::Pipeline> pipeline_;
};

/// A description of where samples come from and what happens to them, as a chain of stages. Immutable: every stage
/// gives a new dataset and leaves the old one as it is. Thread-safe. Makes no thread and opens no file before
/// iterate(). Every function throws Error(invalid_argument) for a stage that does not fit the chain.
class PENSTOCK_API Dataset {
 public:
  /// `labels` has one per path, or is empty: all 0.
  static Dataset from_files(std::vector<std::string> paths, std::vector<std::int64_t> labels = {});
  static Dataset from_bytes(std::vector<std::vector<std::byte>> samples, std::vector<std::int64_t> labels = {});
  /// Takes `block` samples of each dataset in turn until all are exhausted. The datasets may have been shuffled, taken
  /// from, skipped and interleaved, nothing else.
  static Dataset interleave(std::span<const Dataset> datasets, std::uint64_t block = 1);

  // Which samples, in which order.

  /// Another order in every epoch: a permutation that is computed, not stored, so it costs no memory and no start-up.
  Dataset shuffle(std::uint64_t seed) const;
  Dataset take(std::uint64_t samples) const;
  Dataset skip(std::uint64_t samples) const;

  // What happens to a sample.

  Dataset decode(const DecodeOptions& options) const;
  /// `function` runs on the pipeline's threads, on at most `parallel` at a time (0: on all).
  Dataset map(std::function<void(Sample&)> function, int parallel = 0) const;
  /// Keeps the samples as they are here, in memory, from one epoch to the next; shared by all iterators.
  Dataset cache() const;
  /// Leaves out samples for which a stage before this one failed, and keeps a record. They keep their place in the
  /// order, so their batch is smaller. More than `limit` on this rank in one iterator are an error; -1: no limit.
  Dataset ignore_errors(std::int64_t limit = -1) const;

  // How samples are delivered.

  /// `samples` of all ranks together if shard() comes after, else of each rank.
  Dataset batch(std::uint64_t samples, bool drop_remainder = false) const;
  /// Up to this many batches are made ahead. 0: work starts when a batch is asked for.
  Dataset prefetch(int batches) const;
  /// After batch(): a contiguous part of every batch, the parts differing by at most one sample. Before batch(): every
  /// size-th sample. In both cases all ranks see the same number of batches, some of which may be empty.
  Dataset shard(int rank, int size) const;
  /// An iterator covers this many epochs; 0: it never ends.
  Dataset repeat(std::uint64_t epochs) const;

  std::uint64_t samples() const;  ///< of one epoch, over all ranks
  std::uint64_t batches() const;  ///< of one epoch
  /// What happens to the order: equal for datasets that can take each other's state.
  std::string order() const;
  /// Index in the source of a sample of the global order.
  std::uint64_t index_at(std::uint64_t epoch, std::uint64_t position) const;

  /// Starts the threads. `repeat` counts from the epoch that is a multiple of it, so that resuming in the middle ends
  /// where the first run would have.
  DatasetIterator iterate(const DatasetState& from = {}) const;

  explicit Dataset(std::shared_ptr<const dataset::Chain> chain) : chain_(std::move(chain)) {}

 private:
  std::shared_ptr<const dataset::Chain> chain_;
};

/// Names of the rows of decoders.def.
PENSTOCK_API std::vector<std::string> decoder_names();

}  // namespace penstock
