#include "penstock/file.hpp"

#include <chrono>
#include <exception>
#include <functional>
#include <future>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "file/state.hpp"
#include "penstock/error.hpp"
#include "store/backend.hpp"

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
    operation_->bytes = 0;  // an Error is thrown once
    operation_->bytes = operation_->running.get();
  }
  return *operation_->bytes;
}

namespace {

void open_blob(File::State& state, bool create) {
  const auto [store_url, blob_name] = store::split_blob_url(state.url);
  state.store.emplace(store_url, StoreOptions{.create = create, .durable = state.options.durable});
  if (create && state.options.exclusive) {
    state.blob = state.store->create(blob_name, {.grows = true});
    return;
  }
  if (create && !state.store->exists(blob_name)) {
    try {
      state.blob = state.store->create(blob_name, {.grows = true});
      return;
    } catch (const Error& error) {
      // Another process made it first.
      if (error.code() != ErrorCode::exists) throw;
    }
  }
  state.blob = state.store->open(blob_name);
}

struct Flag {
  bool FileOptions::*value;
  const char* name;
};
constexpr Flag kFlags[] = {{&FileOptions::read, "read"},
                           {&FileOptions::write, "write"},
                           {&FileOptions::create, "create"},
                           {&FileOptions::exclusive, "exclusive"},
                           {&FileOptions::append, "append"},
                           {&FileOptions::durable, "durable"},
                           {&FileOptions::delete_on_close, "delete_on_close"}};

std::uint64_t bits(const FileOptions& options) {
  std::uint64_t set = 0;
  for (std::size_t i = 0; i < std::size(kFlags); ++i) set |= std::uint64_t{options.*kFlags[i].value} << i;
  return set;
}

std::string names(std::uint64_t set) {
  std::string text;
  for (std::size_t i = 0; i < std::size(kFlags); ++i) {
    if ((set >> i & 1) != 0) text += (text.empty() ? "" : "+") + std::string(kFlags[i].name);
  }
  return text.empty() ? "none" : text;
}

void check_options(const FileOptions& options, std::string_view url) {
  if (options.read || options.write) return;
  throw Error(ErrorCode::invalid_argument,
              std::string(url) +
                  " would be opened neither for reading nor for writing; set FileOptions::read or FileOptions::write");
}

FileRequest start(std::function<std::uint64_t()> action) {
  auto operation = std::make_shared<FileRequest::Operation>();
  operation->running = std::async(std::launch::async, std::move(action));
  return FileRequest(std::move(operation));
}

/// Starts a collective access with the current view. It runs after those that were started before.
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
    // Only the application's thread may call MPI, so the access runs now.
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
  // Check the arguments before anything is created.
  state->comm = comm;
  state->agree_on(bits(options), "mode", names);
  state->comm = comm.duplicate();
  // One rank creates, the others open.
  state->comm->agree([&] {
    check_options(options, url);
    if (comm.rank() == 0) open_blob(*state, options.create);
  });
  state->comm->agree([&] {
    if (comm.rank() != 0) open_blob(*state, false);
    if (options.append) state->position = state->blob->size_bytes();
  });
  // Ranks may see different ends of the file; rank 0's counts.
  state->open_shared(state->gather_numbers(state->position).front());
  return File(std::move(state));
}

File File::open(std::string_view url, const FileOptions& options) {
  auto state = std::make_shared<State>();
  state->url = url;
  state->options = options;
  check_options(options, url);
  open_blob(*state, options.create);
  if (options.append) state->position = state->blob->size_bytes();
  state->open_shared(state->position);
  return File(std::move(state));
}

void File::close() { close_after({}); }

void File::close_after(const std::function<void()>& at_rank_0) {
  state_->agree([] {});
  std::exception_ptr failure;
  if (at_rank_0) {
    try {
      state_->agree([&] {
        if (state_->rank() == 0) at_rank_0();
      });
    } catch (const Error&) {
      failure = std::current_exception();
    }
  }
  if (state_->rank() == 0) state_->shared.clean();
  if (state_->options.delete_on_close) state_->remove_together();
  state_->shared = {};
  state_->comm.reset();
  state_->blob.reset();
  state_->store.reset();
  state_->pinned.reset();
  if (failure) std::rethrow_exception(failure);
}

void File::fail_next(const std::string& message) noexcept {
  state_->settle();
  if (state_->comm) state_->comm->fail_next(message);
}

void File::set_view(FileView view) {
  std::optional<file::ViewMap> map;
  state_->agree([&] { map.emplace(std::move(view)); });
  state_->map = std::move(*map);
  state_->position = 0;
  state_->restart_shared(0);
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
  // The access uses the current view, so compute its regions before the call returns.
  auto regions = state_->regions_to_write(offset_etypes, data);
  return start([blob = *state_->blob, regions = std::move(regions), size = data.size()]() mutable {
    blob.write(regions);
    return std::uint64_t{size};
  });
}

FileRequest File::start_read_at(std::uint64_t offset_etypes, Bytes data) const {
  state_->check_open();
  auto frozen = std::make_shared<State>(*state_);
  frozen->comm.reset();  // the last reference to a communicator must not be dropped on a background thread
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
  return start_together(*state_,
                        [offset_etypes, data](State& state) { return state.read_together(offset_etypes, data); });
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

std::uint64_t File::write_shared(ConstBytes data) { return write_at(state_->claim_shared(data.size()), data); }

std::uint64_t File::read_shared(Bytes data) { return read_at(state_->claim_shared(data.size()), data); }

FileRequest File::start_write_shared(ConstBytes data) {
  return start_write_at(state_->claim_shared(data.size()), data);
}

FileRequest File::start_read_shared(Bytes data) { return start_read_at(state_->claim_shared(data.size()), data); }

std::uint64_t File::write_ordered(ConstBytes data) { return state_->commit_together(state_->order(data.size()), data); }

std::uint64_t File::read_ordered(Bytes data) { return state_->read_together(state_->order(data.size()), data); }

FileRequest File::start_write_ordered(ConstBytes data) { return start_write_at_all(state_->order(data.size()), data); }

FileRequest File::start_read_ordered(Bytes data) { return start_read_at_all(state_->order(data.size()), data); }

void File::seek_shared(std::int64_t offset_etypes, Whence whence) {
  state_->agree_on(static_cast<std::uint64_t>(offset_etypes), "offset of seek_shared",
                   [](std::uint64_t offset) { return std::to_string(static_cast<std::int64_t>(offset)); });
  state_->agree_on(static_cast<std::uint64_t>(whence), "whence of seek_shared");
  std::uint64_t target = 0;
  const std::uint64_t current = whence == Whence::current ? state_->agreed_shared([] {}) : 0;
  state_->agree([&] { target = state_->sought(offset_etypes, whence, current); });
  // Ranks may see different ends of the file; rank 0's counts.
  state_->restart_shared(state_->gather_numbers(target).front());
}

std::uint64_t File::position_shared() const {
  state_->check_open();
  return state_->shared.value();
}

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
  state_->agree_on(size_bytes, "size of set_size");
  state_->agree([&] {
    state_->check_mode(state_->options.write && !state_->pinned, "writing");
    if (state_->rank() == 0) version = state_->blob->resize(size_bytes);
  });
  return state_->gather_numbers(version).front();
}

std::uint64_t File::preallocate(std::uint64_t size_bytes) {
  std::uint64_t version = 0;
  state_->agree_on(size_bytes, "size of preallocate");
  state_->agree([&] {
    state_->check_mode(state_->options.write && !state_->pinned, "writing");
    if (state_->rank() != 0) return;
    const Snapshot newest = state_->newest();
    version = newest.size_bytes() < size_bytes ? state_->blob->resize(size_bytes) : newest.version();
  });
  return state_->gather_numbers(version).front();
}

void File::set_atomicity(bool atomic) {
  state_->agree_on(atomic ? 1 : 0, "atomicity");
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
  state->options.delete_on_close = false;
  state->pinned = state_->blob->snapshot(version);
  state->open_shared(state_->shared.value());
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
