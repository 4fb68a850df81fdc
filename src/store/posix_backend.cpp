#include "store/posix_backend.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <unordered_map>
#include <utility>

#include "penstock/error.hpp"
#include "store/io_vector.hpp"
#include "store/new_file.hpp"
#include "store/store_format.hpp"

namespace penstock::store {

namespace {

constexpr std::string_view kFormatFile = "PENSTOCK";
constexpr std::string_view kTemporary = ".tmp";
/// unsynced/<kernel>: processes under this kernel put objects without waiting for the device.
constexpr std::string_view kUnsynced = "unsynced";
constexpr std::size_t kOpenFiles = 64;
/// How often a put makes its directory again after a prune.
constexpr int kPruned = 8;

/// Returns the call's result. Repeats the call if a signal interrupts it.
template <typename Call>
int uninterrupted(const Call& call) {
  for (;;) {
    const int result = call();
    if (result >= 0 || errno != EINTR) return result;
  }
}

ConstBytes bytes_of(std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); }

/// Owns the descriptor of a file that is only read.
class OpenFile {
 public:
  OpenFile(PosixCalls& calls, int fd) : calls_(calls), fd_(fd) {}
  ~OpenFile() { calls_.close(fd_); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int fd() const { return fd_; }

 private:
  PosixCalls& calls_;
  const int fd_;
};

class PosixBackend final : public Backend {
 public:
  PosixBackend(std::string root, std::string url, const BackendOptions& options, PosixCalls& calls)
      : root_(std::move(root)), url_(std::move(url)), durable_(options.durable), calls_(calls) {
    std::random_device random;
    writer_ = (std::uint64_t{random()} << 32) | random();
    open_root(options.create);
  }

  bool put_if_absent(std::string_view key, std::span<const ConstBytes> pieces) override { return put_new(key, pieces); }

  bool put_stream_if_absent(std::string_view key, const Stream& stream) override { return put_new(key, stream); }

  void put_unannounced(std::string_view key, std::span<const ConstBytes> pieces, bool read_soon) override {
    check_key(key);
    const std::string target = path(key);
    announce_unsynced();
    in_directory(parent(target), [&] {
      NewFile file(calls_, target);
      file.write(pieces, durable_, read_soon);
      file.close();
      sync_directory(parent(target));
      file.keep();
    });
  }

  std::uint64_t append(std::string_view prefix, std::uint64_t first, std::span<const ConstBytes> pieces) override {
    check_key(prefix);
    announce_unsynced();
    const auto link_to_first_free = [&](NewFile& file) {
      for (;; ++first) {
        const auto link = file.link_to(path(numbered_key(prefix, first)));
        if (link != NewFile::Link::exists) return link;
      }
    };
    publish(pieces, link_to_first_free, path(prefix));
    return first;
  }

  void read(std::string_view key, std::uint64_t offset_bytes, Bytes to) const override {
    read_scattered(key, offset_bytes, std::span(&to, 1));
  }

  void read_scattered(std::string_view key, std::uint64_t offset_bytes, std::span<const Bytes> targets) const override {
    check_key(key);
    read_file(*open_file(key), key, offset_bytes, targets);
  }

  /// Small objects are read once, so their descriptors are not cached.
  std::vector<std::byte> contents(std::string_view key) const override {
    check_key(key);
    const int fd = calls_.open_to_read(path(key));
    if (fd < 0) absent_or_fail(key, errno);
    const OpenFile file(calls_, fd);
    FileStatus status;
    if (calls_.fstat(fd, status) < 0) fail_call("cannot stat " + path(key), errno);
    std::vector<std::byte> data(status.size_bytes);
    const Bytes to(data);
    read_file(file, key, 0, std::span(&to, 1));
    return data;
  }

  std::uint64_t size_bytes(std::string_view key) const override {
    check_key(key);
    FileStatus status;
    if (calls_.stat(path(key), status) < 0) absent_or_fail(key, errno);
    return status.size_bytes;
  }

  bool exists(std::string_view key) const override {
    check_key(key);
    FileStatus status;
    if (calls_.stat(path(key), status) == 0) return !status.is_directory;
    if (errno == ENOENT || errno == ENOTDIR) return false;
    fail_call("cannot stat " + path(key), errno);
  }

  std::vector<std::string> list(std::string_view prefix) const override {
    check_key(prefix);
    std::vector<std::string> keys;
    list_below(std::string(prefix), keys);
    std::sort(keys.begin(), keys.end());
    return keys;
  }

  std::vector<std::string> list_parts(std::string_view prefix) const override {
    check_key(prefix);
    std::vector<DirectoryEntry> entries;
    if (calls_.list(path(prefix), entries) < 0 && errno != ENOENT && errno != ENOTDIR) {
      fail_call("cannot list " + path(prefix), errno);
    }
    std::vector<std::string> parts;
    for (auto& [name, kind] : entries) {
      if (!name.starts_with('.')) parts.push_back(std::move(name));
    }
    std::sort(parts.begin(), parts.end());
    return parts;
  }

  bool remove(std::string_view key) override {
    const std::string one(key);
    return remove_all(std::span(&one, 1)) == 1;
  }

  std::size_t remove_all(std::span<const std::string> keys) override {
    std::set<std::string> directories;
    std::size_t removed = 0;
    for (const std::string& key : keys) {
      check_key(key);
      const std::string target = path(key);
      forget_file(key);
      if (calls_.unlink(target) == 0) {
        ++removed;
        directories.insert(parent(target));
      } else if (errno != ENOENT && errno != ENOTDIR) {
        fail_call("cannot remove " + target, errno);
      }
    }
    for (const std::string& directory : directories) sync_directory(directory);
    return removed;
  }

  void copy_all(std::span<const std::pair<std::string, std::string>> keys) override {
    std::set<std::string> directories;
    announce_unsynced();
    for (const auto& pair : keys) {
      const auto& [from, to] = pair;
      check_key(from);
      check_key(to);
      const std::string target = path(to);
      in_directory(parent(target), [&] {
        if (calls_.link(path(from), target) == 0) {
          directories.insert(parent(target));
          return;
        }
        const int error = errno;
        if (error == EMLINK || error == EPERM || error == EOPNOTSUPP) return Backend::copy_all(std::span(&pair, 1));
        if (error == ENOENT && !exists(from)) throw Error(ErrorCode::not_found, url_ + ": no object " + from);
        fail_call("cannot create " + target + " from " + path(from), error);
      });
    }
    for (const std::string& directory : directories) sync_directory(directory);
  }

  void sync() override {
    if (uninterrupted([&] { return calls_.sync_file_system(root_); }) < 0) {
      fail_call("cannot sync the file system of " + root_, errno);
    }
  }

  std::shared_ptr<Backend> durable_twin() const override {
    if (durable_) return nullptr;
    return std::make_shared<PosixBackend>(root_, url_, BackendOptions{.create = false, .durable = true}, calls_);
  }

  void settle() override {
    if (!durable_) return;
    bool here = false;
    bool elsewhere = false;
    for (const std::string& mark : list(kUnsynced)) (mark == unsynced_key() ? here : elsewhere) = true;
    // On a local file system the kernel of any other mark has ended: what is here now lies on the device. NFS writes a
    // file to the server at close, before its key is published.
    if (elsewhere && calls_.file_system(root_) == FileSystemKind::other) {
      throw Error(ErrorCode::unsupported,
                  url_ +
                      ": another host has written here with durable=False, and what it wrote cannot be made durable "
                      "from this one; open the store with durable=False here too, or, once no process of the other "
                      "host writes to it, run 'penstock store repair --apply " +
                      url_ + "'");
    }
    if (here) sync();
  }

  bool may_be_torn() const override {
    const std::vector<std::string> marks = list(kUnsynced);
    return std::any_of(marks.begin(), marks.end(), [&](const std::string& mark) { return mark != unsynced_key(); });
  }

  void declare_whole() override {
    std::vector<std::string> marks = list(kUnsynced);
    std::erase(marks, unsynced_key());
    if (!marks.empty()) remove_all(marks);
  }

  void replace(std::string_view key, std::span<const ConstBytes> pieces) override {
    check_key(key);
    const std::string target = path(key);
    make_directory(root_ + '/' + std::string(kTemporary));
    in_directory(parent(target), [&] {
      NewFile file(calls_, temporary_path());
      file.write(pieces, true);
      file.close();
      file.rename_to(target);
      forget_file(std::string(key));
      sync_directory(parent(target));
    });
  }

  void prune(std::string_view prefix) override {
    check_key(prefix);
    if (prune_below(path(prefix))) sync_directory(parent(path(prefix)));
  }

  std::uint64_t reclaim(std::chrono::seconds age) override {
    make_directory(root_ + '/' + std::string(kTemporary));
    // Compares ages by the file system's clock: a new file has its current time.
    const FileStatus now = NewFile(calls_, temporary_path()).status();
    const std::string directory = root_ + '/' + std::string(kTemporary);
    std::vector<DirectoryEntry> entries;
    if (calls_.list(directory, entries) < 0) fail_call("cannot list " + directory, errno);
    std::uint64_t freed_bytes = 0;
    for (const auto& [name, kind] : entries) {
      const std::string leftover = directory + '/' + name;
      FileStatus status;
      if (calls_.stat(leftover, status) < 0 || now.modified_s - status.modified_s < age.count()) continue;
      // A file with a second link is an object: its space is not freed.
      if (calls_.unlink(leftover) == 0 && status.links == 1) freed_bytes += status.size_bytes;
    }
    return freed_bytes;
  }

  const std::string& url() const override { return url_; }

 private:
  static std::string parent(const std::string& path) {
    const std::size_t slash = path.find_last_of('/');
    return slash == 0 ? "/" : path.substr(0, slash);
  }

  std::string path(std::string_view key) const { return root_ + '/' + std::string(key); }

  std::string temporary_path() {
    char name[64];
    std::snprintf(name, sizeof name, "/%016llx-%ld-%llu", static_cast<unsigned long long>(writer_),
                  static_cast<long>(getpid()), static_cast<unsigned long long>(counter_.fetch_add(1)));
    return root_ + '/' + std::string(kTemporary) + name;
  }

  void open_root(bool create) {
    FileStatus status;
    // The store is created durably even if durable is false: this happens once.
    if (!durable_ && create && calls_.stat(path(kFormatFile), status) < 0) {
      PosixBackend(root_, url_, {.create = true, .durable = true}, calls_);
    }
    if (calls_.stat(root_, status) < 0) {
      if (errno != ENOENT) fail_call(url_ + ": cannot stat " + root_, errno);
      if (!create) {
        throw Error(ErrorCode::not_found, url_ + ": no such directory; create the store first or correct the path");
      }
      make_directory(root_);
    } else if (!status.is_directory) {
      throw Error(ErrorCode::invalid_argument, url_ + ": " + root_ + " is a file; expected a directory");
    }
    const std::string format_path = path(kFormatFile);
    if (calls_.stat(format_path, status) < 0) {
      if (errno != ENOENT) fail_call(url_ + ": cannot stat " + format_path, errno);
      found_store(create);
    }
    check_format();
    if (calls_.file_system(root_) != FileSystemKind::local) probe();
  }

  /// Tests exclusive create on a file system that is not known to support it, unless the root is read-only.
  void probe() {
    if (!calls_.can_write(root_)) return;
    try {
      probe_safety(*this);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::no_space || error.code() == ErrorCode::unsupported) throw;
      throw Error(ErrorCode::unsupported,
                  url_ + ": the file system of " + root_ +
                      " cannot hold a store, which needs hard links (link(2)) that are created exclusively; use a "
                      "directory on another file system",
                  -1, error.what());
    }
  }

  void found_store(bool create) {
    std::vector<DirectoryEntry> entries;
    if (calls_.list(root_, entries) < 0) fail_call(url_ + ": cannot list " + root_, errno);
    for (const auto& [name, kind] : entries) {
      // Every new ext file system has lost+found in its root. Another process that creates the same store at this
      // moment makes .tmp and PENSTOCK.
      if (name == kTemporary || name == "lost+found" || name == kFormatFile) continue;
      throw Error(ErrorCode::invalid_argument, url_ + ": the directory is not a store (it holds '" + name +
                                                   "' and no file " + std::string(kFormatFile) +
                                                   "); give an empty or new directory, or correct the path");
    }
    if (!create) throw Error(ErrorCode::not_found, url_ + ": the directory is empty; create the store first");
    const std::string format = store_format();
    const ConstBytes piece = bytes_of(format);
    put_if_absent(kFormatFile, std::span(&piece, 1));
  }

  void check_format() const {
    const std::vector<std::byte> data = read_all(*this, kFormatFile);
    check_store_format({reinterpret_cast<const char*>(data.data()), data.size()}, path(kFormatFile), url_);
  }

  /// Makes the directory and its parents and makes their names durable, once per process, even if they exist: another
  /// process may have made them just now and die before its sync.
  void make_directory(const std::string& directory) {
    {
      const std::lock_guard lock(directories_mutex_);
      if (directories_.contains(directory)) return;
    }
    // This process may lack permission above the root; then it does not have to make that directory durable.
    const bool above = directory.size() <= root_.size();
    const auto sync_parent = [&] {
      return !durable_ || uninterrupted([&] { return calls_.sync_directory(parent(directory)); }) == 0 ||
             (above && errno == EACCES);
    };
    if (!above) make_directory(parent(directory));
    for (int attempt = 0;; ++attempt) {
      const bool is_made = calls_.mkdir(directory) == 0 || errno == EEXIST;
      if (is_made && sync_parent()) break;
      // The parents were never made, or another process pruned them.
      if (errno != ENOENT || directory == "/" || attempt == kPruned) {
        if (is_made) fail_call("cannot sync directory " + parent(directory), errno);
        fail_call("cannot create directory " + directory, errno);
      }
      forget_directories(parent(directory));
      make_directory(parent(directory));
    }
    const std::lock_guard lock(directories_mutex_);
    directories_.insert(directory);
  }

  void sync_directory(std::string directory) {
    if (!durable_) return;
    while (uninterrupted([&] { return calls_.sync_directory(directory); }) < 0) {
      // A pruned directory was empty. Only its removal must become durable, by a sync of its parent.
      if (errno != ENOENT || directory.size() <= root_.size()) fail_call("cannot sync directory " + directory, errno);
      directory = parent(directory);
    }
  }

  /// Runs `action`, which creates a file in the directory. If another process prunes the empty directory meanwhile,
  /// makes it again and repeats the action.
  template <typename Action>
  void in_directory(const std::string& directory, const Action& action) {
    for (int attempt = 0;; ++attempt) {
      make_directory(directory);
      try {
        return action();
      } catch (const Error& error) {
        if (attempt == kPruned || error.system_error() != ENOENT) throw;
      }
      forget_directories(directory);
    }
  }

  void forget_directories(const std::string& directory) {
    const std::lock_guard lock(directories_mutex_);
    for (std::string above = directory; above.size() > root_.size(); above = parent(above)) directories_.erase(above);
  }

  /// Removes the directory if no file is below it. Returns whether it did.
  bool prune_below(const std::string& directory) {
    std::vector<DirectoryEntry> entries;
    if (calls_.list(directory, entries) < 0) return false;
    for (const auto& [name, kind] : entries) {
      if (kind != DirectoryEntry::Kind::file) prune_below(directory + '/' + name);
    }
    forget_directories(directory);
    return calls_.rmdir(directory) == 0;
  }

  std::string unsynced_key() const { return numbered_key(kUnsynced, calls_.kernel()); }

  /// Puts the mark of this kernel before the first object that is not durable. The mark is durable, so it is found
  /// after a loss of power.
  void announce_unsynced() {
    if (durable_ || said_unsynced_.load()) return;
    PosixBackend(root_, url_, {.create = false, .durable = true}, calls_).put_if_absent(unsynced_key(), {});
    said_unsynced_ = true;
  }

  /// put_if_absent(), of pieces or a Stream.
  template <typename Content>
  bool put_new(std::string_view key, const Content& content) {
    check_key(key);
    const std::string target = path(key);
    FileStatus status;
    if (calls_.stat(target, status) == 0) return false;
    announce_unsynced();
    return publish(
        content, [&](NewFile& file) { return file.link_to(target); }, parent(target));
  }

  /// Writes a temporary file, lets `link` give it its name in `directory`, and makes all of it durable.
  /// `content`: pieces, or a Stream.
  template <typename Content>
  bool publish(const Content& content, const std::function<NewFile::Link(NewFile&)>& link,
               const std::string& directory) {
    make_directory(root_ + '/' + std::string(kTemporary));  // a copy of a store may lack it
    for (;;) {
      NewFile file(calls_, temporary_path());
      file.write(content, durable_);
      file.close();
      NewFile::Link result = NewFile::Link::vanished;
      in_directory(directory, [&] {
        result = link(file);
        if (result == NewFile::Link::made) sync_directory(directory);
      });
      if (result != NewFile::Link::vanished) return result == NewFile::Link::made;
    }
  }

  [[noreturn]] void absent_or_fail(std::string_view key, int error) const {
    if (error == ENOENT || error == ENOTDIR) {
      throw Error(ErrorCode::not_found, url_ + ": no object " + std::string(key));
    }
    fail_call("cannot open " + path(key), error);
  }

  void list_below(const std::string& prefix, std::vector<std::string>& keys) const {
    std::vector<DirectoryEntry> entries;
    if (calls_.list(path(prefix), entries) < 0) {
      if (errno == ENOENT || errno == ENOTDIR) return;
      fail_call("cannot list " + path(prefix), errno);
    }
    for (auto& [name, kind] : entries) {
      if (name.starts_with('.')) continue;
      std::string key = prefix + '/' + name;
      if (kind == DirectoryEntry::Kind::unknown) {
        FileStatus status;
        if (calls_.stat(path(key), status) < 0) {
          if (errno == ENOENT) continue;  // removed meanwhile
          fail_call("cannot stat " + path(key), errno);
        }
        kind = status.is_directory ? DirectoryEntry::Kind::directory : DirectoryEntry::Kind::file;
      }
      if (kind == DirectoryEntry::Kind::directory) {
        list_below(key, keys);
      } else {
        keys.push_back(std::move(key));
      }
    }
  }

  void read_file(const OpenFile& file, std::string_view key, std::uint64_t offset_bytes,
                 std::span<const Bytes> targets) const {
    IoVector rest;
    rest.reserve(targets.size());
    for (const Bytes to : targets) rest.add(to);
    const std::uint64_t end_bytes = offset_bytes + rest.total_bytes();
    while (!rest.done()) {
      const std::span<const iovec> next = rest.next();
      const ssize_t got = calls_.preadv(file.fd(), next.data(), static_cast<int>(next.size()), offset_bytes);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail_call("cannot read " + path(key) + " at offset " + std::to_string(offset_bytes), errno);
      if (got == 0) {
        throw Error(ErrorCode::corrupt, path(key) + " ends at offset " + std::to_string(offset_bytes) + "; expected " +
                                            std::to_string(end_bytes - offset_bytes) + " more bytes");
      }
      rest.advance(static_cast<std::size_t>(got));
      offset_bytes += static_cast<std::uint64_t>(got);
    }
  }

  /// Objects never change, so a descriptor stays good until the object is removed.
  std::shared_ptr<const OpenFile> open_file(std::string_view key) const {
    const std::string name(key);
    if (auto file = cached_file(name)) return file;
    const int fd = calls_.open_to_read(path(key));
    if (fd < 0) absent_or_fail(key, errno);
    auto file = std::make_shared<const OpenFile>(calls_, fd);
    const std::lock_guard lock(files_mutex_);
    if (files_.contains(name)) return file;
    recent_.push_front(name);
    files_.emplace(name, Cached{file, recent_.begin()});
    if (files_.size() > kOpenFiles) {
      files_.erase(recent_.back());
      recent_.pop_back();
    }
    return file;
  }

  std::shared_ptr<const OpenFile> cached_file(const std::string& name) const {
    std::shared_ptr<const OpenFile> file;
    {
      const std::lock_guard lock(files_mutex_);
      const auto at = files_.find(name);
      if (at == files_.end()) return nullptr;
      recent_.splice(recent_.begin(), recent_, at->second.place);
      file = at->second.file;
    }
    FileStatus status;
    if (calls_.fstat(file->fd(), status) == 0 && status.links > 0) return file;
    forget_file(name);
    return nullptr;
  }

  void forget_file(const std::string& key) const {
    const std::lock_guard lock(files_mutex_);
    const auto at = files_.find(key);
    if (at == files_.end()) return;
    recent_.erase(at->second.place);
    files_.erase(at);
  }

  struct Cached {
    std::shared_ptr<const OpenFile> file;
    std::list<std::string>::iterator place;
  };

  const std::string root_;
  const std::string url_;
  const bool durable_;
  PosixCalls& calls_;
  std::uint64_t writer_ = 0;
  std::atomic<std::uint64_t> counter_{0};
  std::atomic<bool> said_unsynced_{false};
  std::mutex directories_mutex_;
  std::set<std::string> directories_;
  mutable std::mutex files_mutex_;
  mutable std::list<std::string> recent_;
  mutable std::unordered_map<std::string, Cached> files_;
};

}  // namespace

std::shared_ptr<Backend> open_directory(const std::string& root, const std::string& url, const BackendOptions& options,
                                        PosixCalls& calls) {
  return std::make_shared<PosixBackend>(root, url, options, calls);
}

std::shared_ptr<Backend> open_posix(std::string_view rest, const std::string& url, const BackendOptions& options) {
  std::string root(rest);
  if (root.starts_with("//")) {
    const std::size_t slash = root.find('/', 2);
    const std::string host = root.substr(2, slash == std::string::npos ? slash : slash - 2);
    if (slash == std::string::npos || !(host.empty() || host == "localhost")) {
      throw Error(ErrorCode::invalid_argument, "'" + url + "' names the host '" + host +
                                                   "': expected an absolute path after file://, for example "
                                                   "file:///scratch/run7");
    }
    root.erase(0, slash);
  }
  while (root.size() > 1 && root.ends_with('/')) root.pop_back();
  if (root.size() < 2 || root.front() != '/') {
    throw Error(ErrorCode::invalid_argument,
                "'" + url + "': expected an absolute path of a directory, for example file:///scratch/run7");
  }
  return open_directory(root, url, options, PosixCalls::system());
}

}  // namespace penstock::store
