#include "mpi/check.hpp"

#include "penstock/error.hpp"

namespace penstock::mpi {

std::string error_text(int result) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  if (MPI_Error_string(result, text, &length) != MPI_SUCCESS) return "MPI error " + std::to_string(result);
  return {text, static_cast<std::size_t>(length)};
}

void check(int result, const char* function) {
  if (result != MPI_SUCCESS) throw Error(ErrorCode::mpi, std::string(function) + " failed", -1, error_text(result));
}

MPI_Comm duplicate(MPI_Comm parent) {
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
  check(MPI_Comm_get_errhandler(parent, &handler), "MPI_Comm_get_errhandler");
  MPI_Comm_set_errhandler(parent, MPI_ERRORS_RETURN);
  const int result = MPI_Comm_dup(parent, &comm);
  MPI_Comm_set_errhandler(parent, handler);
  MPI_Errhandler_free(&handler);
  check(result, "MPI_Comm_dup");
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  return comm;
}

bool running() {
  int initialized = 0;
  int finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  return initialized != 0 && finalized == 0;
}

bool may_call() {
  int level = MPI_THREAD_SINGLE;
  int is_main = 0;
  MPI_Query_thread(&level);
  MPI_Is_thread_main(&is_main);
  return level == MPI_THREAD_MULTIPLE || is_main != 0;
}

void require_running() {
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (initialized == 0)
    throw Error(ErrorCode::invalid_argument,
                "MPI (" PENSTOCK_MPI_ABI
                " ABI) is not initialized here; call MPI_Init first, and make sure that the "
                "program and this library use the same MPI");
  if (!running()) throw Error(ErrorCode::invalid_argument, "MPI is finalized; make communicators before MPI_Finalize");
}

}  // namespace penstock::mpi
