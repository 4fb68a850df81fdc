// Checks for test programs under mpiexec. A failed check prints its place and ends all ranks. A hanging program ends
// itself.
#pragma once

#include PENSTOCK_MPI_HEADER

#include <unistd.h>

#include <cstdio>

#include "penstock/error.hpp"

#define CHECK(condition)                                                                                   \
  do {                                                                                                     \
    if (!(condition)) {                                                                                    \
      std::fprintf(stderr, "%s:%d: rank %d: %s is false\n", __FILE__, __LINE__, world_rank(), #condition); \
      MPI_Abort(MPI_COMM_WORLD, 1);                                                                        \
    }                                                                                                      \
  } while (false)

/// The expression must throw penstock::Error with this code.
#define CHECK_ERROR(expression, expected)                                                                         \
  do {                                                                                                            \
    bool thrown = false;                                                                                          \
    try {                                                                                                         \
      expression;                                                                                                 \
    } catch (const penstock::Error& error) {                                                                      \
      thrown = true;                                                                                              \
      if (error.code() != penstock::ErrorCode::expected) std::fprintf(stderr, "wrong error: %s\n", error.what()); \
      CHECK(error.code() == penstock::ErrorCode::expected);                                                       \
    }                                                                                                             \
    CHECK(thrown);                                                                                                \
  } while (false)

inline int world_rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

inline int world_size() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

/// Initializes MPI with MPI_THREAD_MULTIPLE, and sets an alarm that ends a hanging process before CTest does.
inline void begin(int* argc, char*** argv) {
  int level = 0;
  MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &level);
  CHECK(level == MPI_THREAD_MULTIPLE);
  alarm(1500);
}
