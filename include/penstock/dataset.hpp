// Input pipelines: training samples, read and decoded in parallel with the computation (Chien et al., "Characterizing
// Deep-Learning I/O Workloads in TensorFlow", sections II.A and III).
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
#include "penstock/sample_index.hpp"
#include "penstock/types.hpp"

namespace penstock {

namespace dataset {
struct Chain;
struct Slot;
class Pipeline;
}  // namespace dataset

/// Element type and shape of one sample. A sample that was not decoded is 1-d uint8 with the bytes of its file.
struct SampleForm {
  DType dtype = DType::uint8;
  std::vector<std::uint64_t> shape;

  PENSTOCK_API std::uint64_t size_bytes() const;
  PENSTOCK_API std::string describe() const;  ///< "uint8 (224, 224, 3)"
  bool operator==(const SampleForm&) const = default;
};

/// One sample on its way through map(). A function may change all members but `index`, `epoch` and `position`.
struct Sample {
  SampleForm form;
  std::vector<std::byte> data;
  /// The sample, if it is an object of the program; `form` and `data` are then undefined. See ObjectSource.
  std::shared_ptr<void> object;
  std::int64_t label = 0;
  std::uint64_t index = 0;  ///< index in the source
  std::uint64_t epoch = 0;
  std::uint64_t position = 0;  ///< position in the epoch, over all ranks
  bool keep = true;            ///< false: drops the sample from its batch, without a record
};

/// Whether the sample that the calling thread makes was given up, since it exceeded SampleLimits::time: what a source
/// or a map function still does for it is lost, so one that takes long may ask and throw anything. False on other
/// threads.
PENSTOCK_API bool sample_is_given_up() noexcept;

/// Limits for one sample. Exceeding one is an error of that sample, which ignore_errors() can ignore.
struct SampleLimits {
  std::uint64_t bytes = std::uint64_t{1} << 30;   ///< stored size
  std::uint64_t pixels = std::uint64_t{1} << 28;  ///< of an image, before it is scaled
  /// Time from the start of its read to the end of its last map function. 0: no limit. A thread that exceeds it is
  /// replaced.
  std::chrono::milliseconds time{0};
};

/// What an iterator may use of its process's share of the node.
struct Budget {
  /// Threads that decode samples and run functions on them. 0: as many as the stages ask for; else the option
  /// io_threads; else one for each core that this process may use and to which no other rank of the node and no
  /// progress thread is bound, at least one. Unless stages or the option say the number, more threads read ahead if the
  /// program waits for reads: as many as are busy at a time, as measured, and as ReadWindow finds useful.
  int cpus = 0;
  /// Memory of samples and batches, from the first byte read to the delivery of the batch; 0: no limit but that of
  /// prefetch(). One batch, and one sample, may be larger: they are then made alone. Caches have bounds of their own.
  std::uint64_t ram_bytes = 0;
};

struct IgnoreOptions {
  /// Maximum number of ignored samples on this rank, in one iterator and those whose states it continues. -1: no limit.
  std::int64_t max = -1;
  /// Replace an ignored sample by another one of the epoch, which depends only on the epoch and the position.
  bool replace = false;
};

/// A source of samples that are objects of the program. Several threads call the functions at once.
struct ObjectSource {
  std::uint64_t size = 0;
  std::function<std::shared_ptr<void>(std::uint64_t index)> get;
  std::function<std::string(std::uint64_t index)> name;  ///< for messages
  std::string digest;                                    ///< see Dataset::digest()
  /// Samples that are soon asked for, in this order; may be empty. Must not block.
  std::function<void(std::span<const std::uint64_t> indices)> announce;
  /// Whether it could fetch more samples at once than were announced; may be empty. Must not block.
  std::function<bool()> wants_more;
};

/// A source of samples whose bytes a function of the program reads. Several threads call the functions at once.
struct ReaderSource {
  std::uint64_t size = 0;
  /// Puts the bytes of a sample at the beginning of `buffer`, which may be larger, and returns how many there are.
  std::function<std::uint64_t(std::uint64_t index, std::uint64_t max_bytes, std::vector<std::byte>& buffer)> read;
  std::function<std::string(std::uint64_t index)> name;  ///< for messages
  std::vector<std::int64_t> labels;                      ///< one per sample, or empty: all 0
  std::shared_ptr<const SampleIndex> index;              ///< if there is one: holds the labels instead
  std::string digest;                                    ///< see Dataset::digest(); that of the index, if there is one
  /// As for ObjectSource.
  std::function<void(std::span<const std::uint64_t> indices)> announce;
  std::function<bool()> wants_more;  ///< as for ObjectSource
};

/// See Dataset::shuffle().
struct ShuffleBlocks {
  std::uint64_t block = 1;   ///< samples that are neighbours in the source
  std::uint64_t window = 1;  ///< blocks that are mixed
};

/// A cache in files; see Dataset::cache().
struct CacheFiles {
  std::string folder;           ///< is created; best on a fast disk of the node
  std::string stages;           ///< names what the stages before do to a sample; another name is another cache
  std::uint64_t max_bytes = 0;  ///< of all files; 0: no limit
};

/// Functions that a Dataset needs for a program's objects. All but `collate` may be empty.
struct ObjectCalls {
  struct Collated {
    std::shared_ptr<void> object;
    std::uint64_t size_bytes = 0;
  };
  /// Makes a batch of these samples. Runs on the pipeline's threads.
  std::function<Collated(std::span<const std::shared_ptr<void>> samples)> collate;
  /// Makes the copy of a sample that cache() passes to later stages, which may change it.
  std::function<std::shared_ptr<void>(const std::shared_ptr<void>&)> copy;
  /// The memory that a sample takes in cache().
  std::function<std::uint64_t(const std::shared_ptr<void>&)> size_bytes;
  /// The bytes by which cache() keeps a sample in files, and the sample that they stand for.
  std::function<std::vector<std::byte>(const std::shared_ptr<void>&)> pack;
  std::function<std::shared_ptr<void>(ConstBytes)> unpack;
  /// For a thread (a pthread_t) that exceeds the time limit or keeps an iterator from closing: returns its stack, and
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
  /// A row of decoders.def; or "auto", which detects the format from a sample's first bytes.
  std::string format = "auto";
  /// Shape of the decoded sample. Images: {height, width, 3}, or {3, height, width} for the layout chw, to which they
  /// are scaled; empty: the stored size. Raw bytes: any shape with the size of the file.
  std::vector<std::uint64_t> shape;
  /// Images: uint8, or float16 or float32 in [0, 1]. Raw bytes: any.
  DType dtype = DType::uint8;
  /// Threads for this and all other stages. 0: see Budget.
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

/// `count` samples of an epoch, at positions that are `stride` apart.
struct GivenSamples {
  std::uint64_t epoch = 0;
  std::uint64_t first = 0;
  std::uint64_t stride = 1;
  std::uint64_t count = 0;
  bool operator==(const GivenSamples&) const = default;
};

/// A position in a dataset: all ranks together have consumed everything before. Valid for the same chain of source,
/// shuffle, take, skip, mix and interleave, with any ranks, batch size, threads and prefetch depth.
struct DatasetState {
  std::uint64_t epoch = 0;
  std::uint64_t position = 0;  ///< next sample of that epoch, over all ranks
  std::uint64_t skipped = 0;   ///< by ignore_errors() on this rank, since the first of these `repeat` epochs
  /// Samples from that position on that were consumed, too, because batches came in another order (see
  /// Dataset::prefetch). Those of this rank; Dataset::merge() puts together those of all.
  std::vector<GivenSamples> given = {};
  bool operator==(const DatasetState&) const = default;
};

/// A sample that ignore_errors() dropped.
struct SkippedSample {
  std::string path;  ///< for samples in memory: "sample 17 in memory"
  std::uint64_t index = 0;
  std::uint64_t epoch = 0;
  std::uint64_t position = 0;
  std::string reason;
};

/// Statistics since the iterator was made. Times are summed over threads, so they may exceed the elapsed time.
struct DatasetStats {
  double wait_s = 0;             ///< the consumer waited for a batch
  double read_s = 0;             ///< threads read
  double decode_s = 0;           ///< threads decoded
  double map_s = 0;              ///< threads ran map functions
  double collate_s = 0;          ///< threads collated samples into batches
  double elapsed_s = 0;          ///< since the iterator was made
  std::uint64_t threads = 0;     ///< that decode
  std::uint64_t readers = 0;     ///< more threads that read ahead, now
  std::uint64_t prefetch = 0;    ///< batches ahead, now
  std::uint64_t held_bytes = 0;  ///< largest memory of samples and batches so far, of those that were not delivered
  std::uint64_t read_bytes = 0;
  std::uint64_t samples = 0;  ///< delivered
  std::uint64_t batches = 0;  ///< delivered
  std::uint64_t skipped = 0;  ///< dropped from delivered batches
};

/// This rank's part of one global batch, in the order of the global batch. A handle: copies share the memory, which is
/// writable. The last copy returns it to the pipeline, or frees it if the pipeline is gone.
class PENSTOCK_API Batch {
 public:
  std::uint64_t size() const;  ///< samples, without skipped ones; may be 0
  /// Whether samples keep their own sizes, because they were not decoded. Otherwise they follow one another in data().
  bool ragged() const;
  /// Form of every sample, unless ragged. Without shape, and with size() 0, before the first sample.
  const SampleForm& form() const;
  Bytes data() const;
  Bytes sample(std::uint64_t i) const;
  std::span<std::int64_t> labels() const;
  std::span<std::uint64_t> indices() const;     ///< of the samples in the source
  const std::shared_ptr<void>& object() const;  ///< result of ObjectCalls::collate for a batch of objects

  explicit Batch(std::shared_ptr<dataset::Slot> slot) : slot_(std::move(slot)) {}

 private:
  std::shared_ptr<dataset::Slot> slot_;
};

/// One pass over a dataset. Only state(), stats() and skipped() are thread-safe. The destructor stops the threads. It
/// waits until they have finished their samples, but not longer than the time limit (see Dataset::limits), if there is
/// one: it abandons a hanging thread.
///
/// After a fork(), a child's copy of an iterator has no threads: every function throws Error(unsupported), and the
/// destructor does nothing.
class PENSTOCK_API DatasetIterator {
 public:
  explicit DatasetIterator(std::shared_ptr<dataset::Pipeline> pipeline) : pipeline_(std::move(pipeline)) {}

  /// The next batch, or nothing at the end. Blocks. Throws the error of the first bad sample of the batch, and again in
  /// every later call.
  std::optional<Batch> next();
  /// Waits until next() would not block, for at most `limit`. Returns whether it would not.
  bool ready_within(std::chrono::milliseconds limit);

  DatasetState state() const;  ///< after the last batch returned by next()
  DatasetStats stats() const;
  /// Dropped from the batches that next() returned, without the first `first`. Of many, only the last ones are kept:
  /// those of the last batch, and at least 1000. DatasetStats::skipped counts all.
  std::vector<SkippedSample> skipped(std::size_t first = 0) const;
  /// Ends the iterator, like the destructor. Returns where the abandoned threads are.
  std::vector<std::string> close();

 private:
  std::shared_ptr<dataset::Pipeline> pipeline_;
};

/// The description of an input pipeline: a source and a chain of stages. Immutable: every stage returns a new dataset.
/// Thread-safe. Makes no thread and opens no file before iterate(). Functions throw Error(invalid_argument) for a stage
/// that does not fit the chain.
class PENSTOCK_API Dataset {
 public:
  /// `labels` has one entry per path, or is empty: all 0.
  static Dataset from_files(std::vector<std::string> paths, std::vector<std::int64_t> labels = {});
  static Dataset from_bytes(std::vector<std::vector<std::byte>> samples, std::vector<std::int64_t> labels = {});
  static Dataset from_objects(ObjectSource source);
  static Dataset from_reader(ReaderSource source);
  /// The files, or parts of files, that a saved index lists.
  static Dataset from_index(std::shared_ptr<const SampleIndex> index);
  /// Takes `block` samples of each dataset in turn until all are exhausted. The datasets may only have been shuffled,
  /// taken from, skipped, mixed and interleaved.
  static Dataset interleave(std::span<const Dataset> datasets, std::uint64_t block = 1);
  /// Mixes datasets: any run of samples contains them in proportion to their weights, rounded. An epoch ends when the
  /// first dataset is exhausted. With `samples`, it ends after that many; a smaller dataset restarts, in the order of
  /// another epoch. The datasets are as for interleave().
  static Dataset mix(std::span<const Dataset> datasets, std::span<const std::uint32_t> weights,
                     std::optional<std::uint64_t> samples = std::nullopt);

  // Order and selection of samples.

  /// A different permutation in every epoch. It is computed, not stored: no memory, no start-up time.
  Dataset shuffle(std::uint64_t seed) const;
  /// The same in two levels, for sources in which neighbours are read together: permutes blocks, then the samples of
  /// each `window` blocks that follow one another. A block is used in one stretch of the epoch only.
  Dataset shuffle(std::uint64_t seed, const ShuffleBlocks& blocks) const;
  /// Puts samples of similar length into one batch: sorts each `window` groups of `group` samples of the current order
  /// by length, and permutes these groups. `lengths` has an entry for each sample of the source.
  Dataset bucket_by_length(std::vector<std::uint32_t> lengths, std::uint64_t group, std::uint64_t window) const;
  Dataset take(std::uint64_t samples) const;
  Dataset skip(std::uint64_t samples) const;

  // Processing of samples.

  Dataset decode(const DecodeOptions& options) const;
  /// Runs `function` on the pipeline's threads, on at most `parallel` of them (0: all).
  Dataset map(std::function<void(Sample&)> function, int parallel = 0) const;
  /// Keeps the samples of this stage in memory, for later epochs: the first ones, up to `max_bytes` (0: no limit). All
  /// iterators share them.
  Dataset cache(std::uint64_t max_bytes = 0) const;
  /// Keeps them in files, for later runs and other processes of the node, too. iterate() throws
  /// Error(invalid_argument) if the folder holds other samples: those of another source, or of other `stages`.
  Dataset cache(CacheFiles files) const;
  /// Drops samples whose read or earlier stage failed, and records them. They keep their position in the order, so
  /// their batch is smaller, unless they are replaced.
  Dataset ignore_errors(const IgnoreOptions& options = {}) const;
  /// Applies to every sample, wherever this stage stands in the chain.
  Dataset limits(const SampleLimits& limits) const;
  /// Applies to the whole chain, wherever this stage stands in it.
  Dataset budget(const Budget& budget) const;
  /// Required if the source or a map function returns objects.
  Dataset objects(ObjectCalls calls) const;

  // Delivery of samples.

  /// `samples` is per batch over all ranks if shard() follows, else per rank.
  Dataset batch(std::uint64_t samples, bool drop_remainder = false) const;
  /// Prepares up to this many batches ahead, but at most `max_bytes` of them (0: no limit); at least one. 0 batches:
  /// work starts when a batch is requested. Not `in_order`: the first of them that is complete is delivered first.
  /// `adapts`: doubles `batches`, within `max_bytes` and the budget, whenever the program waits although all of them
  /// were complete before, or although threads or requests have nothing to do.
  Dataset prefetch(int batches, std::uint64_t max_bytes = 0, bool in_order = true, bool adapts = false) const;
  /// After batch(): a contiguous part of every batch; parts differ by at most one sample. Before batch(): every size-th
  /// sample. All ranks get the same number of batches, some of which may be empty.
  Dataset shard(int rank, int size) const;
  /// An iterator covers this many epochs; 0: it never ends.
  Dataset repeat(std::uint64_t epochs) const;

  std::uint64_t samples() const;  ///< of one epoch, over all ranks
  std::uint64_t batches() const;  ///< of one epoch
  /// A description of the order. Datasets with equal ones can load each other's state.
  std::string order() const;
  /// 32 hexadecimal digits that identify the list of samples; part of saved states. A hash of the labels and of the
  /// paths below their common folder, or of the samples in memory. Takes the time to hash them.
  std::string digest() const;
  /// The state of all ranks, from the state of each, in their order. Without it, batches that are not delivered in
  /// order are known to their rank only. Local.
  DatasetState merge(std::span<const DatasetState> ranks) const;
  /// Source index of a sample of the global order.
  std::uint64_t index_at(std::uint64_t epoch, std::uint64_t position) const;

  /// Starts the threads. `repeat` counts from the last epoch that is a multiple of it, so that a resumed run ends where
  /// the first run would have ended.
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
