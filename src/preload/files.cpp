#include "preload/files.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <shared_mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "penstock/error.hpp"
#include "penstock/mpi.hpp"
#include "preload/communicators.hpp"
#include "preload/report.hpp"
#include "preload/requests.hpp"
#include "preload/settings.hpp"
#include "preload/types.hpp"

namespace penstock::preload {
namespace {

/// Never destroyed: MPI_Finalize may run in an exit handler.
struct OpenFiles {
  std::shared_mutex mutex;
  std::map<MPI_File, std::shared_ptr<StoredFile>> by_handle;
  std::atomic<std::size_t> count{0};

  void put(const std::shared_ptr<StoredFile>& stored) {
    const std::lock_guard lock(mutex);
    by_handle[stored->handle] = stored;
    count.store(by_handle.size(), std::memory_order_release);
  }
  void drop(MPI_File handle) {
    const std::lock_guard lock(mutex);
    by_handle.erase(handle);
    count.store(by_handle.size(), std::memory_order_release);
  }
};

OpenFiles& open_files() {
  static auto* const made = new OpenFiles;
  return *made;
}

void fill_status(MPI_Status* status, std::uint64_t bytes) {
  if (status == MPI_STATUS_IGNORE) return;
  PMPI_Status_set_elements_x(status, MPI_BYTE, static_cast<MPI_Count>(bytes));
  PMPI_Status_set_cancelled(status, 0);
}

bool is_predefined(MPI_Datatype type) {
  int integers = 0;
  int addresses = 0;
  int types = 0;
  int combiner = MPI_COMBINER_NAMED;
  PMPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner);
  return combiner == MPI_COMBINER_NAMED || combiner == MPI_COMBINER_F90_REAL || combiner == MPI_COMBINER_F90_COMPLEX ||
         combiner == MPI_COMBINER_F90_INTEGER;
}

MPI_Datatype kept_type(MPI_Datatype type) {
  if (is_predefined(type)) return type;
  MPI_Datatype copy = MPI_DATATYPE_NULL;
  if (PMPI_Type_dup(type, &copy) != MPI_SUCCESS) throw FileError(MPI_ERR_TYPE, "cannot duplicate a datatype");
  return copy;
}

void free_kept_type(MPI_Datatype& type) {
  if (type != MPI_DATATYPE_NULL && !is_predefined(type)) PMPI_Type_free(&type);
  type = MPI_BYTE;
}

/// The least of each value over the ranks.
template <std::size_t N>
void least_of_all(std::array<int, N>& values, MPI_Comm comm, int ranks) {
  if (ranks > 1) PMPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(N), MPI_INT, MPI_MIN, comm);
}

void broadcast_text(std::string& text, MPI_Comm comm) {
  int length = static_cast<int>(text.size());
  PMPI_Bcast(&length, 1, MPI_INT, 0, comm);
  text.resize(static_cast<std::size_t>(length));
  PMPI_Bcast(text.data(), length, MPI_CHAR, 0, comm);
}

/// Rank 0's choice and what it found, on all ranks.
void broadcast_prepared(FileChoice& choice, PreparedFile& prepared, MPI_Comm comm, int ranks) {
  if (ranks == 1) return;
  std::array<int, 3> numbers{static_cast<int>(prepared.outcome), prepared.error_class, prepared.is_unusable ? 1 : 0};
  PMPI_Bcast(numbers.data(), static_cast<int>(numbers.size()), MPI_INT, 0, comm);
  prepared.outcome = static_cast<PreparedFile::Outcome>(numbers[0]);
  prepared.error_class = numbers[1];
  prepared.is_unusable = numbers[2] != 0;
  for (std::string* text : {&choice.url, &choice.plain_path, &choice.export_path, &prepared.text})
    broadcast_text(*text, comm);
}

bool is_amode_right(int amode) {
  const int ways =
      (amode & MPI_MODE_RDONLY ? 1 : 0) + (amode & MPI_MODE_WRONLY ? 1 : 0) + (amode & MPI_MODE_RDWR ? 1 : 0);
  return ways == 1 && ((amode & MPI_MODE_RDONLY) == 0 || (amode & (MPI_MODE_CREATE | MPI_MODE_EXCL)) == 0);
}

MPI_File open_carrier() {
  MPI_File carrier = MPI_FILE_NULL;
  if (PMPI_File_open(MPI_COMM_SELF, "/dev/null", MPI_MODE_RDONLY, MPI_INFO_NULL, &carrier) != MPI_SUCCESS)
    return MPI_FILE_NULL;
  return carrier;
}

std::shared_ptr<StoredFile> open_stored(Communicator& on, const FileChoice& choice, int amode) {
  const FileOptions how{.read = (amode & MPI_MODE_WRONLY) == 0,
                        .write = (amode & MPI_MODE_RDONLY) == 0,
                        .append = (amode & MPI_MODE_APPEND) != 0,
                        .durable = false,
                        .delete_on_close = (amode & MPI_MODE_DELETE_ON_CLOSE) != 0};
  const OwnCall own;
  auto stored = std::make_shared<StoredFile>(on.ranks == 1 ? File::open(choice.url, how)
                                                           : File::open(*on.penstock, choice.url, how));
  stored->choice = choice;
  stored->rank = on.rank;
  stored->ranks = on.ranks;
  stored->amode = amode;
  stored->any_thread = on.ranks == 1 || on.penstock->any_thread();
  stored->version_at_open = stored->file.version();
  PMPI_Comm_group(on.handle, &stored->group);
  return stored;
}

int open_natively(const Communicator& on, const char* name, const std::string& why, const NativeOpen& native) {
  add_file_to_report(
      {.path = without_prefix(name), .ranks = on.ranks, .why_native = why, .opens = on.rank == 0 ? 1U : 0U});
  return native(without_prefix(name));
}

void say_native(const Communicator& on, const FileChoice& choice, const std::string& why) {
  if (on.rank != 0) return;
  std::fprintf(stderr, "penstock: %s: %s; MPI opens the file itself\n", choice.plain_path.c_str(), why.c_str());
}

}  // namespace

/// The items of an access as contiguous bytes.
class AccessItems {
 public:
  explicit AccessItems(const Access& access)
      : items_(const_cast<void*>(access.buffer)), count_(static_cast<std::uint64_t>(access.count)) {
    if (access.count < 0) throw FileError(MPI_ERR_COUNT, "the count is " + std::to_string(access.count) + ", below 0");
    if (access.type == MPI_DATATYPE_NULL) throw FileError(MPI_ERR_TYPE, "the datatype is MPI_DATATYPE_NULL");
    const NamedType* named = named_type(access.type);
    if (named != nullptr && named->bytes > 0) {
      bytes_ = count_ * named->bytes;
      data_ = static_cast<std::byte*>(items_);
    } else {
      type_ = make_datatype(access.type);
      bytes_ = count_ * type_.size_bytes();
      if (type_.is_contiguous() || (count_ == 1 && type_.pieces().size() == 1))
        data_ = reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(items_) +
                                             static_cast<std::uintptr_t>(type_.begin_bytes()));
      else
        packed_ = std::make_unique_for_overwrite<std::byte[]>(bytes_);
    }
    if (bytes_ > 0 && data_ == nullptr && packed_ == nullptr)
      throw FileError(MPI_ERR_BUFFER, "the buffer is a null pointer");
    if (packed_ != nullptr && access.writes) type_.pack(items_, count_, {packed_.get(), bytes_});
  }

  std::uint64_t bytes() const { return bytes_; }
  Bytes data() const { return {packed_ != nullptr ? packed_.get() : data_, bytes_}; }

  /// Gives the program the bytes that were read. Its buffer keeps what lies behind them.
  void received(std::uint64_t bytes) const {
    if (packed_ == nullptr || bytes == 0) return;
    if (bytes == bytes_) return type_.unpack({packed_.get(), bytes_}, items_, count_);
    std::vector<std::byte> all(bytes_);
    type_.pack(items_, count_, all);
    std::memcpy(all.data(), packed_.get(), bytes);
    type_.unpack(all, items_, count_);
  }

 private:
  void* items_;
  std::uint64_t count_;
  Datatype type_{};
  std::uint64_t bytes_ = 0;
  std::byte* data_ = nullptr;
  std::unique_ptr<std::byte[]> packed_{};
};

namespace {

std::uint64_t checked_offset(const Access& access) {
  if (access.place == Place::at && access.offset < 0)
    throw FileError(MPI_ERR_ARG, "the offset is " + std::to_string(access.offset) + ", below 0");
  return static_cast<std::uint64_t>(access.offset);
}

/// Moves the individual pointer behind the access, and returns where it was.
std::uint64_t claim(StoredFile& stored, std::uint64_t bytes) {
  const std::lock_guard lock(stored.pointers);
  const std::uint64_t before = stored.file.position();
  stored.file.seek(static_cast<std::int64_t>(before + bytes / stored.file.view().etype_bytes), Whence::set);
  return before;
}

std::uint64_t read_alone(StoredFile& stored, const Access& access, std::uint64_t offset, Bytes data) {
  if (access.place == Place::at) return stored.file.read_at(offset, data);
  const std::lock_guard lock(stored.pointers);
  return access.place == Place::individual ? stored.file.read(data) : stored.file.read_shared(data);
}

void write_alone(StoredFile& stored, const Access& access, std::uint64_t offset, ConstBytes data) {
  if (data.empty()) return;  // no version of its own
  if (access.place == Place::shared) {
    const std::lock_guard lock(stored.pointers);
    stored.file.write_shared(data);
    return;
  }
  stored.file.write_at(access.place == Place::individual ? claim(stored, data.size()) : offset, data);
}

std::uint64_t move_together(StoredFile& stored, const Access& access, std::uint64_t offset, const AccessItems& items) {
  File& file = stored.file;
  if (access.place == Place::shared) {
    if (!access.writes) return file.read_ordered(items.data());
    file.write_ordered(items.data());
    return items.bytes();
  }
  if (access.writes) {
    file.write_at_all(access.place == Place::individual ? claim(stored, items.bytes()) : offset, items.data());
    return items.bytes();
  }
  return access.place == Place::individual ? file.read_all(items.data()) : file.read_at_all(offset, items.data());
}

std::uint64_t move_alone(StoredFile& stored, const Access& access, std::uint64_t offset, const AccessItems& items) {
  if (!access.writes) return read_alone(stored, access, offset, items.data());
  write_alone(stored, access, offset, items.data());
  return items.bytes();
}

void count_bytes(StoredFile& stored, const Access& access, std::uint64_t bytes) {
  (access.writes ? stored.written_bytes : stored.read_bytes).fetch_add(bytes, std::memory_order_relaxed);
}

/// Checks the arguments. Of a collective call the other ranks must not wait for this one.
std::shared_ptr<AccessItems> checked_items(StoredFile& stored, const Access& access) {
  try {
    checked_offset(access);
    return std::make_shared<AccessItems>(access);
  } catch (const std::exception& error) {
    if (access.together) stored.file.fail_next(error.what());
    throw;
  }
}

FileRequest start_together(StoredFile& stored, const Access& access, const AccessItems& items) {
  File& file = stored.file;
  if (access.place == Place::shared)
    return access.writes ? file.start_write_ordered(items.data()) : file.start_read_ordered(items.data());
  const std::uint64_t offset =
      access.place == Place::individual ? claim(stored, items.bytes()) : static_cast<std::uint64_t>(access.offset);
  return access.writes ? file.start_write_at_all(offset, items.data()) : file.start_read_at_all(offset, items.data());
}

FileRequest start_alone(StoredFile& stored, const Access& access, const AccessItems& items) {
  File& file = stored.file;
  if (access.writes && items.bytes() == 0) return {};
  if (access.place == Place::shared) {
    const std::lock_guard lock(stored.pointers);
    return access.writes ? file.start_write_shared(items.data()) : file.start_read_shared(items.data());
  }
  const std::uint64_t offset =
      access.place == Place::individual ? claim(stored, items.bytes()) : static_cast<std::uint64_t>(access.offset);
  return access.writes ? file.start_write_at(offset, items.data()) : file.start_read_at(offset, items.data());
}

class FileOperation : public Operation {
 public:
  FileOperation(std::shared_ptr<StoredFile> stored, const Access& access, std::shared_ptr<AccessItems> items,
                FileRequest request)
      : stored_(std::move(stored)), access_(access), items_(std::move(items)), request_(std::move(request)) {}
  bool test() override {
    if (!request_.test()) return false;
    wait();
    return true;
  }
  void wait() override {
    bytes_ = access_.writes ? (request_.wait(), items_->bytes()) : request_.wait();
    if (!access_.writes) items_->received(bytes_);
    count_bytes(*stored_, access_, bytes_);
  }
  std::uint64_t bytes() const override { return bytes_; }
  int code_of_failure(const std::exception& error) noexcept override { return file_code_of(error); }

 private:
  std::shared_ptr<StoredFile> stored_;
  Access access_;
  std::shared_ptr<AccessItems> items_;
  FileRequest request_;
  std::uint64_t bytes_ = 0;
};

}  // namespace

std::shared_ptr<StoredFile> stored_file(MPI_File handle) {
  OpenFiles& all = open_files();
  if (all.count.load(std::memory_order_acquire) == 0) return nullptr;
  const std::shared_lock lock(all.mutex);
  const auto at = all.by_handle.find(handle);
  return at == all.by_handle.end() ? nullptr : at->second;
}

int open_file(MPI_Comm comm, const char* name, int amode, MPI_Info info, MPI_File* handle, const NativeOpen& native) {
  if (own_depth > 0 || name == nullptr || handle == nullptr || !settings().serves) return native(name);
  Communicator* const on = communicator_of(comm);
  if (on == nullptr || on->why_native == "an inter-communicator") return native(name);
  FileChoice choice;
  try {
    choice = choose_file(name, info);
  } catch (const std::exception& error) {
    choice.why_native = error.what();
    say_native(*on, choice, choice.why_native);
  }
  // Greatest values are negated.
  std::array<int, 4> agreed{choice.is_stored ? 1 : 0, choice.is_stored ? -1 : 0, amode, -amode};
  least_of_all(agreed, comm, on->ranks);
  if (agreed[0] != -agreed[1] || (choice.is_stored && agreed[2] != -agreed[3]))
    return raise(MPI_FILE_NULL, FileError(MPI_ERR_NOT_SAME,
                                          std::string(name) + (agreed[0] != -agreed[1]
                                                                   ? " is to be stored by some ranks and not by others"
                                                                   : " is opened with different modes")));
  if (!choice.is_stored) return open_natively(*on, name, choice.why_native, native);
  if (!is_amode_right(amode)) return open_natively(*on, name, "a mode that MPI refuses", native);
  if ((amode & MPI_MODE_SEQUENTIAL) != 0) return open_natively(*on, name, "MPI_MODE_SEQUENTIAL", native);

  MPI_File carrier = open_carrier();
  std::array<int, 1> has_carrier{carrier != MPI_FILE_NULL ? 1 : 0};
  least_of_all(has_carrier, comm, on->ranks);
  PreparedFile prepared;
  if (has_carrier[0] == 0)
    prepared = {.outcome = PreparedFile::Outcome::failed,
                .error_class = MPI_ERR_IO,
                .is_unusable = true,
                .text = "MPI cannot open /dev/null on every rank, which stands for a stored file"};
  if (has_carrier[0] != 0 && on->ranks > 1 && on->penstock == nullptr) {
    if (on->why_native.empty()) prepare(*on);
    if (on->penstock == nullptr)
      prepared = {.outcome = PreparedFile::Outcome::failed,
                  .error_class = MPI_ERR_IO,
                  .is_unusable = true,
                  .text = on->why_native};
  }
  if (on->rank == 0 && prepared.outcome == PreparedFile::Outcome::stored) prepared = prepare_blob(choice, amode);
  broadcast_prepared(choice, prepared, comm, on->ranks);
  if (prepared.is_unusable && !settings().is_strict && !choice.plain_path.empty()) {
    say_native(*on, choice, prepared.text);
    prepared.outcome = PreparedFile::Outcome::native;
  }
  if (prepared.outcome != PreparedFile::Outcome::stored && carrier != MPI_FILE_NULL) PMPI_File_close(&carrier);
  if (prepared.outcome == PreparedFile::Outcome::native) return open_natively(*on, name, prepared.text, native);
  if (prepared.outcome == PreparedFile::Outcome::failed)
    return raise(MPI_FILE_NULL, FileError(prepared.error_class, prepared.text));
  try {
    const std::shared_ptr<StoredFile> stored = open_stored(*on, choice, amode);
    stored->handle = carrier;
    open_files().put(stored);
    *handle = carrier;
    return MPI_SUCCESS;
  } catch (const std::exception& error) {
    PMPI_File_close(&carrier);
    return raise(MPI_FILE_NULL, error);
  }
}

int delete_file(const char* name, MPI_Info info, const std::function<int(const char* name)>& native) {
  if (own_depth > 0 || name == nullptr || !settings().serves) return native(name);
  try {
    const FileChoice choice = choose_file(name, info);
    if (!choice.is_stored) return native(without_prefix(name));
    const bool was_stored = remove_blob(choice.url);
    const bool has_plain = !choice.plain_path.empty() && std::filesystem::exists(choice.plain_path);
    if (has_plain) return native(choice.plain_path.c_str());
    if (was_stored) return MPI_SUCCESS;
    throw FileError(MPI_ERR_NO_SUCH_FILE, choice.url + " does not exist");
  } catch (const std::exception& error) {
    return raise(MPI_FILE_NULL, error);
  }
}

int close_file(const std::shared_ptr<StoredFile>& stored, MPI_File* handle) {
  StoredFile& closed = *stored;
  std::uint64_t versions = 0;
  const int result = on_file(closed, [&] {
    if (closed.split) closed.split->request.wait();
    const bool writes = (closed.amode & MPI_MODE_RDONLY) == 0;
    const bool is_removed = (closed.amode & MPI_MODE_DELETE_ON_CLOSE) != 0;
    if (writes && !is_removed) closed.file.sync();
    closed.file.close_after([&] {
      const std::uint64_t version = closed.file.version();
      versions = version - std::min(version, closed.version_at_open);
      if (is_removed) {
        std::error_code ignored;
        if (!closed.choice.plain_path.empty()) std::filesystem::remove(closed.choice.plain_path, ignored);
        return;
      }
      if (!writes) return;
      Blob blob = closed.file.blob();
      if (version > 0) tag_version(blob, "closed-" + std::to_string(version), version);
      if (!closed.choice.export_path.empty()) export_blob(closed.choice);
    });
  });
  add_file_to_report({.path = closed.choice.plain_path.empty() ? closed.choice.url : closed.choice.plain_path,
                      .ranks = closed.ranks,
                      .is_stored = true,
                      .opens = closed.rank == 0 ? 1U : 0U,
                      .read_bytes = closed.read_bytes,
                      .written_bytes = closed.written_bytes,
                      .versions = versions});
  open_files().drop(closed.handle);
  free_kept_type(closed.etype);
  free_kept_type(closed.filetype);
  if (closed.group != MPI_GROUP_NULL) PMPI_Group_free(&closed.group);
  PMPI_File_close(&closed.handle);
  *handle = MPI_FILE_NULL;
  return result;
}

int access_file(StoredFile& stored, const Access& access, MPI_Status* status) {
  return on_file(stored, [&] {
    const auto items = checked_items(stored, access);
    const std::uint64_t offset = checked_offset(access);
    const std::uint64_t bytes =
        access.together ? move_together(stored, access, offset, *items) : move_alone(stored, access, offset, *items);
    if (!access.writes) items->received(bytes);
    count_bytes(stored, access, bytes);
    fill_status(status, bytes);
  });
}

int start_access(const std::shared_ptr<StoredFile>& stored, const Access& given, MPI_Request* request) {
  Access access = given;
  // Only where any thread may call MPI can a collective access go on beside the program. Elsewhere each rank moves its
  // own data, which MPI allows too: the call must not wait for other ranks.
  access.together = access.together && stored->any_thread && stored->ranks > 1 && has_progress_hook();
  return on_file(*stored, [&] {
    auto items = checked_items(*stored, access);
    FileRequest started =
        access.together ? start_together(*stored, access, *items) : start_alone(*stored, access, *items);
    const int result =
        make_request(std::make_unique<FileOperation>(stored, access, std::move(items), std::move(started)), request);
    if (result != MPI_SUCCESS) throw FileError(MPI_ERR_OTHER, "MPI_Grequest_start failed");
  });
}

int begin_access(StoredFile& stored, const Access& access) {
  return on_file(stored, [&] {
    if (stored.split) {
      stored.file.fail_next("a split collective has begun already");
      throw FileError(MPI_ERR_IO, "a split collective of this file has begun already; end it first");
    }
    auto items = checked_items(stored, access);
    FileRequest request = start_together(stored, access, *items);
    stored.split = StoredFile::Split{std::move(request), std::move(items), access.buffer, access};
  });
}

int end_access(StoredFile& stored, const Access& access, MPI_Status* status) {
  return on_file(stored, [&] {
    if (!stored.split || stored.split->access.writes != access.writes || stored.split->access.place != access.place ||
        stored.split->buffer != access.buffer)
      throw FileError(MPI_ERR_IO, "no split collective of this kind and buffer has begun");
    StoredFile::Split ended = std::move(*stored.split);
    stored.split.reset();
    std::uint64_t bytes = ended.request.wait();
    if (access.writes) bytes = ended.items->bytes();
    if (!access.writes) ended.items->received(bytes);
    count_bytes(stored, access, bytes);
    fill_status(status, bytes);
  });
}

int set_file_view(StoredFile& stored, MPI_Offset displacement, MPI_Datatype etype, MPI_Datatype filetype,
                  const char* datarep) {
  return on_file(stored, [&] {
    FileView view;
    try {
      if (datarep == nullptr || (std::strcmp(datarep, "native") != 0 && std::strcmp(datarep, "internal") != 0))
        throw FileError(MPI_ERR_UNSUPPORTED_DATAREP, std::string("the data representation is ") +
                                                         (datarep != nullptr ? datarep : "a null pointer") +
                                                         "; a stored file has native and internal alone");
      if (displacement < 0)
        throw FileError(MPI_ERR_ARG, "the displacement is " + std::to_string(displacement) + ", below 0");
      MPI_Count etype_bytes = 0;
      if (etype == MPI_DATATYPE_NULL || PMPI_Type_size_x(etype, &etype_bytes) != MPI_SUCCESS || etype_bytes <= 0)
        throw FileError(MPI_ERR_TYPE, "the etype has no bytes");
      view = make_view(static_cast<std::uint64_t>(displacement), static_cast<std::uint64_t>(etype_bytes),
                       make_datatype(filetype));
    } catch (const std::exception& error) {
      stored.file.fail_next(error.what());
      throw;
    }
    stored.file.set_view(std::move(view));
    MPI_Datatype kept_etype = kept_type(etype);
    MPI_Datatype kept_filetype = kept_type(filetype);
    std::swap(stored.etype, kept_etype);
    std::swap(stored.filetype, kept_filetype);
    free_kept_type(kept_etype);
    free_kept_type(kept_filetype);
    stored.displacement = displacement;
    stored.datarep = datarep;
  });
}

int get_file_view(StoredFile& stored, MPI_Offset* displacement, MPI_Datatype* etype, MPI_Datatype* filetype,
                  char* datarep) {
  return on_file(stored, [&] {
    *displacement = stored.displacement;
    *etype = kept_type(stored.etype);
    *filetype = kept_type(stored.filetype);
    std::strcpy(datarep, stored.datarep.c_str());  // at most MPI_MAX_DATAREP_STRING
  });
}

int get_file_info(StoredFile& stored, MPI_Info* info) {
  return on_file(stored, [&] {
    PMPI_Info_create(info);
    PMPI_Info_set(*info, "penstock_files", "true");
    if (stored.choice.url.size() < MPI_MAX_INFO_VAL) PMPI_Info_set(*info, "penstock_url", stored.choice.url.c_str());
    if (!stored.choice.export_path.empty() && stored.choice.export_path.size() < MPI_MAX_INFO_VAL)
      PMPI_Info_set(*info, "penstock_export", stored.choice.export_path.c_str());
  });
}

}  // namespace penstock::preload
