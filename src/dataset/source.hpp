// Where encoded samples come from.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dataset/read_file.hpp"
#include "penstock/dataset.hpp"
#include "penstock/sample_index.hpp"
#include "penstock/types.hpp"

namespace penstock::dataset {

/// Immutable, thread-safe.
class Source {
 public:
  virtual ~Source() = default;
  virtual std::uint64_t size() const = 0;
  virtual std::int64_t label(std::uint64_t index) const = 0;
  /// For messages and records: the path, or which sample in memory.
  virtual std::string name(std::uint64_t index) const = 0;
  /// The whole sample: in `buffer`, whose old content is lost, or in the source itself. Blocking. Throws
  /// Error(not_found), Error(io) or, for a sample that is too large, Error(invalid_argument). The message continues a
  /// sentence that begins with the name.
  virtual ConstBytes read(std::uint64_t index, const ReadLimits& limits, std::vector<std::byte>& buffer) const = 0;
  /// The sample, if it is an object of the program; read() then throws.
  virtual std::shared_ptr<void> object(std::uint64_t) const { return nullptr; }
  virtual bool gives_objects() const { return false; }
  /// Whether read() calls ReadLimits::before_allocation; it does not where only the program knows sizes.
  virtual bool tells_sizes() const { return true; }
  /// Whether announce() does anything.
  virtual bool wants_announcements() const { return false; }
  /// Samples that are read soon, in this order: the source may begin to fetch them. Must not block for them.
  virtual void announce(std::span<const std::uint64_t>) const {}
  /// Whether it could fetch more at once than was announced. Must not block.
  virtual bool wants_more() const { return false; }
  /// Hexadecimal digits, equal for equal lists of samples.
  virtual std::string digest() const = 0;
};

using SourcePtr = std::shared_ptr<const Source>;

SourcePtr file_source(std::vector<std::string> paths, std::vector<std::int64_t> labels);
SourcePtr memory_source(std::vector<std::vector<std::byte>> samples, std::vector<std::int64_t> labels);
SourcePtr object_source(ObjectSource source);
SourcePtr reader_source(ReaderSource source);
/// The samples of a saved index: whole files, or parts of files.
SourcePtr index_source(std::shared_ptr<const SampleIndex> index);
/// The samples of each, one source after another.
SourcePtr concatenated(std::vector<SourcePtr> sources);

}  // namespace penstock::dataset
