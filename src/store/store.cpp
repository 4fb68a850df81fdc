#include "penstock/store.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "penstock/error.hpp"
#include "store/backend.hpp"
#include "store/blob_state.hpp"
#include "store/collect.hpp"

namespace penstock {

namespace {

[[noreturn]] void fail_export(const std::string& path, const char* what) {
  const int error = errno;
  throw Error(error == ENOSPC || error == EDQUOT ? ErrorCode::no_space : ErrorCode::io,
              std::string("cannot ") + what + " " + path, -1, std::strerror(error));
}

/// A plain file that appears under its name when it is complete, or not at all.
class NewFile {
 public:
  explicit NewFile(const std::string& path) : path_(path), temporary_(path + ".penstock-" + std::to_string(getpid())) {
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd_ < 0) fail_export(temporary_, "create");
  }
  ~NewFile() {
    if (fd_ >= 0) ::close(fd_);
    if (!finished_) ::unlink(temporary_.c_str());
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(ConstBytes data) {
    while (!data.empty()) {
      const ssize_t written = ::write(fd_, data.data(), data.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail_export(temporary_, "write");
      data = data.subspan(static_cast<std::size_t>(written));
    }
  }

  void finish() {
    if (::fsync(fd_) < 0) fail_export(temporary_, "sync");
    if (::rename(temporary_.c_str(), path_.c_str()) < 0) fail_export(path_, "rename to");
    finished_ = true;
    const std::size_t slash = path_.find_last_of('/');
    const std::string directory = slash == std::string::npos ? "." : path_.substr(0, slash + 1);
    const int fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) fail_export(directory, "open");
    const int result = ::fsync(fd);
    ::close(fd);
    if (result < 0) fail_export(directory, "sync");
  }

 private:
  const std::string path_;
  const std::string temporary_;
  int fd_ = -1;
  bool finished_ = false;
};

std::vector<std::string> blob_names(const store::Backend& backend) {
  std::vector<std::string> names = backend.list("catalog");
  for (std::string& name : names) name.erase(0, name.find('/') + 1);
  return names;
}

}  // namespace

Store::Store(std::string_view url, const StoreOptions& options)
    : backend_(store::open_backend(url, {.create = options.create, .durable = options.durable})) {}

const std::string& Store::url() const { return backend_->url(); }

Blob Store::create(std::string_view name, const BlobOptions& options) {
  return Blob(store::BlobState::create(backend_, name, options));
}

Blob Store::open(std::string_view name) const { return Blob(store::BlobState::open(backend_, name)); }

bool Store::exists(std::string_view name) const { return backend_->exists("catalog/" + std::string(name)); }

std::vector<BlobInfo> Store::list() const {
  std::vector<BlobInfo> blobs;
  for (const std::string& name : blob_names(*backend_)) {
    const auto blob = store::BlobState::open(backend_, name);
    const auto map = blob->map_at(kLatest);
    blobs.push_back({name, map->size_bytes(), blob->marks().keep_from, map->version(), blob->grows()});
  }
  return blobs;
}

CheckReport Store::check() const {
  CheckReport report;
  for (const std::string& name : blob_names(*backend_)) {
    try {
      store::check_blob(*store::BlobState::open(backend_, name), report);
    } catch (const Error& error) {
      report.problems.push_back(error.what());
    }
  }
  return report;
}

GcReport Store::gc(const GcOptions& options) {
  if (options.keep_last == 0) {
    throw Error(ErrorCode::invalid_argument,
                backend_->url() + ": gc was asked to keep no version, expected at least 1");
  }
  if (options.lease.count() < 0) {
    throw Error(ErrorCode::invalid_argument, backend_->url() + ": the lease of a gc cannot be negative");
  }
  GcReport report;
  for (const std::string& name : blob_names(*backend_)) {
    store::collect_blob(*store::BlobState::open(backend_, name), options, report);
  }
  report.bytes_freed += backend_->reclaim(options.lease);
  return report;
}

void Store::sync() { backend_->sync(); }

void Store::export_file(std::string_view name, std::uint64_t version, const std::string& path) const {
  constexpr std::uint64_t kPieceBytes = 8 << 20;
  const Snapshot snapshot = open(name).snapshot(version);
  NewFile file(path);
  std::vector<std::byte> buffer(std::min(kPieceBytes, snapshot.size_bytes()));
  for (std::uint64_t offset = 0; offset < snapshot.size_bytes();) {
    const Bytes piece = Bytes(buffer).first(std::min<std::uint64_t>(buffer.size(), snapshot.size_bytes() - offset));
    const ReadRegion region{offset, piece};
    snapshot.read(std::span(&region, 1));
    file.write(piece);
    offset += piece.size();
  }
  file.finish();
}

}  // namespace penstock
