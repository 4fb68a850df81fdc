/* Parallel HDF5: a contiguous and a chunked dataset, collectively and independently, an attribute, and another opening
 * that adds a dataset; all is read again, by all ranks and by slabs of others. Arguments: the path, and `read` if it is
 * there already. */
#include <hdf5.h>

#include "../check.h"

enum { ROWS = 40, COLUMNS = 25 };

static double value(int row, int column) { return 1000.0 * row + column; }

static hid_t access_by_all(void) {
  hid_t plist = H5Pcreate(H5P_FILE_ACCESS);
  CHECK(H5Pset_fapl_mpio(plist, MPI_COMM_WORLD, MPI_INFO_NULL) >= 0);
  return plist;
}

static hid_t transfer(int collective) {
  hid_t plist = H5Pcreate(H5P_DATASET_XFER);
  CHECK(H5Pset_dxpl_mpio(plist, collective ? H5FD_MPIO_COLLECTIVE : H5FD_MPIO_INDEPENDENT) >= 0);
  return plist;
}

static void select_rows(hid_t space, int of) {
  hsize_t begin[2] = {(hsize_t)(of * ROWS), 0}, count[2] = {ROWS, COLUMNS};
  CHECK(H5Sselect_hyperslab(space, H5S_SELECT_SET, begin, NULL, count, NULL) >= 0);
}

static void write_dataset(hid_t file, const char* name, int is_chunked, int collective) {
  hsize_t dims[2] = {(hsize_t)(ranks * ROWS), COLUMNS}, chunk[2] = {16, 10}, own[2] = {ROWS, COLUMNS};
  hid_t space = H5Screate_simple(2, dims, NULL), memory = H5Screate_simple(2, own, NULL);
  hid_t how = H5Pcreate(H5P_DATASET_CREATE);
  if (is_chunked) CHECK(H5Pset_chunk(how, 2, chunk) >= 0);
  hid_t set = H5Dcreate2(file, name, H5T_NATIVE_DOUBLE, space, H5P_DEFAULT, how, H5P_DEFAULT);
  CHECK(set >= 0);
  static double data[ROWS * COLUMNS];
  for (int i = 0; i < ROWS * COLUMNS; ++i) data[i] = value(rank * ROWS + i / COLUMNS, i % COLUMNS);
  select_rows(space, rank);
  hid_t by = transfer(collective);
  CHECK(H5Dwrite(set, H5T_NATIVE_DOUBLE, memory, space, by, data) >= 0);
  H5Pclose(by), H5Dclose(set), H5Pclose(how), H5Sclose(memory), H5Sclose(space);
}

static void read_dataset(hid_t file, const char* name, int of, int collective) {
  hsize_t own[2] = {ROWS, COLUMNS};
  hid_t set = H5Dopen2(file, name, H5P_DEFAULT), memory = H5Screate_simple(2, own, NULL);
  CHECK(set >= 0);
  hid_t space = H5Dget_space(set);
  static double data[ROWS * COLUMNS];
  select_rows(space, of);
  hid_t by = transfer(collective);
  CHECK(H5Dread(set, H5T_NATIVE_DOUBLE, memory, space, by, data) >= 0);
  for (int i = 0; i < ROWS * COLUMNS; ++i) CHECK(data[i] == value(of * ROWS + i / COLUMNS, i % COLUMNS));
  H5Pclose(by), H5Sclose(space), H5Sclose(memory), H5Dclose(set);
}

/* In two openings. */
static void write_all(const char* path, hid_t by_all) {
  hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, by_all);
  CHECK(file >= 0);
  write_dataset(file, "contiguous", 0, 1);
  write_dataset(file, "independent", 0, 0);
  write_dataset(file, "chunked", 1, 1);
  hid_t one = H5Screate(H5S_SCALAR);
  hid_t note = H5Acreate2(file, "ranks", H5T_NATIVE_INT, one, H5P_DEFAULT, H5P_DEFAULT);
  CHECK(H5Awrite(note, H5T_NATIVE_INT, &ranks) >= 0);
  H5Aclose(note), H5Sclose(one);
  CHECK(H5Fflush(file, H5F_SCOPE_GLOBAL) >= 0);
  read_dataset(file, "contiguous", (rank + 1) % ranks, 1);
  CHECK(H5Fclose(file) >= 0);

  file = H5Fopen(path, H5F_ACC_RDWR, by_all);
  CHECK(file >= 0);
  write_dataset(file, "later", 1, 1);
  CHECK(H5Fclose(file) >= 0);
}

int main(int argc, char** argv) {
  begin(&argc, &argv);
  CHECK(argc >= 2);
  hid_t by_all = access_by_all();
  if (argc == 2) write_all(argv[1], by_all);
  hid_t file = H5Fopen(argv[1], H5F_ACC_RDONLY, by_all);
  CHECK(file >= 0);
  int found = 0;
  hid_t note = H5Aopen(file, "ranks", H5P_DEFAULT);
  CHECK(H5Aread(note, H5T_NATIVE_INT, &found) >= 0 && found == ranks);
  H5Aclose(note);
  const char* names[] = {"contiguous", "independent", "chunked", "later"};
  for (int i = 0; i < 4; ++i) {
    read_dataset(file, names[i], (rank + i) % ranks, 1);
    read_dataset(file, names[i], (rank + i + 1) % ranks, 0);
  }
  CHECK(H5Fclose(file) >= 0);
  H5Pclose(by_all);
  if (rank == 0) puts("hdf5: ok");
  MPI_Finalize();
  return 0;
}
