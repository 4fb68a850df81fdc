// Saved lists of samples, and the records of TFRecord files.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "penstock/export.hpp"
#include "penstock/types.hpp"

namespace penstock {

/// Where the bytes of one sample are.
struct IndexedSample {
  std::string path;
  std::uint64_t begin = 0;  ///< of the sample in its file
  std::uint64_t size_bytes = 0;
  std::int64_t label = 0;
};

/// A saved list of samples. It is mapped into memory and read where it is used, so opening it takes the same short time
/// for any number of samples. Immutable and thread-safe.
class PENSTOCK_API SampleIndex {
 public:
  /// Throws Error(not_found), Error(io), or Error(corrupt) for another file, or one that is cut off.
  static std::shared_ptr<const SampleIndex> open(const std::string& file);

  SampleIndex(const SampleIndex&) = delete;
  SampleIndex& operator=(const SampleIndex&) = delete;
  virtual ~SampleIndex() = default;

  virtual std::uint64_t size() const = 0;
  /// Throws Error(corrupt) if the entry is damaged. A relative path counts from the folder of the index.
  virtual IndexedSample at(std::uint64_t index) const = 0;
  virtual std::int64_t label(std::uint64_t index) const = 0;
  /// What the bytes of a sample are: a word of whoever wrote the index.
  virtual std::string kind() const = 0;
  /// 32 hexadecimal digits, equal for equal lists.
  virtual std::string digest() const = 0;

 protected:
  SampleIndex() = default;
};

/// Writes an index, sample by sample. Memory does not grow with the number of samples. The index appears, complete, at
/// commit(); without it, nothing is left.
class PENSTOCK_API SampleIndexWriter {
 public:
  /// `kind` has at most 16 bytes.
  SampleIndexWriter(const std::string& file, const std::string& kind);
  ~SampleIndexWriter();
  SampleIndexWriter(const SampleIndexWriter&) = delete;
  SampleIndexWriter& operator=(const SampleIndexWriter&) = delete;

  /// Samples of one file that follow one another share its path.
  void add(const IndexedSample& sample);
  void commit();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The length of a record of a TFRecord file from its first 12 bytes. Throws Error(corrupt) if its checksum is wrong.
PENSTOCK_API std::uint64_t tfrecord_size_bytes(ConstBytes header);
/// The content of a whole record: 12 bytes, the content, and 4 bytes. Throws Error(corrupt) if a checksum is wrong.
PENSTOCK_API ConstBytes tfrecord_content(ConstBytes record);

}  // namespace penstock
