/* PnetCDF: fixed and record variables, collectively, independently, and by non-blocking writes; then all is read again.
 * Arguments: the path, and `read` if it is there already. */
#include <pnetcdf.h>

#include "../check.h"

enum { ROWS = 40, COLUMNS = 25, RECORDS = 3 };

#define NC(call)                                                                          \
  do {                                                                                    \
    const int error = (call);                                                             \
    if (error != NC_NOERR) fprintf(stderr, "rank %d: %s\n", rank, ncmpi_strerror(error)); \
    CHECK(error == NC_NOERR);                                                             \
  } while (0)

static double value(int row, int column) { return 1000.0 * row + column; }

static void fill(double* data, int of) {
  for (int i = 0; i < ROWS * COLUMNS; ++i) data[i] = value(of * ROWS + i / COLUMNS, i % COLUMNS);
}

static void write_all(const char* path) {
  int file, dims[3], fixed, alone, records, queued;
  NC(ncmpi_create(MPI_COMM_WORLD, path, NC_CLOBBER | NC_64BIT_DATA, MPI_INFO_NULL, &file));
  NC(ncmpi_def_dim(file, "record", NC_UNLIMITED, &dims[0]));
  NC(ncmpi_def_dim(file, "row", (MPI_Offset)ranks * ROWS, &dims[1]));
  NC(ncmpi_def_dim(file, "column", COLUMNS, &dims[2]));
  NC(ncmpi_def_var(file, "fixed", NC_DOUBLE, 2, dims + 1, &fixed));
  NC(ncmpi_def_var(file, "alone", NC_DOUBLE, 2, dims + 1, &alone));
  NC(ncmpi_def_var(file, "records", NC_DOUBLE, 3, dims, &records));
  NC(ncmpi_def_var(file, "queued", NC_DOUBLE, 2, dims + 1, &queued));
  NC(ncmpi_put_att_int(file, NC_GLOBAL, "ranks", NC_INT, 1, &ranks));
  NC(ncmpi_enddef(file));

  static double data[ROWS * COLUMNS];
  MPI_Offset begin[3] = {0, (MPI_Offset)rank * ROWS, 0}, count[3] = {1, ROWS, COLUMNS};
  fill(data, rank);
  NC(ncmpi_put_vara_double_all(file, fixed, begin + 1, count + 1, data));
  for (int record = 0; record < RECORDS; ++record) {
    begin[0] = record;
    NC(ncmpi_put_vara_double_all(file, records, begin, count, data));
  }
  NC(ncmpi_begin_indep_data(file));
  NC(ncmpi_put_vara_double(file, alone, begin + 1, count + 1, data));
  NC(ncmpi_end_indep_data(file));
  int request, status;
  NC(ncmpi_iput_vara_double(file, queued, begin + 1, count + 1, data, &request));
  NC(ncmpi_wait_all(file, 1, &request, &status));
  NC(status);
  NC(ncmpi_close(file));
}

int main(int argc, char** argv) {
  begin(&argc, &argv);
  CHECK(argc >= 2);
  if (argc == 2) write_all(argv[1]);
  int file;
  static double data[ROWS * COLUMNS], got[ROWS * COLUMNS];
  MPI_Offset begin[3] = {RECORDS - 1, 0, 0}, count[3] = {1, ROWS, COLUMNS};
  NC(ncmpi_open(MPI_COMM_WORLD, argv[1], NC_NOWRITE, MPI_INFO_NULL, &file));
  int found = 0, other = (rank + 1) % ranks;
  NC(ncmpi_get_att_int(file, NC_GLOBAL, "ranks", &found));
  CHECK(found == ranks);
  fill(data, other);
  begin[1] = (MPI_Offset)other * ROWS;
  const char* names[] = {"fixed", "alone", "queued", "records"};
  for (int v = 0; v < 4; ++v) {
    int variable, dimensions;
    NC(ncmpi_inq_varid(file, names[v], &variable));
    NC(ncmpi_inq_varndims(file, variable, &dimensions));
    NC(ncmpi_get_vara_double_all(file, variable, begin + 3 - dimensions, count + 3 - dimensions, got));
    for (int i = 0; i < ROWS * COLUMNS; ++i) CHECK(got[i] == data[i]);
  }
  NC(ncmpi_close(file));
  if (rank == 0) puts("pnetcdf: ok");
  MPI_Finalize();
  return 0;
}
