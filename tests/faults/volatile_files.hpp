// A file system in memory whose power can be cut: it keeps synced changes, and a random part of the unsynced ones.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "store/posix_calls.hpp"

namespace penstock::store {

/// Promises no more than POSIX: fdatasync makes the content of a file durable, a directory's sync its entries.
class VolatileFiles : public PosixCalls {
 public:
  VolatileFiles() { directories_["/"]; }

  std::uint64_t calls() const { return calls_; }
  /// Every call from this one on fails: the machine is off.
  void cut_at(std::uint64_t call) { cut_at_ = call; }
  bool is_off() const { return calls_ >= cut_at_; }

  /// Switches the machine on again. Each unsynced change survives by chance.
  void restart(std::mt19937& random) {
    for (auto& [path, directory] : directories_) {
      std::map<std::string, std::shared_ptr<Inode>> kept;
      std::set<std::string> names;
      for (const auto& [name, inode] : directory.entries) names.insert(name);
      for (const auto& [name, inode] : directory.durable) names.insert(name);
      for (const std::string& name : names) {
        const auto now = directory.entries.find(name);
        const auto synced = directory.durable.find(name);
        const bool in_both = now != directory.entries.end() && synced != directory.durable.end();
        if (in_both || (random() % 2 == 0)) {
          const auto& from = now != directory.entries.end() ? now : synced;
          kept.emplace(name, from->second);
        } else if (synced != directory.durable.end() && now == directory.entries.end() && random() % 2 == 0) {
          kept.emplace(name, synced->second);
        }
      }
      directory.entries = directory.durable = std::move(kept);
    }
    // A directory whose own entry is lost loses all below it.
    for (auto at = directories_.begin(); at != directories_.end();) {
      const auto above = directories_.find(parent(at->first));
      const bool lost =
          at->first != "/" && (above == directories_.end() || !above->second.entries.contains(leaf(at->first)));
      at = lost ? directories_.erase(at) : std::next(at);
    }
    for (auto& [path, directory] : directories_) {
      for (auto& [name, inode] : directory.entries) {
        if (inode->synced) continue;
        // Unsynced content has any length up to the real one, with zeros at random places.
        inode->data.resize(inode->data.empty() ? 0 : random() % (inode->data.size() + 1));
        for (std::byte& byte : inode->data) {
          if (random() % 64 == 0) byte = std::byte{0};
        }
        inode->synced = true;
      }
    }
    open_.clear();
    calls_ = 0;
    cut_at_ = UINT64_MAX;
    ++starts_;
  }

  int open_to_read(const std::string& path) override { return open_file(path, false); }
  int create(const std::string& path) override { return open_file(path, true); }
  int close(int fd) override {
    open_.erase(fd);
    return 0;
  }
  int reserve(int, std::uint64_t) override { return off() ? -1 : 0; }
  ssize_t writev(int fd, const iovec* pieces, int count) override {
    if (off()) return -1;
    Inode& inode = *open_.at(fd);
    ssize_t total = 0;
    for (int i = 0; i < count; ++i) {
      const auto* bytes = static_cast<const std::byte*>(pieces[i].iov_base);
      inode.data.insert(inode.data.end(), bytes, bytes + pieces[i].iov_len);
      total += static_cast<ssize_t>(pieces[i].iov_len);
    }
    inode.synced = false;
    return total;
  }
  ssize_t preadv(int fd, const iovec* pieces, int count, std::uint64_t offset) override {
    if (off()) return -1;
    const Inode& inode = *open_.at(fd);
    if (offset >= inode.data.size()) return 0;
    ssize_t total = 0;
    for (int i = 0; i < count; ++i) {
      const std::size_t size = std::min<std::size_t>(pieces[i].iov_len, inode.data.size() - offset);
      if (size > 0) std::memcpy(pieces[i].iov_base, inode.data.data() + offset, size);
      offset += size;
      total += static_cast<ssize_t>(size);
    }
    return total;
  }
  int fdatasync(int fd) override {
    if (off()) return -1;
    open_.at(fd)->synced = true;
    return 0;
  }
  int sync_directory(const std::string& path) override {
    if (off()) return -1;
    const auto at = directories_.find(path);
    if (at == directories_.end()) return fail(ENOENT);
    Directory& directory = at->second;
    directory.durable = directory.entries;
    return 0;
  }
  int link(const std::string& from, const std::string& to) override {
    if (off()) return -1;
    auto& source = directories_.at(parent(from)).entries;
    const auto target = directories_.find(parent(to));
    if (!source.contains(leaf(from)) || target == directories_.end()) return fail(ENOENT);
    if (!target->second.entries.emplace(leaf(to), source.at(leaf(from))).second) return fail(EEXIST);
    return 0;
  }
  int unlink(const std::string& path) override {
    if (off()) return -1;
    const auto directory = directories_.find(parent(path));
    if (directory == directories_.end() || directory->second.entries.erase(leaf(path)) == 0) return fail(ENOENT);
    return 0;
  }
  int rename(const std::string& from, const std::string& to) override {
    if (off()) return -1;
    auto& source = directories_.at(parent(from)).entries;
    const auto target = directories_.find(parent(to));
    if (!source.contains(leaf(from)) || target == directories_.end()) return fail(ENOENT);
    target->second.entries.insert_or_assign(leaf(to), source.at(leaf(from)));
    source.erase(leaf(from));
    return 0;
  }
  int rmdir(const std::string& path) override {
    if (off()) return -1;
    const auto directory = directories_.find(path);
    if (directory == directories_.end()) return fail(ENOENT);
    if (!directory->second.entries.empty()) return fail(ENOTEMPTY);
    directories_.erase(directory);
    directories_.at(parent(path)).entries.erase(leaf(path));
    return 0;
  }
  int sync_file_system(const std::string&) override {
    if (off()) return -1;
    for (auto& [path, directory] : directories_) {
      for (auto& [name, inode] : directory.entries) inode->synced = true;
      directory.durable = directory.entries;
    }
    return 0;
  }
  bool can_write(const std::string&) override { return true; }
  FileSystemKind file_system(const std::string&) override { return FileSystemKind::local; }
  std::uint64_t kernel() override { return starts_; }
  int mkdir(const std::string& path) override {
    if (off()) return -1;
    if (directories_.contains(path)) return fail(EEXIST);
    const auto above = directories_.find(parent(path));
    if (above == directories_.end()) return fail(ENOENT);
    above->second.entries.emplace(leaf(path), std::make_shared<Inode>());
    directories_[path];
    return 0;
  }
  int fstat(int fd, FileStatus& status) override {
    if (off()) return -1;
    return describe(open_.at(fd), status);
  }
  int stat(const std::string& path, FileStatus& status) override {
    if (off()) return -1;
    if (directories_.contains(path)) {
      status = {true, 0, 2, 0};
      return 0;
    }
    const auto directory = directories_.find(parent(path));
    if (directory == directories_.end() || !directory->second.entries.contains(leaf(path))) return fail(ENOENT);
    return describe(directory->second.entries.at(leaf(path)), status);
  }
  int list(const std::string& path, std::vector<DirectoryEntry>& entries) override {
    if (off()) return -1;
    const auto directory = directories_.find(path);
    if (directory == directories_.end()) return fail(ENOENT);
    for (const auto& [name, inode] : directory->second.entries) {
      const bool below = directories_.contains(path + '/' + name);
      entries.push_back({name, below ? DirectoryEntry::Kind::directory : DirectoryEntry::Kind::file});
    }
    return 0;
  }

 private:
  struct Inode {
    std::vector<std::byte> data;
    bool synced = false;
  };
  struct Directory {
    std::map<std::string, std::shared_ptr<Inode>> entries;
    std::map<std::string, std::shared_ptr<Inode>> durable;
  };

  static std::string parent(const std::string& path) {
    const std::size_t slash = path.find_last_of('/');
    return slash == 0 ? "/" : path.substr(0, slash);
  }
  static std::string leaf(const std::string& path) { return path.substr(path.find_last_of('/') + 1); }
  static int fail(int error) {
    errno = error;
    return -1;
  }
  bool off() {
    if (calls_++ < cut_at_) return false;
    errno = EIO;
    return true;
  }
  int describe(const std::shared_ptr<Inode>& inode, FileStatus& status) const {
    std::uint64_t links = 0;
    for (const auto& [path, directory] : directories_) {
      for (const auto& [name, other] : directory.entries) links += other == inode ? 1 : 0;
    }
    status = {false, inode->data.size(), links, 0};
    return 0;
  }
  int open_file(const std::string& path, bool create) {
    if (off()) return -1;
    const auto directory = directories_.find(parent(path));
    if (directory == directories_.end()) return fail(ENOENT);
    auto& entries = directory->second.entries;
    if (create && entries.contains(leaf(path))) return fail(EEXIST);
    if (!create && !entries.contains(leaf(path))) return fail(ENOENT);
    if (create) entries.emplace(leaf(path), std::make_shared<Inode>());
    open_[++last_fd_] = entries.at(leaf(path));
    return last_fd_;
  }

  std::map<std::string, Directory> directories_;
  std::map<int, std::shared_ptr<Inode>> open_;
  int last_fd_ = 2;
  std::uint64_t calls_ = 0;
  std::uint64_t cut_at_ = UINT64_MAX;
  std::uint64_t starts_ = 1;
};

}  // namespace penstock::store
