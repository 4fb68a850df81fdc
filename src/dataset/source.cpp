#include "dataset/source.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "penstock/error.hpp"
#include "store/checksum.hpp"

namespace penstock::dataset {

namespace {

void check_labels(std::uint64_t samples, const std::vector<std::int64_t>& labels) {
  if (!labels.empty() && labels.size() != samples)
    throw Error(ErrorCode::invalid_argument, "got " + std::to_string(labels.size()) + " labels for " +
                                                 std::to_string(samples) +
                                                 " samples; pass one label per sample, or none");
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

[[noreturn]] void fail(const std::string& message, int error) {
  const ErrorCode code = error == ENOENT || error == ENOTDIR ? ErrorCode::not_found : ErrorCode::io;
  throw Error(code, message, -1, std::generic_category().message(error), error);
}

[[noreturn]] void refuse_size(const std::string& size, std::uint64_t max_bytes) {
  throw Error(ErrorCode::invalid_argument,
              "holds " + size + " bytes, more than the limit of " + std::to_string(max_bytes) + " bytes per sample");
}

/// Of texts and bytes; each counts with its length, so that no two lists look alike.
class Digest {
 public:
  void add(ConstBytes bytes) {
    const std::uint64_t size = bytes.size();
    append({reinterpret_cast<const std::byte*>(&size), sizeof size});
    if (size <= kBlockBytes) return append(bytes);
    const store::Checksum sum = store::checksum(bytes);
    append({reinterpret_cast<const std::byte*>(&sum), sizeof sum});
  }
  void add(std::string_view text) { add(std::as_bytes(std::span(text.data(), text.size()))); }
  std::string text() {
    flush();
    return store::to_string(sum_);
  }

 private:
  static constexpr std::size_t kBlockBytes = 4096;

  void append(ConstBytes bytes) {
    block_.insert(block_.end(), bytes.begin(), bytes.end());
    if (block_.size() >= kBlockBytes) flush();
  }
  void flush() {
    const ConstBytes pieces[] = {{reinterpret_cast<const std::byte*>(&sum_), sizeof sum_}, block_};
    sum_ = store::checksum(pieces);
    block_.clear();
  }

  store::Checksum sum_;
  std::vector<std::byte> block_;
};

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

  ConstBytes read(std::uint64_t index, std::uint64_t max_bytes, std::vector<std::byte>& buffer) const override {
    // O_NONBLOCK: opening a FIFO must not block the thread until somebody writes.
    const Descriptor file(open(paths_[index].c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (file.get() < 0) fail("cannot be opened", errno);
    struct stat info {};
    if (fstat(file.get(), &info) != 0) fail("cannot be examined (fstat)", errno);
    if (!S_ISREG(info.st_mode)) throw Error(ErrorCode::io, "is not a regular file");
    const auto size_bytes = static_cast<std::uint64_t>(info.st_size);
    if (size_bytes > max_bytes) refuse_size(std::to_string(size_bytes), max_bytes);
    // One byte more than the size, so that the end is seen in the first read.
    std::size_t filled = 0;
    grow(buffer, size_bytes + 1);
    for (;;) {
      const ssize_t got = pread(file.get(), buffer.data() + filled, buffer.size() - filled, static_cast<off_t>(filled));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail("cannot be read", errno);
      filled += static_cast<std::size_t>(got);
      if (got == 0 || (filled < buffer.size() && filled == size_bytes)) break;
      // It grows while it is read, or has no size, as in /proc.
      if (filled > max_bytes) refuse_size("at least " + std::to_string(filled), max_bytes);
      if (filled == buffer.size()) buffer.resize(2 * buffer.size());
    }
    if (filled > max_bytes) refuse_size(std::to_string(filled), max_bytes);
    return {buffer.data(), filled};
  }

  std::string digest() const override {
    Digest digest;
    const std::size_t folder = common_folder(paths_);
    for (const std::string& path : paths_) digest.add(std::string_view(path).substr(folder));
    digest.add(std::as_bytes(std::span(labels_)));
    return digest.text();
  }

 private:
  // The buffer never shrinks: clearing it for every sample would cost as much as the copy.
  static void grow(std::vector<std::byte>& buffer, std::size_t size) {
    if (buffer.size() < size) buffer.resize(size);
  }

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
  ConstBytes read(std::uint64_t index, std::uint64_t max_bytes, std::vector<std::byte>&) const override {
    if (samples_[index].size() > max_bytes) refuse_size(std::to_string(samples_[index].size()), max_bytes);
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

class Objects : public Source {
 public:
  explicit Objects(ObjectSource source) : source_(std::move(source)) {
    if (!source_.get) throw Error(ErrorCode::invalid_argument, "a source of objects needs a function that gives them");
  }
  std::uint64_t size() const override { return source_.size; }
  std::int64_t label(std::uint64_t) const override { return 0; }
  std::string name(std::uint64_t index) const override {
    return source_.name ? source_.name(index) : "sample " + std::to_string(index);
  }
  ConstBytes read(std::uint64_t, std::uint64_t, std::vector<std::byte>&) const override {
    throw Error(ErrorCode::invalid_argument, "is not an object of the program");
  }
  std::shared_ptr<void> object(std::uint64_t index) const override {
    std::shared_ptr<void> object = source_.get(index);
    if (!object) throw Error(ErrorCode::invalid_argument, "is missing: its source returned no object");
    return object;
  }
  bool gives_objects() const override { return true; }
  std::string digest() const override {
    Digest digest;
    digest.add(source_.digest);
    digest.add(std::to_string(source_.size));
    return digest.text();
  }

 private:
  ObjectSource source_;
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
  ConstBytes read(std::uint64_t index, std::uint64_t max_bytes, std::vector<std::byte>& buffer) const override {
    const std::size_t k = find(index);
    return sources_[k]->read(index - firsts_[k], max_bytes, buffer);
  }
  std::shared_ptr<void> object(std::uint64_t index) const override {
    const std::size_t k = find(index);
    return sources_[k]->object(index - firsts_[k]);
  }
  bool gives_objects() const override {
    return std::ranges::any_of(sources_, [](const SourcePtr& source) { return source->gives_objects(); });
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

SourcePtr object_source(ObjectSource source) { return std::make_shared<Objects>(std::move(source)); }

SourcePtr concatenated(std::vector<SourcePtr> sources) { return std::make_shared<Concatenated>(std::move(sources)); }

}  // namespace penstock::dataset
