#include "dataset/source.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "penstock/error.hpp"

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
  throw Error(code, message, -1, std::generic_category().message(error));
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

  ConstBytes read(std::uint64_t index, std::vector<std::byte>& buffer) const override {
    // O_NONBLOCK: a FIFO in the list must not hold a thread for ever.
    const Descriptor file(open(paths_[index].c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (file.get() < 0) fail("cannot be opened", errno);
    struct stat info {};
    if (fstat(file.get(), &info) != 0) fail("has no size", errno);
    if (!S_ISREG(info.st_mode)) throw Error(ErrorCode::io, "is not a regular file");
    // One byte more than the size, so that the end is seen in the first read.
    std::size_t filled = 0;
    grow(buffer, static_cast<std::size_t>(info.st_size) + 1);
    for (;;) {
      const ssize_t got = pread(file.get(), buffer.data() + filled, buffer.size() - filled, static_cast<off_t>(filled));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail("cannot be read", errno);
      filled += static_cast<std::size_t>(got);
      if (got == 0 || (filled < buffer.size() && filled == static_cast<std::size_t>(info.st_size))) break;
      if (filled == buffer.size()) buffer.resize(2 * buffer.size());
    }
    return {buffer.data(), filled};
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
  ConstBytes read(std::uint64_t index, std::vector<std::byte>&) const override { return samples_[index]; }

 private:
  std::vector<std::vector<std::byte>> samples_;
  std::vector<std::int64_t> labels_;
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
  ConstBytes read(std::uint64_t index, std::vector<std::byte>& buffer) const override {
    const std::size_t k = find(index);
    return sources_[k]->read(index - firsts_[k], buffer);
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

SourcePtr concatenated(std::vector<SourcePtr> sources) { return std::make_shared<Concatenated>(std::move(sources)); }

}  // namespace penstock::dataset
