// Training samples, read and decoded in parallel behind the computation (Chien et al., "Characterizing Deep-Learning
// I/O Workloads in TensorFlow", sections II.A and III).
#pragma once

#include <array>
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

/// Element type and shape of one sample. A sample that was not decoded is 1-d, uint8, as long as its file.
struct SampleForm {
  DType dtype = DType::uint8;
  std::vector<std::uint64_t> shape;

  PENSTOCK_API std::uint64_t size_bytes() const;
  PENSTOCK_API std::string describe() const;  ///< "uint8 (224, 224, 3)"
  bool operator==(const SampleForm&) const = default;
};

/// One sample on its way through map(). The function may change everything but `index`, `epoch` and `position`.
struct Sample {
  SampleForm form;
  std::vector<std::byte> data;
  /// The sample, if it is an object of the program; `form` and `data` then mean nothing. See ObjectSource.
  std::shared_ptr<void> object;
  std::int64_t label = 0;
  std::uint64_t index = 0;  ///< place in the source
  std::uint64_t epoch = 0;
  std::uint64_t position = 0;  ///< place in the epoch, counted over all ranks
  bool keep = true;            ///< false: its batch goes without it, and nothing is recorded
};

/// What one sample may take at most. More is an error of that sample, which ignore_errors() can ignore.
struct SampleLimits {
  std::uint64_t bytes = std::uint64_t{1} << 30;   ///< as it is stored
  std::uint64_t pixels = std::uint64_t{1} << 28;  ///< of an image, before it is scaled
  /// From the start of its read to the end of its last map function. 0: no limit. The thread of a sample that takes
  /// longer is replaced by another one.
  std::chrono::milliseconds time{0};
};

struct IgnoreOptions {
  /// More samples than this on this rank in one iterator, or in those whose states it continues, are an error. -1: no
  /// limit.
  std::int64_t max = -1;
  /// Another sample of the epoch, a function of the epoch and the position, takes the place of an ignored one.
  bool replace = false;
};

/// Samples that are objects of the program. The functions are called by several threads at once.
struct ObjectSource {
  std::uint64_t size = 0;
  std::function<std::shared_ptr<void>(std::uint64_t index)> get;
  std::function<std::string(std::uint64_t index)> name;  ///< for messages
  std::string digest;                                    ///< see Dataset::digest()
};

/// What a Dataset needs to know of a program's objects. All but `collate` may be empty.
struct ObjectCalls {
  struct Collated {
    std::shared_ptr<void> object;
    std::uint64_t size_bytes = 0;
  };
  /// The batch of these samples. Runs on the threads of the pipeline.
  std::function<Collated(std::span<const std::shared_ptr<void>> samples)> collate;
  /// What cache() gives to the stages behind it, which may change it.
  std::function<std::shared_ptr<void>(const std::shared_ptr<void>&)> copy;
  /// Says where a thread (a pthread_t) stands that exceeds the limit of time or keeps an iterator from closing, and
  /// ends the function that it runs, if possible.
  std::function<std::string(std::uint64_t thread)> interrupt;
};

enum class ImageLayout { hwc, chw };

/// A part of an image for one sample in one epoch: that of torchvision's RandomResizedCrop.
struct RandomCrop {
  double min_area = 0.08;  ///< of the image's
  double max_area = 1.0;
  double min_aspect = 3.0 / 4.0;  ///< width over height
  double max_aspect = 4.0 / 3.0;
};

struct DecodeOptions {
  /// A row of decoders.def, or "auto": chosen per sample by its first bytes.
  std::string format = "auto";
  /// Of the decoded sample. Images: {height, width, 3}, or {3, height, width} for the layout chw, stretched to that;
  /// empty: as stored. Raw bytes: any shape whose size is that of the file.
  std::vector<std::uint64_t> shape;
  /// Images: uint8, or float16 or float32 in [0, 1]. Raw bytes: any.
  DType dtype = DType::uint8;
  /// Threads for this and all other stages; 0: the option io_threads.
  int threads = 0;

  // Images only. All of it is done in one pass from the decoder's pixels to the batch.

  ImageLayout layout = ImageLayout::hwc;
  /// Turn images as their EXIF data says (JPEG).
  bool orient = false;
  std::optional<RandomCrop> random_crop = std::nullopt;
  /// This fraction of the largest central part with the aspect ratio of the result; 0: all of the image.
  double central_crop = 0;
  double flip = 0;                          ///< probability that left and right are exchanged
  std::array<float, 3> mean{0, 0, 0};       ///< subtracted from values in [0, 1]
  std::array<float, 3> deviation{1, 1, 1};  ///< divides what is left
  std::uint64_t seed = 0;                   ///< of crops and flips, together with epoch and sample
};

/// Where a dataset stands: everything before has been consumed, by all ranks together. Valid for the same chain of
/// source, shuffle, take, skip and interleave, whatever the ranks, the batch size, the threads and the prefetch depth.
struct DatasetState {
  std::uint64_t epoch = 0;
  std::uint64_t position = 0;  ///< the next sample of that epoch, counted over all ranks
  std::uint64_t skipped = 0;   ///< by ignore_errors() on this rank, since the first epoch of these `repeat` epochs
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
  double wait_s = 0;     ///< the consumer stood still
  double read_s = 0;     ///< threads in reads
  double decode_s = 0;   ///< threads in decoders
  double map_s = 0;      ///< threads in map functions
  double collate_s = 0;  ///< threads laying samples together
  double elapsed_s = 0;  ///< since the iterator was made
  std::uint64_t threads = 0;
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
  std::span<std::uint64_t> indices() const;     ///< of the samples in the source
  const std::shared_ptr<void>& object() const;  ///< what ObjectCalls::collate made of a batch of objects

  explicit Batch(std::shared_ptr<dataset::Slot> slot) : slot_(std::move(slot)) {}

 private:
  std::shared_ptr<dataset::Slot> slot_;
};

/// One pass over a dataset. Only state(), stats() and skipped() may be called by several threads at once. The
/// destructor stops the threads at any time. It waits until they have finished their samples, but not longer than the
/// limit of time (see Dataset::limits), if there is one: a thread that hangs is left behind.
///
/// A child process that a fork() leaves with an iterator has none of its threads: every function then throws
/// Error(unsupported), and the destructor does nothing.
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
  /// Of the batches that next() returned, without the `first` of them.
  std::vector<SkippedSample> skipped(std::size_t first = 0) const;
  /// Ends the iterator, like the destructor. Returns where the threads stand that it left behind.
  std::vector<std::string> close();

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
  static Dataset from_objects(ObjectSource source);
  /// Takes `block` samples of each dataset in turn until all are exhausted. The datasets may have been shuffled, taken
  /// from, skipped, mixed and interleaved, nothing else.
  static Dataset interleave(std::span<const Dataset> datasets, std::uint64_t block = 1);
  /// Each dataset's share of any run of samples is its weight, rounded. An epoch ends with the dataset that is
  /// exhausted first or, if `samples` are given, after so many: a dataset that is too small then starts again, in the
  /// order of another epoch. The same datasets as for interleave().
  static Dataset mix(std::span<const Dataset> datasets, std::span<const std::uint32_t> weights,
                     std::optional<std::uint64_t> samples = std::nullopt);

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
  /// Leaves out samples for which the read or a stage before this one failed, and keeps a record. They keep their place
  /// in the order, so their batch is smaller, unless they are replaced.
  Dataset ignore_errors(const IgnoreOptions& options = {}) const;
  /// Of every sample, wherever this stage stands.
  Dataset limits(const SampleLimits& limits) const;
  /// Needed if the source or a map function gives objects.
  Dataset objects(ObjectCalls calls) const;

  // How samples are delivered.

  /// `samples` of all ranks together if shard() comes after, else of each rank.
  Dataset batch(std::uint64_t samples, bool drop_remainder = false) const;
  /// Up to this many batches are made ahead, as far as they take no more than `max_bytes` together (0: no limit; one
  /// batch is always made). 0 batches: work starts when a batch is asked for.
  Dataset prefetch(int batches, std::uint64_t max_bytes = 0) const;
  /// After batch(): a contiguous part of every batch, the parts differing by at most one sample. Before batch(): every
  /// size-th sample. In both cases all ranks see the same number of batches, some of which may be empty.
  Dataset shard(int rank, int size) const;
  /// An iterator covers this many epochs; 0: it never ends.
  Dataset repeat(std::uint64_t epochs) const;

  std::uint64_t samples() const;  ///< of one epoch, over all ranks
  std::uint64_t batches() const;  ///< of one epoch
  /// What happens to the order: equal for datasets that can take each other's state.
  std::string order() const;
  /// 32 hexadecimal digits of the list of samples, part of saved states: of the paths below their common folder and of
  /// the labels, or of the samples in memory. Takes the time to hash them.
  std::string digest() const;
  /// Index in the source of a sample of the global order.
  std::uint64_t index_at(std::uint64_t epoch, std::uint64_t position) const;

  /// Starts the threads. `repeat` counts from the epoch that is a multiple of it, so that resuming in the middle ends
  /// where the first run would have.
  DatasetIterator iterate(const DatasetState& from = {}) const;

  explicit Dataset(std::shared_ptr<const dataset::Chain> chain) : chain_(std::move(chain)) {}

 private:
  std::shared_ptr<const dataset::Chain> chain_;
};

/// Decodes one sample, by the calling thread. `name` begins the message of errors.
PENSTOCK_API Sample decode_sample(ConstBytes encoded, const DecodeOptions& options, const SampleLimits& limits = {},
                                  const std::string& name = "the sample");

/// Names of the rows of decoders.def.
PENSTOCK_API std::vector<std::string> decoder_names();

}  // namespace penstock
