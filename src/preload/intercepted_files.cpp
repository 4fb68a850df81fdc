// MPI's functions on files. Each looks for a stored file with the handle, and passes the call on if there is none.
#include <cstdint>

#include "penstock/export.hpp"
#include "preload/files.hpp"
#include "preload/settings.hpp"

namespace penstock::preload {
namespace {

MPI_Offset as_offset(std::uint64_t value) { return static_cast<MPI_Offset>(value); }

Whence whence_of(int whence) {
  switch (whence) {
    case MPI_SEEK_SET: return Whence::set;
    case MPI_SEEK_CUR: return Whence::current;
    case MPI_SEEK_END: return Whence::end;
    default: throw FileError(MPI_ERR_ARG, "whence is none of MPI_SEEK_SET, MPI_SEEK_CUR and MPI_SEEK_END");
  }
}

}  // namespace
}  // namespace penstock::preload

using penstock::preload::Access;
using penstock::preload::next;
using penstock::preload::on_file;
using penstock::preload::Place;
using penstock::preload::stored_file;
using penstock::preload::StoredFile;

extern "C" PENSTOCK_API int MPI_File_open(MPI_Comm comm, const char* name, int amode, MPI_Info info, MPI_File* file) {
  static auto* const native = next("MPI_File_open", &PMPI_File_open);
  return penstock::preload::open_file(comm, name, amode, info, file,
                                      [&](const char* path) { return native(comm, path, amode, info, file); });
}

extern "C" PENSTOCK_API int MPI_File_delete(const char* name, MPI_Info info) {
  static auto* const native = next("MPI_File_delete", &PMPI_File_delete);
  return penstock::preload::delete_file(name, info, [&](const char* path) { return native(path, info); });
}

extern "C" PENSTOCK_API int MPI_File_close(MPI_File* file) {
  static auto* const native = next("MPI_File_close", &PMPI_File_close);
  const auto stored = file != nullptr ? stored_file(*file) : nullptr;
  return stored != nullptr ? penstock::preload::close_file(stored, file) : native(file);
}

// PENSTOCK_FILE(name, parameters, arguments, what a stored file does)
#define PENSTOCK_FILE(name, parameters, arguments, ...)                     \
  extern "C" PENSTOCK_API int MPI_File_##name parameters {                  \
    static auto* const native = next("MPI_File_" #name, &PMPI_File_##name); \
    const auto found = stored_file(file);                                   \
    if (found == nullptr) return native arguments;                          \
    StoredFile& stored = *found;                                            \
    __VA_ARGS__                                                             \
  }

PENSTOCK_FILE(set_size, (MPI_File file, MPI_Offset size), (file, size), return on_file(stored, [&] {
                if (size < 0) {
                  stored.file.fail_next("the size is below 0");
                  throw penstock::preload::FileError(MPI_ERR_ARG, "the size is below 0");
                }
                stored.file.set_size(static_cast<std::uint64_t>(size));
              });)
PENSTOCK_FILE(preallocate, (MPI_File file, MPI_Offset size), (file, size), return on_file(stored, [&] {
                if (size < 0) {
                  stored.file.fail_next("the size is below 0");
                  throw penstock::preload::FileError(MPI_ERR_ARG, "the size is below 0");
                }
                stored.file.preallocate(static_cast<std::uint64_t>(size));
              });)
PENSTOCK_FILE(get_size, (MPI_File file, MPI_Offset* size), (file, size),
              return on_file(stored, [&] { *size = penstock::preload::as_offset(stored.file.size_bytes()); });)
PENSTOCK_FILE(get_group, (MPI_File file, MPI_Group* group), (file, group),
              return PMPI_Group_union(stored.group, MPI_GROUP_EMPTY, group);)
PENSTOCK_FILE(get_amode, (MPI_File file, int* amode), (file, amode), *amode = stored.amode; return MPI_SUCCESS;)
PENSTOCK_FILE(set_info, (MPI_File file, MPI_Info info), (file, info), static_cast<void>(stored); return MPI_SUCCESS;)
PENSTOCK_FILE(get_info, (MPI_File file, MPI_Info* info), (file, info),
              return penstock::preload::get_file_info(stored, info);)
PENSTOCK_FILE(set_view,
              (MPI_File file, MPI_Offset displacement, MPI_Datatype etype, MPI_Datatype filetype, const char* datarep,
               MPI_Info info),
              (file, displacement, etype, filetype, datarep, info),
              return penstock::preload::set_file_view(stored, displacement, etype, filetype, datarep);)
PENSTOCK_FILE(get_view,
              (MPI_File file, MPI_Offset* displacement, MPI_Datatype* etype, MPI_Datatype* filetype, char* datarep),
              (file, displacement, etype, filetype, datarep),
              return penstock::preload::get_file_view(stored, displacement, etype, filetype, datarep);)
PENSTOCK_FILE(seek, (MPI_File file, MPI_Offset offset, int whence), (file, offset, whence), return on_file(stored, [&] {
                const std::lock_guard lock(stored.pointers);
                stored.file.seek(offset, penstock::preload::whence_of(whence));
              });)
PENSTOCK_FILE(get_position, (MPI_File file, MPI_Offset* offset), (file, offset), return on_file(stored, [&] {
                const std::lock_guard lock(stored.pointers);
                *offset = penstock::preload::as_offset(stored.file.position());
              });)
PENSTOCK_FILE(get_byte_offset, (MPI_File file, MPI_Offset offset, MPI_Offset* place), (file, offset, place),
              return on_file(stored, [&] {
                if (offset < 0) throw penstock::preload::FileError(MPI_ERR_ARG, "the offset is below 0");
                *place = penstock::preload::as_offset(stored.file.byte_offset(static_cast<std::uint64_t>(offset)));
              });)
PENSTOCK_FILE(seek_shared, (MPI_File file, MPI_Offset offset, int whence), (file, offset, whence),
              return on_file(stored, [&] { stored.file.seek_shared(offset, penstock::preload::whence_of(whence)); });)
PENSTOCK_FILE(get_position_shared, (MPI_File file, MPI_Offset* offset), (file, offset), return on_file(stored, [&] {
                const std::lock_guard lock(stored.pointers);
                *offset = penstock::preload::as_offset(stored.file.position_shared());
              });)
PENSTOCK_FILE(set_atomicity, (MPI_File file, int is_atomic), (file, is_atomic),
              return on_file(stored, [&] { stored.file.set_atomicity(is_atomic != 0); });)
PENSTOCK_FILE(get_atomicity, (MPI_File file, int* is_atomic), (file, is_atomic),
              *is_atomic = stored.file.atomicity() ? 1 : 0;
              return MPI_SUCCESS;)
PENSTOCK_FILE(sync, (MPI_File file), (file), return on_file(stored, [&] { stored.file.sync(); });)

#define PENSTOCK_PLACE_at MPI_Offset offset,
#define PENSTOCK_PLACE_individual
#define PENSTOCK_PLACE_shared
#define PENSTOCK_PLACED_at offset,
#define PENSTOCK_PLACED_individual
#define PENSTOCK_PLACED_shared
#define PENSTOCK_OFFSET_at offset
#define PENSTOCK_OFFSET_individual 0
#define PENSTOCK_OFFSET_shared 0
#define PENSTOCK_BUFFER_read void*
#define PENSTOCK_BUFFER_write const void*
#define PENSTOCK_WRITES_read false
#define PENSTOCK_WRITES_write true
#define PENSTOCK_RESULT_blocking , MPI_Status* result
#define PENSTOCK_RESULT_nonblocking , MPI_Request* result
#define PENSTOCK_RESULT_begin
#define PENSTOCK_PASSED_blocking , result
#define PENSTOCK_PASSED_nonblocking , result
#define PENSTOCK_PASSED_begin
#define PENSTOCK_SERVE_blocking penstock::preload::access_file(*stored, access, result)
#define PENSTOCK_SERVE_nonblocking penstock::preload::start_access(stored, access, result)
#define PENSTOCK_SERVE_begin penstock::preload::begin_access(*stored, access)
#define PENSTOCK_MOVE(name, direction, where, all, how, count_type)                                                \
  extern "C" PENSTOCK_API int MPI_File_##name(MPI_File file,                                                       \
                                              PENSTOCK_PLACE_##where PENSTOCK_BUFFER_##direction buffer,           \
                                              count_type count, MPI_Datatype type PENSTOCK_RESULT_##how) {         \
    static auto* const native = next("MPI_File_" #name, &PMPI_File_##name);                                        \
    const auto stored = stored_file(file);                                                                         \
    if (stored == nullptr) return native(file, PENSTOCK_PLACED_##where buffer, count, type PENSTOCK_PASSED_##how); \
    const Access access{.writes = PENSTOCK_WRITES_##direction,                                                     \
                        .together = all,                                                                           \
                        .place = Place::where,                                                                     \
                        .offset = PENSTOCK_OFFSET_##where,                                                         \
                        .buffer = buffer,                                                                          \
                        .count = count,                                                                            \
                        .type = type};                                                                             \
    return PENSTOCK_SERVE_##how;                                                                                   \
  }

#define PENSTOCK_ACCESS(name, direction, where, all, how) PENSTOCK_MOVE(name, direction, where, all, how, int)
#include "preload/file_accesses.def"
#undef PENSTOCK_ACCESS
#if MPI_VERSION >= 4
#define PENSTOCK_ACCESS(name, direction, where, all, how) PENSTOCK_MOVE(name##_c, direction, where, all, how, MPI_Count)
#include "preload/file_accesses.def"
#undef PENSTOCK_ACCESS
#endif

#define PENSTOCK_END(name, direction, where)                                                                  \
  PENSTOCK_FILE(                                                                                              \
      name, (MPI_File file, PENSTOCK_BUFFER_##direction buffer, MPI_Status * status), (file, buffer, status), \
      return penstock::preload::end_access(                                                                   \
          stored, {.writes = PENSTOCK_WRITES_##direction, .place = Place::where, .buffer = buffer}, status);)
PENSTOCK_END(read_at_all_end, read, at)
PENSTOCK_END(write_at_all_end, write, at)
PENSTOCK_END(read_all_end, read, individual)
PENSTOCK_END(write_all_end, write, individual)
PENSTOCK_END(read_ordered_end, read, shared)
PENSTOCK_END(write_ordered_end, write, shared)
