// The program's MPI files that are kept in a store. The program holds a real MPI_File: MPI's handle of /dev/null,
// opened on this process alone. So error handlers, Fortran's handles and all else that MPI keeps of a file work on it.
#pragma once

#include PENSTOCK_MPI_HEADER

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "penstock/file.hpp"
#include "preload/errors.hpp"
#include "preload/file_choice.hpp"
#include "preload/own_calls.hpp"

namespace penstock::preload {

enum class Place : std::uint8_t { at, individual, shared };

struct Access {
  bool writes = false;
  bool together = false;
  Place place = Place::at;
  MPI_Offset offset = 0;
  const void* buffer = nullptr;
  std::int64_t count = 0;
  MPI_Datatype type = MPI_DATATYPE_NULL;
};

class AccessItems;

struct StoredFile {
  explicit StoredFile(File opened) : file(std::move(opened)) {}

  File file;
  FileChoice choice{};
  MPI_File handle = MPI_FILE_NULL;
  MPI_Group group = MPI_GROUP_NULL;
  int rank = 0;
  int ranks = 1;
  int amode = 0;
  bool any_thread = false;  ///< equal on all ranks
  std::uint64_t version_at_open = 0;
  MPI_Datatype etype = MPI_BYTE;
  MPI_Datatype filetype = MPI_BYTE;
  MPI_Offset displacement = 0;
  std::string datarep = "native";
  std::mutex pointers;  ///< the individual and the shared pointer
  /// The split collective that has begun.
  struct Split {
    FileRequest request{};
    std::shared_ptr<AccessItems> items{};
    const void* buffer = nullptr;
    Access access{};
  };
  std::optional<Split> split{};
  std::atomic<std::uint64_t> read_bytes{0};
  std::atomic<std::uint64_t> written_bytes{0};
};

/// The stored file of a handle; nullptr for MPI's own files. Any thread.
std::shared_ptr<StoredFile> stored_file(MPI_File handle);

using NativeOpen = std::function<int(const char* name)>;

/// MPI_File_open. Collective.
int open_file(MPI_Comm comm, const char* name, int amode, MPI_Info info, MPI_File* handle, const NativeOpen& native);
int delete_file(const char* name, MPI_Info info, const std::function<int(const char* name)>& native);
int close_file(const std::shared_ptr<StoredFile>& stored, MPI_File* handle);

int access_file(StoredFile& stored, const Access& access, MPI_Status* status);
int start_access(const std::shared_ptr<StoredFile>& stored, const Access& access, MPI_Request* request);
int begin_access(StoredFile& stored, const Access& access);
int end_access(StoredFile& stored, const Access& access, MPI_Status* status);

int set_file_view(StoredFile& stored, MPI_Offset displacement, MPI_Datatype etype, MPI_Datatype filetype,
                  const char* datarep);
int get_file_view(StoredFile& stored, MPI_Offset* displacement, MPI_Datatype* etype, MPI_Datatype* filetype,
                  char* datarep);
int get_file_info(StoredFile& stored, MPI_Info* info);

/// Runs `action`; an error is raised on the file.
template <typename Action>
int on_file(const StoredFile& stored, Action action) {
  try {
    const OwnCall own;
    action();
    return MPI_SUCCESS;
  } catch (const std::exception& error) {
    return raise(stored.handle, error);
  }
}

}  // namespace penstock::preload
