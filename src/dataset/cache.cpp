#include "dataset/cache.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <span>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "dataset/digest.hpp"
#include "penstock/error.hpp"
#include "store/checksum.hpp"

namespace penstock::dataset {

namespace {

// One lock for all caches, so that fork() can take it: a child then finds it free.
std::mutex caches;

void keep_lock_over_fork() {
  static const int registered = pthread_atfork([] { caches.lock(); }, [] { caches.unlock(); }, [] { caches.unlock(); });
  static_cast<void>(registered);
}

class MemoryCache : public Cache {
 public:
  explicit MemoryCache(std::uint64_t max_bytes) : max_bytes_(max_bytes == 0 ? ~std::uint64_t{0} : max_bytes) {
    keep_lock_over_fork();
  }

  bool contains(std::uint64_t index) const override {
    const std::lock_guard lock(caches);
    return samples_.contains(index);
  }

  std::shared_ptr<const Sample> find(std::uint64_t index, const ObjectCalls&) override {
    const std::lock_guard lock(caches);
    const auto found = samples_.find(index);
    return found == samples_.end() ? nullptr : found->second;
  }

  void insert(std::shared_ptr<const Sample> sample, const ObjectCalls& calls) override {
    const bool measured = sample->object && calls.size_bytes;
    const std::uint64_t size_bytes = measured ? calls.size_bytes(sample->object) : sample->data.size();
    const std::lock_guard lock(caches);
    if (size_bytes > max_bytes_ - bytes_) return;
    if (samples_.emplace(sample->index, std::move(sample)).second) bytes_ += size_bytes;
  }

 private:
  const std::uint64_t max_bytes_;
  std::uint64_t bytes_ = 0;
  std::unordered_map<std::uint64_t, std::shared_ptr<const Sample>> samples_;
};

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

constexpr std::uint64_t kMagic = 0x31656863'61434b50u;
constexpr const char* kKeyFile = "key";
constexpr std::string_view kSamples = "samples-";

/// What precedes the extents and the content of a sample.
struct Header {
  std::uint64_t magic = kMagic;
  std::uint64_t index = 0;
  std::int64_t label = 0;
  std::uint64_t body_bytes = 0;
  std::uint32_t is_object = 0;
  std::uint32_t dtype = 0;
  std::uint64_t dims = 0;
  store::Checksum sum;  ///< of the header with an empty sum, and of the body
};
static_assert(sizeof(Header) == 64 && std::has_unique_object_representations_v<Header>);

template <class T>
ConstBytes bytes_of(const T& value) {
  return {reinterpret_cast<const std::byte*>(&value), sizeof value};
}

store::Checksum sum_of(Header header, ConstBytes body) {
  header.sum = {};
  const ConstBytes pieces[] = {bytes_of(header), body};
  return store::checksum(pieces);
}

bool read_all(int fd, void* to, std::uint64_t size, std::uint64_t at) {
  auto* target = static_cast<char*>(to);
  while (size > 0) {
    const ssize_t got = ::pread(fd, target, size, static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    target += got;
    at += static_cast<std::uint64_t>(got);
    size -= static_cast<std::uint64_t>(got);
  }
  return true;
}

bool write_all(int fd, ConstBytes bytes, std::uint64_t at) {
  while (!bytes.empty()) {
    const ssize_t put = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(at));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    at += static_cast<std::uint64_t>(put);
    bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
  return true;
}

class FileCache : public Cache {
 public:
  FileCache(CacheFiles files, std::function<std::string()> digest)
      : files_(std::move(files)), digest_(std::move(digest)) {
    keep_lock_over_fork();
  }

  void begin() override {
    if (!key_) {
      Digest sum;
      sum.add(digest_());
      sum.add(files_.stages);
      open_folder(sum.text());
    }
    const std::lock_guard lock(caches);
    look_for_samples();
  }

  bool contains(std::uint64_t index) const override {
    const std::lock_guard lock(caches);
    return places_.contains(index);
  }

  std::shared_ptr<const Sample> find(std::uint64_t index, const ObjectCalls& calls) override {
    Place place;
    {
      const std::lock_guard lock(caches);
      const auto found = places_.find(index);
      if (found == places_.end()) return nullptr;
      place = found->second;
    }
    Header header;
    std::vector<std::byte> body;
    bool whole = read_all(place.file->get(), &header, sizeof header, place.begin) && header.magic == kMagic &&
                 header.index == index && header.body_bytes == place.body_bytes;
    if (whole) {
      body.resize(header.body_bytes);
      whole = read_all(place.file->get(), body.data(), body.size(), place.begin + sizeof header) &&
              header.sum == sum_of(header, body) && header.dims <= body.size() / sizeof(std::uint64_t);
    }
    if (!whole) {
      // It is made again, and appended again.
      const std::lock_guard lock(caches);
      places_.erase(index);
      return nullptr;
    }
    auto sample = std::make_shared<Sample>();
    sample->index = index;
    sample->label = header.label;
    const std::uint64_t extents_bytes = header.dims * sizeof(std::uint64_t);
    const ConstBytes content = ConstBytes(body).subspan(extents_bytes);
    if (header.is_object != 0) {
      if (!calls.unpack) throw Error(ErrorCode::invalid_argument, "is an object, and objects() was not called");
      sample->object = calls.unpack(content);
    } else {
      sample->form.dtype = static_cast<DType>(header.dtype);
      sample->form.shape.resize(header.dims);
      std::memcpy(sample->form.shape.data(), body.data(), extents_bytes);
      sample->data.assign(content.begin(), content.end());
    }
    return sample;
  }

  void insert(std::shared_ptr<const Sample> sample, const ObjectCalls& calls) override {
    {
      const std::lock_guard lock(caches);
      if (full_ || places_.contains(sample->index)) return;
    }
    Header header;
    header.index = sample->index;
    header.label = sample->label;
    header.is_object = sample->object ? 1 : 0;
    std::vector<std::byte> record(sizeof header);
    const auto append = [&record](ConstBytes bytes) { record.insert(record.end(), bytes.begin(), bytes.end()); };
    if (sample->object) {
      if (!calls.pack) throw Error(ErrorCode::invalid_argument, "is an object, and objects() was not called");
      append(calls.pack(sample->object));
    } else {
      header.dtype = static_cast<std::uint32_t>(sample->form.dtype);
      header.dims = sample->form.shape.size();
      append(std::as_bytes(std::span(sample->form.shape)));
      append(sample->data);
    }
    header.body_bytes = record.size() - sizeof header;
    header.sum = sum_of(header, ConstBytes(record).subspan(sizeof header));
    std::memcpy(record.data(), &header, sizeof header);

    Place place;
    {
      const std::lock_guard lock(caches);
      if (full_ || !reserve(record.size(), place)) {
        full_ = true;
        return;
      }
    }
    place.body_bytes = header.body_bytes;
    const bool written = write_all(place.file->get(), record, place.begin);
    const std::lock_guard lock(caches);
    if (written)
      places_.insert_or_assign(header.index, place);
    else
      full_ = true;  // the disk, perhaps
  }

 private:
  struct Place {
    std::shared_ptr<Descriptor> file;
    std::uint64_t begin = 0;
    std::uint64_t body_bytes = 0;
  };
  struct File {
    std::shared_ptr<Descriptor> descriptor;
    std::uint64_t read_bytes = 0;  ///< the samples before are known
  };

  std::string path(const std::string& name) const { return files_.folder + "/" + name; }

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(errno == ENOSPC ? ErrorCode::no_space : ErrorCode::io, "the cache " + files_.folder + " " + what, -1,
                std::strerror(errno));
  }

  void open_folder(const std::string& key) {
    for (std::size_t end = files_.folder.find('/', 1);; end = files_.folder.find('/', end + 1)) {
      if (::mkdir(files_.folder.substr(0, end).c_str(), 0777) != 0 && errno != EEXIST) fail("cannot be made");
      if (end == std::string::npos) break;
    }
    // It appears with its content, so that another process never sees a part of it.
    const std::string made = path(kKeyFile) + "-" + unique();
    const auto content = std::as_bytes(std::span(key.data(), key.size()));
    {
      const Descriptor file(::open(made.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666));
      const bool put = file.get() >= 0 && write_all(file.get(), content, 0) && ::fsync(file.get()) == 0;
      if (!put) fail("cannot be written");
    }
    const bool mine = ::link(made.c_str(), path(kKeyFile).c_str()) == 0;
    const int error = errno;
    ::unlink(made.c_str());
    errno = error;
    if (!mine && error != EEXIST) fail("cannot be written");
    auto file = std::make_shared<Descriptor>(::open(path(kKeyFile).c_str(), O_RDONLY | O_CLOEXEC));
    std::string found(key.size() + 1, '\0');
    const ssize_t size = file->get() < 0 ? -1 : ::pread(file->get(), found.data(), found.size(), 0);
    if (size < 0) fail("cannot be read");
    found.resize(static_cast<std::size_t>(size));
    if (found != key)
      throw Error(ErrorCode::invalid_argument,
                  "the cache " + files_.folder + " holds other samples: its digest of the source and the stages is " +
                      found + ", this one's is " + key + "; remove it, or cache in another folder");
    const std::lock_guard lock(caches);
    key_ = std::move(file);
  }

  static std::string unique() {
    std::random_device random;
    const std::uint64_t number = (std::uint64_t{random()} << 32) | random();
    return std::to_string(getpid()) + "-" + std::to_string(number);
  }

  /// Under the lock. What other processes have added, and what was there before.
  void look_for_samples() {
    DIR* folder = ::opendir(files_.folder.c_str());
    if (folder == nullptr) fail("cannot be read");
    while (const dirent* entry = ::readdir(folder)) {
      const std::string name = entry->d_name;
      if (!name.starts_with(kSamples) || name == own_name_) continue;
      File& file = known_[name];
      if (!file.descriptor) {
        const int fd = ::open(path(name).c_str(), O_RDONLY | O_CLOEXEC);
        if (fd < 0) continue;
        file.descriptor = std::make_shared<Descriptor>(fd);
      }
      struct stat status {};
      if (::fstat(file.descriptor->get(), &status) != 0) continue;
      const auto end = static_cast<std::uint64_t>(status.st_size);
      Header header;
      // Ends at what another process is still writing, or has left unfinished.
      while (end - file.read_bytes >= sizeof header &&
             read_all(file.descriptor->get(), &header, sizeof header, file.read_bytes) && header.magic == kMagic &&
             header.body_bytes <= end - file.read_bytes - sizeof header) {
        places_.insert_or_assign(header.index, Place{file.descriptor, file.read_bytes, header.body_bytes});
        file.read_bytes += sizeof header + header.body_bytes;
      }
    }
    ::closedir(folder);
  }

  /// Under the lock. A place at the end of this process's file; false if it would be too much.
  bool reserve(std::uint64_t size, Place& place) {
    if (owner_ != getpid()) {
      // A forked child shares its parent's file, and its locks of files that it does not open itself.
      own_.reset();
      key_ = std::make_shared<Descriptor>(::open(path(kKeyFile).c_str(), O_RDONLY | O_CLOEXEC));
      owner_ = getpid();
    }
    if (files_.max_bytes == 0) {
      if (!own_ && !make_own_file()) return false;
    } else {
      if (::flock(key_->get(), LOCK_EX) != 0) return false;
      const bool fits = stored_bytes() + size <= files_.max_bytes && (own_ || make_own_file()) &&
                        ::ftruncate(own_->get(), static_cast<off_t>(own_bytes_ + size)) == 0;
      ::flock(key_->get(), LOCK_UN);
      if (!fits) return false;
    }
    place = {own_, own_bytes_, 0};
    own_bytes_ += size;
    return true;
  }

  bool make_own_file() {
    own_name_ = std::string(kSamples) + unique();
    const int fd = ::open(path(own_name_).c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0666);
    if (fd < 0) return false;
    own_ = std::make_shared<Descriptor>(fd);
    own_bytes_ = 0;
    return true;
  }

  /// Of all processes' files.
  std::uint64_t stored_bytes() const {
    std::uint64_t total = 0;
    DIR* folder = ::opendir(files_.folder.c_str());
    if (folder == nullptr) return ~std::uint64_t{0} >> 1;
    while (const dirent* entry = ::readdir(folder)) {
      struct stat status {};
      if (std::string_view(entry->d_name).starts_with(kSamples) &&
          ::fstatat(::dirfd(folder), entry->d_name, &status, 0) == 0)
        total += static_cast<std::uint64_t>(status.st_size);
    }
    ::closedir(folder);
    return total;
  }

  const CacheFiles files_;
  const std::function<std::string()> digest_;

  // Under the lock.
  std::shared_ptr<Descriptor> key_;
  std::map<std::string, File> known_;
  std::unordered_map<std::uint64_t, Place> places_;
  std::shared_ptr<Descriptor> own_;
  std::string own_name_;
  std::uint64_t own_bytes_ = 0;
  pid_t owner_ = 0;
  bool full_ = false;
};

}  // namespace

std::shared_ptr<Cache> memory_cache(std::uint64_t max_bytes) { return std::make_shared<MemoryCache>(max_bytes); }

std::shared_ptr<Cache> file_cache(CacheFiles files, std::function<std::string()> digest) {
  return std::make_shared<FileCache>(std::move(files), std::move(digest));
}

}  // namespace penstock::dataset
