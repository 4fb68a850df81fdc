#include "dataset/source.hpp"

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>

#include "dataset/digest.hpp"
#include "dataset/read_file.hpp"
#include "penstock/error.hpp"

namespace penstock::dataset {

namespace {

void check_labels(std::uint64_t samples, const std::vector<std::int64_t>& labels) {
  if (!labels.empty() && labels.size() != samples)
    throw Error(ErrorCode::invalid_argument, "got " + std::to_string(labels.size()) + " labels for " +
                                                 std::to_string(samples) +
                                                 " samples; pass one label per sample, or none");
}

/// Length of the folder, with its slash, that all paths are in: a list keeps its digest when its folder moves.
std::size_t common_folder(const std::vector<std::string>& paths) {
  std::string_view common = paths.empty() ? std::string_view() : std::string_view(paths.front());
  for (const std::string& path : paths)
    common = common.substr(0, static_cast<std::size_t>(std::ranges::mismatch(common, path).in1 - common.begin()));
  const std::size_t slash = common.rfind('/');
  return slash == std::string_view::npos ? 0 : slash + 1;
}

class FileSource : public Source {
 public:
  FileSource(std::vector<std::string> paths, std::vector<std::int64_t> labels)
      : paths_(std::move(paths)), labels_(std::move(labels)) {
    check_labels(paths_.size(), labels_);
  }
  std::uint64_t size() const override { return paths_.size(); }
  std::int64_t label(std::uint64_t index) const override { return labels_.empty() ? 0 : labels_[index]; }
  std::string name(std::uint64_t index) const override { return paths_[index]; }

  ConstBytes read(std::uint64_t index, const ReadLimits& limits, std::vector<std::byte>& buffer) const override {
    return read_file(paths_[index], limits, buffer);
  }

  std::string digest() const override {
    Digest digest;
    const std::size_t folder = common_folder(paths_);
    for (const std::string& path : paths_) digest.add(std::string_view(path).substr(folder));
    digest.add(std::as_bytes(std::span(labels_)));
    return digest.text();
  }

 private:
  std::vector<std::string> paths_;
  std::vector<std::int64_t> labels_;
};

class MemorySource : public Source {
 public:
  MemorySource(std::vector<std::vector<std::byte>> samples, std::vector<std::int64_t> labels)
      : samples_(std::move(samples)), labels_(std::move(labels)) {
    check_labels(samples_.size(), labels_);
  }
  std::uint64_t size() const override { return samples_.size(); }
  std::int64_t label(std::uint64_t index) const override { return labels_.empty() ? 0 : labels_[index]; }
  std::string name(std::uint64_t index) const override { return "sample " + std::to_string(index) + " in memory"; }
  ConstBytes read(std::uint64_t index, const ReadLimits& limits, std::vector<std::byte>&) const override {
    check_size(samples_[index].size(), limits.max_bytes);
    return samples_[index];
  }
  std::string digest() const override {
    Digest digest;
    for (const std::vector<std::byte>& sample : samples_) digest.add(sample);
    digest.add(std::as_bytes(std::span(labels_)));
    return digest.text();
  }

 private:
  std::vector<std::vector<std::byte>> samples_;
  std::vector<std::int64_t> labels_;
};

/// What a program gives by functions: an ObjectSource or a ReaderSource.
template <typename Given>
class OfFunctions : public Source {
 public:
  explicit OfFunctions(Given source) : source_(std::move(source)) {}
  std::uint64_t size() const override { return source_.size; }
  std::string name(std::uint64_t index) const override {
    return source_.name ? source_.name(index) : "sample " + std::to_string(index);
  }
  bool wants_announcements() const override { return static_cast<bool>(source_.announce); }
  bool tells_sizes() const override { return false; }
  void announce(std::span<const std::uint64_t> indices) const override {
    if (source_.announce) source_.announce(indices);
  }
  bool wants_more() const override { return source_.wants_more && source_.wants_more(); }

 protected:
  /// Of what both hold.
  Digest digest_of_given() const {
    Digest digest;
    digest.add(source_.digest);
    digest.add(std::to_string(source_.size));
    return digest;
  }

  Given source_;
};

class Objects : public OfFunctions<ObjectSource> {
 public:
  explicit Objects(ObjectSource source) : OfFunctions(std::move(source)) {
    if (!source_.get) throw Error(ErrorCode::invalid_argument, "a source of objects needs a function that gives them");
  }
  std::int64_t label(std::uint64_t) const override { return 0; }
  ConstBytes read(std::uint64_t, const ReadLimits&, std::vector<std::byte>&) const override {
    throw Error(ErrorCode::invalid_argument, "is not an object of the program");
  }
  std::shared_ptr<void> object(std::uint64_t index) const override {
    std::shared_ptr<void> object = source_.get(index);
    if (!object) throw Error(ErrorCode::invalid_argument, "is missing: its source returned no object");
    return object;
  }
  bool gives_objects() const override { return true; }
  std::string digest() const override { return digest_of_given().text(); }
};

class Reader : public OfFunctions<ReaderSource> {
 public:
  explicit Reader(ReaderSource source) : OfFunctions(std::move(source)) {
    if (!source_.read) throw Error(ErrorCode::invalid_argument, "a source of bytes needs a function that reads them");
    check_labels(source_.size, source_.labels);
  }
  std::int64_t label(std::uint64_t index) const override {
    if (source_.index) return source_.index->label(index);
    return source_.labels.empty() ? 0 : source_.labels[index];
  }
  ConstBytes read(std::uint64_t index, const ReadLimits& limits, std::vector<std::byte>& buffer) const override {
    const std::uint64_t size_bytes = source_.read(index, limits.max_bytes, buffer);
    check_size(size_bytes, limits.max_bytes);
    return {buffer.data(), size_bytes};
  }
  std::string digest() const override {
    Digest digest = digest_of_given();
    digest.add(std::as_bytes(std::span(source_.labels)));
    return digest.text();
  }
};

class Concatenated : public Source {
 public:
  explicit Concatenated(std::vector<SourcePtr> sources) : sources_(std::move(sources)) {
    for (const SourcePtr& source : sources_) {
      firsts_.push_back(size_);
      size_ += source->size();
    }
  }
  std::uint64_t size() const override { return size_; }
  std::int64_t label(std::uint64_t index) const override {
    const std::size_t k = find(index);
    return sources_[k]->label(index - firsts_[k]);
  }
  std::string name(std::uint64_t index) const override {
    const std::size_t k = find(index);
    return sources_[k]->name(index - firsts_[k]);
  }
  ConstBytes read(std::uint64_t index, const ReadLimits& limits, std::vector<std::byte>& buffer) const override {
    const std::size_t k = find(index);
    return sources_[k]->read(index - firsts_[k], limits, buffer);
  }
  std::shared_ptr<void> object(std::uint64_t index) const override {
    const std::size_t k = find(index);
    return sources_[k]->object(index - firsts_[k]);
  }
  bool gives_objects() const override {
    return std::ranges::any_of(sources_, [](const SourcePtr& source) { return source->gives_objects(); });
  }
  bool tells_sizes() const override {
    return std::ranges::all_of(sources_, [](const SourcePtr& source) { return source->tells_sizes(); });
  }
  bool wants_announcements() const override {
    return std::ranges::any_of(sources_, [](const SourcePtr& source) { return source->wants_announcements(); });
  }
  bool wants_more() const override {
    return std::ranges::any_of(sources_, [](const SourcePtr& source) { return source->wants_more(); });
  }
  void announce(std::span<const std::uint64_t> indices) const override {
    std::vector<std::vector<std::uint64_t>> parts(sources_.size());
    for (const std::uint64_t index : indices) {
      const std::size_t k = find(index);
      parts[k].push_back(index - firsts_[k]);
    }
    for (std::size_t k = 0; k < sources_.size(); ++k)
      if (!parts[k].empty() && sources_[k]->wants_announcements()) sources_[k]->announce(parts[k]);
  }
  std::string digest() const override {
    Digest digest;
    for (const SourcePtr& source : sources_) digest.add(source->digest());
    return digest.text();
  }

 private:
  std::size_t find(std::uint64_t index) const {
    return static_cast<std::size_t>(std::upper_bound(firsts_.begin(), firsts_.end(), index) - firsts_.begin()) - 1;
  }

  std::vector<SourcePtr> sources_;
  std::vector<std::uint64_t> firsts_;
  std::uint64_t size_ = 0;
};

}  // namespace

SourcePtr file_source(std::vector<std::string> paths, std::vector<std::int64_t> labels) {
  return std::make_shared<FileSource>(std::move(paths), std::move(labels));
}

SourcePtr memory_source(std::vector<std::vector<std::byte>> samples, std::vector<std::int64_t> labels) {
  return std::make_shared<MemorySource>(std::move(samples), std::move(labels));
}

SourcePtr reader_source(ReaderSource source) { return std::make_shared<Reader>(std::move(source)); }

SourcePtr object_source(ObjectSource source) { return std::make_shared<Objects>(std::move(source)); }

SourcePtr concatenated(std::vector<SourcePtr> sources) { return std::make_shared<Concatenated>(std::move(sources)); }

}  // namespace penstock::dataset
