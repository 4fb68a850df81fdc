/* Each call of MPI on files, on one file: argument. The bytes at the end depend on the number of ranks alone. With a
 * second argument the program only opens that file, and prints the class of the error. */
#include "check.h"

enum { N = 12 };

static MPI_File file;
static MPI_Offset end; /* where the next part begins, in bytes */
static int own[N], got[N];

static void fill(int seed) {
  for (int i = 0; i < N; ++i) own[i] = 100000 * seed + 100 * rank + i, got[i] = -1;
}

static void check_status(MPI_Status* status, int count) {
  int found = -1;
  MPI_Get_count(status, MPI_INT, &found);
  CHECK(found == count);
}

static void check_got(int seed, int from_rank) {
  for (int i = 0; i < N; ++i) CHECK(got[i] == 100000 * seed + 100 * from_rank + i);
}

/* What was written becomes visible to all ranks. */
static void flush(void) {
  CHECK(MPI_File_sync(file) == MPI_SUCCESS);
  MPI_Barrier(MPI_COMM_WORLD);
  CHECK(MPI_File_sync(file) == MPI_SUCCESS);
}

#define CALL(...) CHECK(__VA_ARGS__ == MPI_SUCCESS)

static MPI_Offset mine(int of_rank) { return end + (MPI_Offset)of_rank * N * (MPI_Offset)sizeof(int); }

static void next_part(void) { end += (MPI_Offset)ranks * N * (MPI_Offset)sizeof(int); }

static void at_offsets(void) {
  const int other = (rank + 1) % ranks;
  MPI_Status status;
  MPI_Request request;
#define PART(seed, write, read) \
  fill(seed);                   \
  write;                        \
  flush();                      \
  read;                         \
  check_status(&status, N);     \
  check_got(seed, other);       \
  next_part();
  PART(1, CALL(MPI_File_write_at(file, mine(rank), own, N, MPI_INT, &status));
       check_status(&status, N), CALL(MPI_File_read_at(file, mine(other), got, N, MPI_INT, &status)))
  PART(2, CALL(MPI_File_write_at_all(file, mine(rank), own, N, MPI_INT, &status));
       check_status(&status, N), CALL(MPI_File_read_at_all(file, mine(other), got, N, MPI_INT, &status)))
  PART(3, CALL(MPI_File_iwrite_at(file, mine(rank), own, N, MPI_INT, &request)); MPI_Wait(&request, &status);
       check_status(&status, N), CALL(MPI_File_iread_at(file, mine(other), got, N, MPI_INT, &request));
       MPI_Wait(&request, &status))
  PART(4, CALL(MPI_File_iwrite_at_all(file, mine(rank), own, N, MPI_INT, &request)); MPI_Wait(&request, &status);
       check_status(&status, N), CALL(MPI_File_iread_at_all(file, mine(other), got, N, MPI_INT, &request));
       MPI_Wait(&request, &status))
  PART(5, CALL(MPI_File_write_at_all_begin(file, mine(rank), own, N, MPI_INT));
       CALL(MPI_File_write_at_all_end(file, own, &status));
       check_status(&status, N), CALL(MPI_File_read_at_all_begin(file, mine(other), got, N, MPI_INT));
       CALL(MPI_File_read_at_all_end(file, got, &status)))
#define SEEK(of_rank) CALL(MPI_File_seek(file, mine(of_rank), MPI_SEEK_SET))
  PART(6, SEEK(rank); CALL(MPI_File_write(file, own, N, MPI_INT, &status)), SEEK(other);
       CALL(MPI_File_read(file, got, N, MPI_INT, &status)))
  PART(7, SEEK(rank); CALL(MPI_File_write_all(file, own, N, MPI_INT, &status)), SEEK(other);
       CALL(MPI_File_read_all(file, got, N, MPI_INT, &status)))
  PART(8, SEEK(rank); CALL(MPI_File_iwrite(file, own, N, MPI_INT, &request)); MPI_Wait(&request, &status), SEEK(other);
       CALL(MPI_File_iread(file, got, N, MPI_INT, &request)); MPI_Wait(&request, &status))
  PART(9, SEEK(rank); CALL(MPI_File_iwrite_all(file, own, N, MPI_INT, &request));
       MPI_Wait(&request, &status), SEEK(other); CALL(MPI_File_iread_all(file, got, N, MPI_INT, &request));
       MPI_Wait(&request, &status))
  PART(10, SEEK(rank); CALL(MPI_File_write_all_begin(file, own, N, MPI_INT));
       CALL(MPI_File_write_all_end(file, own, &status)), SEEK(other);
       CALL(MPI_File_read_all_begin(file, got, N, MPI_INT)); CALL(MPI_File_read_all_end(file, got, &status)))
#if MPI_VERSION >= 4
  PART(11, CALL(MPI_File_write_at_all_c(file, mine(rank), own, N, MPI_INT, &status)),
       CALL(MPI_File_read_at_c(file, mine(other), got, N, MPI_INT, &status)))
#else
  PART(11, CALL(MPI_File_write_at_all(file, mine(rank), own, N, MPI_INT, &status)),
       CALL(MPI_File_read_at(file, mine(other), got, N, MPI_INT, &status)))
#endif
  MPI_Offset place;
  CALL(MPI_File_get_position(file, &place));
  CALL(MPI_File_seek(file, -4, MPI_SEEK_CUR));
  MPI_Offset before;
  CALL(MPI_File_get_position(file, &before));
  CHECK(before == place - 4);
}

/* At the shared pointer. In an order that MPI does not define, each rank writes the same. */
static void at_shared_pointer(void) {
  const int other = (rank + 1) % ranks;
  MPI_Status status;
  MPI_Request request;
  MPI_Offset place;
  CALL(MPI_File_seek_shared(file, end, MPI_SEEK_SET));
  fill(20);
  CALL(MPI_File_write_ordered(file, own, N, MPI_INT, &status));
  CALL(MPI_File_write_ordered_begin(file, own, N, MPI_INT));
  CALL(MPI_File_write_ordered_end(file, own, &status));
  flush();
  CALL(MPI_File_seek_shared(file, end, MPI_SEEK_SET));
  CALL(MPI_File_read_ordered(file, got, N, MPI_INT, &status));
  check_got(20, rank);
  fill(20);
  CALL(MPI_File_read_ordered_begin(file, got, N, MPI_INT));
  CALL(MPI_File_read_ordered_end(file, got, &status));
  check_got(20, rank);
  fill(20);
  CALL(MPI_File_read_at(file, mine(other), got, N, MPI_INT, &status));
  check_got(20, other);
  next_part();
  next_part();
  MPI_Barrier(MPI_COMM_WORLD);
  for (int i = 0; i < N; ++i) own[i] = 77 + i;
  CALL(MPI_File_write_shared(file, own, N, MPI_INT, &status));
  CALL(MPI_File_iwrite_shared(file, own, N, MPI_INT, &request));
  MPI_Wait(&request, &status);
  flush();
  CALL(MPI_File_get_position_shared(file, &place));
  CHECK(place == end + 2 * (MPI_Offset)ranks * N * (MPI_Offset)sizeof(int));
  MPI_Barrier(MPI_COMM_WORLD);
  CALL(MPI_File_seek_shared(file, end, MPI_SEEK_SET));
  CALL(MPI_File_read_shared(file, got, N, MPI_INT, &status));
  check_status(&status, N);
  for (int i = 0; i < N; ++i) CHECK(got[i] == 77 + i);
  CALL(MPI_File_iread_shared(file, got, N, MPI_INT, &request));
  MPI_Wait(&request, &status);
  for (int i = 0; i < N; ++i) CHECK(got[i] == 77 + i);
  next_part();
  next_part();
  MPI_Barrier(MPI_COMM_WORLD);
}

/* Every rank sees each ranks-th block of 3 numbers. Its own memory has holes. */
static void views(void) {
  MPI_Datatype tile, holes, etype, filetype;
  MPI_Offset displacement, place;
  char datarep[MPI_MAX_DATAREP_STRING];
  MPI_Status status;
  int sizes[1] = {3 * ranks}, parts[1] = {3}, starts[1] = {3 * rank}, spread[2 * N], back[2 * N];
  MPI_Type_create_subarray(1, sizes, parts, starts, MPI_ORDER_C, MPI_INT, &tile);
  MPI_Type_commit(&tile);
  MPI_Type_vector(N, 1, 2, MPI_INT, &holes);
  MPI_Type_commit(&holes);
  for (int i = 0; i < 2 * N; ++i) spread[i] = i % 2 == 0 ? 1000 * rank + i : -9, back[i] = -1;
  CALL(MPI_File_set_view(file, end, MPI_INT, tile, "native", MPI_INFO_NULL));
  CALL(MPI_File_get_view(file, &displacement, &etype, &filetype, datarep));
  CHECK(displacement == end && etype == MPI_INT && strcmp(datarep, "native") == 0);
  MPI_Type_free(&filetype);
  CALL(MPI_File_get_byte_offset(file, 4, &place));
  CHECK(place == end + 4 * (3 * ranks + 3 * rank + 1));
  CALL(MPI_File_write_all(file, spread, 1, holes, &status));
  check_status(&status, N);
  CALL(MPI_File_seek(file, 0, MPI_SEEK_SET));
  CALL(MPI_File_read_all(file, back, 1, holes, &status));
  for (int i = 0; i < 2 * N; ++i) CHECK(back[i] == (i % 2 == 0 ? 1000 * rank + i : -1));
  CALL(MPI_File_get_position(file, &place));
  CHECK(place == N);
  CALL(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
  next_part();
  MPI_Type_free(&tile);
  MPI_Type_free(&holes);
}

static int handled = 0;

static void handler(MPI_File* failed, int* code, ...) {
  (void)failed;
  (void)code;
  ++handled;
}

static void properties(void) {
  MPI_Group group;
  MPI_Errhandler own_handler;
  MPI_Info info;
  MPI_Offset size;
  int members = 0, amode = 0, is_atomic = -1, error_class = 0;
  CALL(MPI_File_get_group(file, &group));
  MPI_Group_size(group, &members);
  CHECK(members == ranks);
  MPI_Group_free(&group);
  CALL(MPI_File_get_amode(file, &amode));
  CHECK(amode == (MPI_MODE_RDWR | MPI_MODE_CREATE));
  CALL(MPI_File_set_atomicity(file, 1));
  CALL(MPI_File_get_atomicity(file, &is_atomic));
  CHECK(is_atomic == 1);
  CALL(MPI_File_set_atomicity(file, 0));
  CALL(MPI_File_get_info(file, &info));
  MPI_Info_free(&info);
  CALL(MPI_File_set_info(file, MPI_INFO_NULL));
  CALL(MPI_File_get_size(file, &size));
  CHECK(size == end);
  CALL(MPI_File_set_size(file, end + 7));
  CALL(MPI_File_get_size(file, &size));
  CHECK(size == end + 7);
  CALL(MPI_File_preallocate(file, end + 3));
  CALL(MPI_File_get_size(file, &size));
  CHECK(size == end + 7);
  /* Behind the end. */
  MPI_Status status;
  fill(1);
  CALL(MPI_File_read_at(file, end + 3, got, N, MPI_INT, &status));
  check_status(&status, 1);
  /* Errors return, or call the handler of the file. */
  const int refused = MPI_File_read_at(file, -1, got, N, MPI_INT, &status);
  CHECK(refused != MPI_SUCCESS);
  MPI_Error_class(refused, &error_class);
  CHECK(error_class == MPI_ERR_ARG);
  MPI_File_create_errhandler(handler, &own_handler);
  CALL(MPI_File_set_errhandler(file, own_handler));
  MPI_File_read_at(file, -1, got, N, MPI_INT, &status);
  CHECK(handled == 1);
  CALL(MPI_File_set_errhandler(file, MPI_ERRORS_RETURN));
  MPI_Errhandler_free(&own_handler);
#ifndef MPI_ABI_VERSION /* it has other names */
  CHECK(MPI_File_f2c(MPI_File_c2f(file)) == file);
#endif
}

static void only_open(const char* path, int amode) {
  int error_class = 0;
  const int code = MPI_File_open(MPI_COMM_WORLD, path, amode, MPI_INFO_NULL, &file);
  MPI_Error_class(code, &error_class);
  if (code == MPI_SUCCESS) MPI_File_close(&file);
  if (rank == 0)
    puts(error_class == MPI_SUCCESS            ? "opened"
         : error_class == MPI_ERR_NO_SUCH_FILE ? "no such file"
         : error_class == MPI_ERR_FILE_EXISTS  ? "exists"
                                               : "another error");
}

int main(int argc, char** argv) {
  begin(&argc, &argv);
  CHECK(argc > 1);
  if (argc > 2) {
    only_open(argv[1], strcmp(argv[2], "read") == 0     ? MPI_MODE_RDONLY
                       : strcmp(argv[2], "create") == 0 ? MPI_MODE_RDWR | MPI_MODE_CREATE
                       : strcmp(argv[2], "drop") == 0   ? MPI_MODE_RDWR | MPI_MODE_CREATE | MPI_MODE_DELETE_ON_CLOSE
                                                        : MPI_MODE_RDWR | MPI_MODE_CREATE | MPI_MODE_EXCL);
    MPI_Finalize();
    return 0;
  }
  CALL(MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_RDWR | MPI_MODE_CREATE, MPI_INFO_NULL, &file));
  at_offsets();
  at_shared_pointer();
  views();
  MPI_Barrier(MPI_COMM_WORLD);
  properties();
  CALL(MPI_File_close(&file));
  CHECK(file == MPI_FILE_NULL);
  CALL(MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_WRONLY | MPI_MODE_APPEND, MPI_INFO_NULL, &file));
  MPI_Offset place;
  CALL(MPI_File_get_position(file, &place));
  CHECK(place == end + 7);
  CALL(MPI_File_close(&file));
  if (rank == 0) puts("files: ok");
  MPI_Finalize();
  return 0;
}
