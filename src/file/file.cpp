#include "penstock/file.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <future>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "file/view.hpp"
#include "penstock/error.hpp"

namespace penstock {

struct FileRequest::Operation {
  std::shared_future<std::uint64_t> running;
  std::mutex mutex;
  std::optional<std::uint64_t> bytes;
};

bool FileRequest::test() {
  if (!operation_) return true;
  const std::lock_guard lock(operation_->mutex);
  return operation_->bytes || operation_->running.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

std::uint64_t FileRequest::wait() {
  if (!operation_) return 0;
  const std::lock_guard lock(operation_->mutex);
  if (!operation_->bytes) {
    operation_->bytes = 0;  // an Error is delivered once
    operation_->bytes = operation_->running.get();
  }
  return *operation_->bytes;
}

struct File::State {
  std::optional<Comm> comm;
  std::string url;
  FileOptions options;
  std::optional<Store> store;
  std::optional<Blob> blob;
  std::optional<Snapshot> pinned;
  file::ViewMap map{FileView{}};
  std::uint64_t position = 0;  ///< of the individual pointer, in etypes of the view
  std::uint64_t shared_position = 0;
  bool atomic = false;
  std::shared_future<std::uint64_t> collective;  ///< the collective access that was started last

  /// Collective accesses run one after another, in the order of the calls, as every rank's do.
  void settle() const {
    if (collective.valid()) collective.wait();
  }

  std::uint64_t etype_bytes() const { return map.view().etype_bytes; }

  /// On every rank, or for a file of one process just so.
  void agree(const std::function<void()>& action) {
    settle();
    check_open();
    if (comm) {
      comm->agree(action);
    } else {
      action();
    }
  }

  /// `mine` of all ranks, by rank.
  std::vector<std::uint64_t> gather_numbers(std::uint64_t mine) {
    std::vector<std::uint64_t> all(comm ? static_cast<std::size_t>(comm->size()) : 1, mine);
    if (comm) comm->allgather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
    return all;
  }

  int rank() const { return comm ? comm->rank() : 0; }

  void check_open() const {
    if (!blob) throw Error(ErrorCode::invalid_argument, url + " is closed; open it again");
  }

  void check_mode(bool allowed, const char* what) const {
    check_open();
    if (allowed) return;
    throw Error(ErrorCode::invalid_argument, url + (pinned ? " at a pinned version" : "") +
                                                 " was not opened for " + what + "; open it in another mode");
  }

  void check_multiple(std::uint64_t size_bytes) const {
    if (size_bytes % etype_bytes() == 0) return;
    throw Error(ErrorCode::invalid_argument, url + ": an access of " + std::to_string(size_bytes) +
                                                 " bytes, expected a multiple of the etype's " +
                                                 std::to_string(etype_bytes()));
  }

  std::vector<WriteRegion> regions_to_write(std::uint64_t offset_etypes, ConstBytes data) const {
    check_mode(options.write && !pinned, "writing");
    check_multiple(data.size());
    std::vector<WriteRegion> regions;
    std::size_t used = 0;
    map.visit(start_byte(offset_etypes), data.size(), [&](std::uint64_t offset, std::uint64_t size) {
      regions.push_back({offset, data.subspan(used, size)});
      used += size;
    });
    return regions;
  }

  std::uint64_t start_byte(std::uint64_t offset_etypes) const {
    if (offset_etypes > (std::uint64_t{1} << 63) / etype_bytes()) {
      throw Error(ErrorCode::invalid_argument, url + ": the offset " + std::to_string(offset_etypes) +
                                                   " is beyond 2^63 bytes");
    }
    return offset_etypes * etype_bytes();
  }

  std::uint64_t read_from(const Snapshot& snapshot, std::uint64_t offset_etypes, Bytes data) const {
    check_mode(options.read, "reading");
    check_multiple(data.size());
    const std::uint64_t start = start_byte(offset_etypes);
    const std::uint64_t shown = map.data_before(snapshot.size_bytes());
    data = data.first(std::min<std::uint64_t>(data.size(), shown > start ? shown - start : 0));
    std::vector<ReadRegion> regions;
    std::size_t used = 0;
    map.visit(start, data.size(), [&](std::uint64_t offset, std::uint64_t size) {
      regions.push_back({offset, data.subspan(used, size)});
      used += size;
    });
    snapshot.read(regions);
    return data.size();
  }

  Snapshot newest() const {
    check_open();
    return pinned ? *pinned : blob->snapshot();
  }

  /// The regions of all ranks become one version, or none at all.
  std::uint64_t commit_together(std::uint64_t offset_etypes, ConstBytes data) {
    check_open();
    if (!comm) return blob->write(regions_to_write(offset_etypes, data));
    for (;;) {
      StagedWrite mine;
      try {
        agree([&] { mine = blob->stage(regions_to_write(offset_etypes, data)); });
      } catch (const Error&) {
        if (!mine.encoded.empty()) blob->discard(mine);
        throw;
      }
      const std::vector<StagedWrite> parts = gather_parts(mine);
      std::uint64_t version = 0;
      agree([&] {
        if (rank() == 0) version = blob->commit(parts).value_or(0);
      });
      comm->run({.kind = CollectiveKind::bcast, .count = sizeof version}, {},
                std::as_writable_bytes(std::span(&version, 1)));
      // No version: a gc took this write for dead, because it was slower than the lease. Nothing is lost by repeating.
      if (version > 0) return version;
    }
  }

  /// The staged writes of all ranks, on rank 0.
  std::vector<StagedWrite> gather_parts(const StagedWrite& mine) {
    const std::vector<std::uint64_t> sizes = gather_numbers(mine.encoded.size());
    const std::size_t slot = *std::max_element(sizes.begin(), sizes.end());
    std::vector<std::byte> padded = mine.encoded;
    padded.resize(slot);
    std::vector<std::byte> gathered(rank() == 0 ? slot * sizes.size() : 0);
    comm->run({.kind = CollectiveKind::gather, .count = slot}, padded, gathered);
    std::vector<StagedWrite> parts;
    for (std::size_t i = 0; rank() == 0 && i < sizes.size(); ++i) {
      const auto start = gathered.begin() + static_cast<std::ptrdiff_t>(i * slot);
      parts.push_back({{start, start + static_cast<std::ptrdiff_t>(sizes[i])}});
    }
    return parts;
  }

  std::uint64_t read_together(std::uint64_t offset_etypes, Bytes data) {
    check_open();
    if (!comm || pinned) return read_from(newest(), offset_etypes, data);
    std::uint64_t mine = 0;
    std::uint64_t bytes = 0;
    agree([&] { mine = blob->latest(); });
    const std::vector<std::uint64_t> all = gather_numbers(mine);
    agree([&] { bytes = read_from(blob->snapshot(*std::max_element(all.begin(), all.end())), offset_etypes, data); });
    return bytes;
  }

  /// Where this rank's data begins when all ranks put theirs one after another, and the sum of all.
  std::pair<std::uint64_t, std::uint64_t> order(std::uint64_t size_bytes) {
    agree([&] { check_multiple(size_bytes); });
    const std::vector<std::uint64_t> sizes = gather_numbers(size_bytes / etype_bytes());
    std::uint64_t before = 0;
    std::uint64_t total = 0;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      if (static_cast<int>(i) < rank()) before += sizes[i];
      total += sizes[i];
    }
    return {before, total};
  }

  std::uint64_t sought(std::int64_t offset, Whence whence, std::uint64_t current) const {
    std::uint64_t origin = 0;
    if (whence == Whence::current) origin = current;
    if (whence == Whence::end) origin = map.data_before(newest().size_bytes()) / etype_bytes();
    const std::uint64_t target = origin + static_cast<std::uint64_t>(offset);
    if (offset < 0 ? static_cast<std::uint64_t>(-(offset + 1)) >= origin : target < origin) {
      throw Error(ErrorCode::invalid_argument, url + ": cannot seek by " + std::to_string(offset) + " from " +
                                                   std::to_string(origin) + ", that is outside of the file");
    }
    return target;
  }
};

namespace {

struct Place {
  std::string store;
  std::string blob;
};

Place split(std::string_view url) {
  const std::size_t slash = url.find_last_of('/');
  if (slash == std::string_view::npos || slash + 1 == url.size()) {
    throw Error(ErrorCode::invalid_argument, "'" + std::string(url) + "' names no file: expected the URL of a store, '/' "
                                             "and a name, for example file:///scratch/run7/field");
  }
  return {std::string(url.substr(0, slash)), std::string(url.substr(slash + 1))};
}

void open_blob(File::State& state, bool create) {
  const Place place = split(state.url);
  state.store.emplace(place.store, StoreOptions{.create = create, .durable = state.options.durable});
  if (create && state.options.exclusive) {
    state.blob = state.store->create(place.blob, {.grows = true});
    return;
  }
  if (create && !state.store->exists(place.blob)) {
    try {
      state.blob = state.store->create(place.blob, {.grows = true});
      return;
    } catch (const Error& error) {
      // Somebody else was faster, which is just as well.
      if (error.code() != ErrorCode::exists) throw;
    }
  }
  state.blob = state.store->open(place.blob);
}

void check_options(const FileOptions& options, std::string_view url) {
  if (options.read || options.write) return;
  throw Error(ErrorCode::invalid_argument, std::string(url) + " would be opened neither for reading nor for writing");
}

FileRequest start(std::function<std::uint64_t()> action) {
  auto operation = std::make_shared<FileRequest::Operation>();
  operation->running = std::async(std::launch::async, std::move(action));
  return FileRequest(std::move(operation));
}

/// Starts a collective access with the view of this moment, after those that were started before.
FileRequest start_together(File::State& state, std::function<std::uint64_t(File::State&)> action) {
  auto frozen = std::make_shared<File::State>(state);
  auto run = [frozen, action = std::move(action)] {
    frozen->settle();
    frozen->collective = {};
    return action(*frozen);
  };
  auto operation = std::make_shared<FileRequest::Operation>();
  if (!state.comm || state.comm->any_thread()) {
    operation->running = std::async(std::launch::async, std::move(run));
  } else {
    // MPI belongs to the application's thread: the access takes place here and now.
    std::packaged_task<std::uint64_t()> task(std::move(run));
    operation->running = task.get_future().share();
    task();
  }
  state.collective = operation->running;
  return FileRequest(std::move(operation));
}

}  // namespace

File File::open(const Comm& comm, std::string_view url, const FileOptions& options) {
  auto state = std::make_shared<State>();
  state->url = url;
  state->options = options;
  state->comm = comm.duplicate();
  // One rank creates, the others find.
  state->comm->agree([&] {
    check_options(options, url);
    if (comm.rank() == 0) open_blob(*state, options.create);
  });
  state->comm->agree([&] {
    if (comm.rank() != 0) open_blob(*state, false);
    if (options.append) state->position = state->shared_position = state->blob->size_bytes();
  });
  return File(std::move(state));
}

File File::open(std::string_view url, const FileOptions& options) {
  auto state = std::make_shared<State>();
  state->url = url;
  state->options = options;
  check_options(options, url);
  open_blob(*state, options.create);
  if (options.append) state->position = state->shared_position = state->blob->size_bytes();
  return File(std::move(state));
}

void File::close() {
  state_->agree([] {});
  state_->comm.reset();
  state_->blob.reset();
  state_->store.reset();
  state_->pinned.reset();
}

void File::set_view(FileView view) {
  std::optional<file::ViewMap> map;
  state_->agree([&] { map.emplace(std::move(view)); });
  state_->map = std::move(*map);
  state_->position = state_->shared_position = 0;
}

const FileView& File::view() const { return state_->map.view(); }

std::uint64_t File::write_at(std::uint64_t offset_etypes, ConstBytes data) {
  state_->check_open();
  return state_->blob->write(state_->regions_to_write(offset_etypes, data));
}

std::uint64_t File::read_at(std::uint64_t offset_etypes, Bytes data) const {
  return state_->read_from(state_->newest(), offset_etypes, data);
}

FileRequest File::start_write_at(std::uint64_t offset_etypes, ConstBytes data) {
  // The view of this moment counts, so the regions are found before the call returns.
  auto regions = state_->regions_to_write(offset_etypes, data);
  return start([blob = *state_->blob, regions = std::move(regions), size = data.size()]() mutable {
    blob.write(regions);
    return std::uint64_t{size};
  });
}

FileRequest File::start_read_at(std::uint64_t offset_etypes, Bytes data) const {
  state_->check_open();
  auto frozen = std::make_shared<State>(*state_);
  frozen->comm.reset();  // a communicator must not end on a thread of ours
  return start([frozen, offset_etypes, data] { return frozen->read_from(frozen->newest(), offset_etypes, data); });
}

std::uint64_t File::write_at_all(std::uint64_t offset_etypes, ConstBytes data) {
  return state_->commit_together(offset_etypes, data);
}

std::uint64_t File::read_at_all(std::uint64_t offset_etypes, Bytes data) const {
  return state_->read_together(offset_etypes, data);
}

FileRequest File::start_write_at_all(std::uint64_t offset_etypes, ConstBytes data) {
  return start_together(*state_, [offset_etypes, data](State& state) {
    state.commit_together(offset_etypes, data);
    return std::uint64_t{data.size()};
  });
}

FileRequest File::start_read_at_all(std::uint64_t offset_etypes, Bytes data) const {
  return start_together(*state_, [offset_etypes, data](State& state) { return state.read_together(offset_etypes, data); });
}

std::uint64_t File::write(ConstBytes data) {
  const std::uint64_t version = write_at(state_->position, data);
  state_->position += data.size() / state_->etype_bytes();
  return version;
}

std::uint64_t File::read(Bytes data) {
  const std::uint64_t bytes = read_at(state_->position, data);
  state_->position += bytes / state_->etype_bytes();
  return bytes;
}

std::uint64_t File::write_all(ConstBytes data) {
  const std::uint64_t version = write_at_all(state_->position, data);
  state_->position += data.size() / state_->etype_bytes();
  return version;
}

std::uint64_t File::read_all(Bytes data) {
  const std::uint64_t bytes = read_at_all(state_->position, data);
  state_->position += bytes / state_->etype_bytes();
  return bytes;
}

FileRequest File::start_write(ConstBytes data) {
  FileRequest request = start_write_at(state_->position, data);
  state_->position += data.size() / state_->etype_bytes();
  return request;
}

FileRequest File::start_write_all(ConstBytes data) {
  FileRequest request = start_write_at_all(state_->position, data);
  state_->position += data.size() / state_->etype_bytes();
  return request;
}

FileRequest File::start_read_all(Bytes data) {
  FileRequest request = start_read_at_all(state_->position, data);
  state_->position += data.size() / state_->etype_bytes();
  return request;
}

FileRequest File::start_read(Bytes data) {
  FileRequest request = start_read_at(state_->position, data);
  state_->position += data.size() / state_->etype_bytes();
  return request;
}

std::uint64_t File::write_ordered(ConstBytes data) {
  const auto [before, total] = state_->order(data.size());
  const std::uint64_t version = state_->commit_together(state_->shared_position + before, data);
  state_->shared_position += total;
  return version;
}

std::uint64_t File::read_ordered(Bytes data) {
  const auto [before, total] = state_->order(data.size());
  const std::uint64_t bytes = state_->read_together(state_->shared_position + before, data);
  state_->shared_position += total;
  return bytes;
}

void File::seek_shared(std::int64_t offset_etypes, Whence whence) {
  std::uint64_t target = 0;
  state_->agree([&] { target = state_->sought(offset_etypes, whence, state_->shared_position); });
  // Ranks that look at different moments may see different ends of the file.
  state_->shared_position = state_->gather_numbers(target).front();
}

std::uint64_t File::position_shared() const { return state_->shared_position; }

void File::seek(std::int64_t offset_etypes, Whence whence) {
  state_->position = state_->sought(offset_etypes, whence, state_->position);
}

std::uint64_t File::position() const { return state_->position; }

std::uint64_t File::byte_offset(std::uint64_t offset_etypes) const {
  return state_->map.file_offset(state_->start_byte(offset_etypes));
}

std::uint64_t File::size_bytes() const { return state_->newest().size_bytes(); }

std::uint64_t File::set_size(std::uint64_t size_bytes) {
  std::uint64_t version = 0;
  state_->agree([&] {
    state_->check_mode(state_->options.write && !state_->pinned, "writing");
    if (state_->rank() == 0) version = state_->blob->resize(size_bytes);
  });
  return state_->gather_numbers(version).front();
}

std::uint64_t File::preallocate(std::uint64_t size_bytes) {
  std::uint64_t version = 0;
  state_->agree([&] {
    state_->check_mode(state_->options.write && !state_->pinned, "writing");
    if (state_->rank() != 0) return;
    const Snapshot newest = state_->newest();
    version = newest.size_bytes() < size_bytes ? state_->blob->resize(size_bytes) : newest.version();
  });
  return state_->gather_numbers(version).front();
}

void File::set_atomicity(bool atomic) {
  state_->agree([&] { state_->atomic = atomic; });
}

bool File::atomicity() const { return state_->atomic; }

void File::sync() {
  state_->agree([&] { state_->store->sync(); });
}

File File::snapshot(std::uint64_t version) const {
  state_->check_open();
  auto state = std::make_shared<State>(*state_);
  state->comm.reset();
  state->options.write = false;
  state->pinned = state_->blob->snapshot(version);
  return File(std::move(state));
}

std::uint64_t File::version() const {
  state_->check_open();
  return state_->pinned ? state_->pinned->version() : state_->blob->latest();
}

const Blob& File::blob() const {
  state_->check_open();
  return *state_->blob;
}

}  // namespace penstock
