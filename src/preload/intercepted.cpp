// The functions of MPI that this library replaces. Each serves the call or passes it to the next library with that
// name. Persistent operations: persistent_intercepted.cpp; files: intercepted_files.cpp.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "penstock/export.hpp"
#include "preload/call.hpp"
#include "preload/communicators.hpp"
#include "preload/dispatch.hpp"
#include "preload/fortran.hpp"
#include "preload/own_calls.hpp"
#include "preload/persistent.hpp"
#include "preload/report.hpp"
#include "preload/requests.hpp"
#include "preload/settings.hpp"
#include "preload/verify.hpp"

namespace penstock::preload {
namespace {

/// Whether the program's MPI_Init or MPI_Finalize came here.
bool sees_program = false;

/// The launcher's rank 0, or a process without a launcher. MPI cannot be asked any more.
bool is_first_process() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"})
    if (const char* rank = std::getenv(name)) return std::strcmp(rank, "0") == 0;
  return true;
}

/// At exit: MPI was used, but not through this library.
__attribute__((destructor)) void say_if_not_intercepted() {
  int initialized = 0;
  if (sees_program || PMPI_Initialized(&initialized) != MPI_SUCCESS || initialized == 0) return;
  const char* report = std::getenv("PENSTOCK_PRELOAD_REPORT");
  if (report == nullptr || *report == '\0' || !is_first_process()) return;
  std::fprintf(stderr,
               "penstock: this program's calls of MPI could not be intercepted (Fortran by an interface that is "
               "not known, or an MPI that is loaded in a namespace of its own); all collectives were MPI's\n");
}

template <typename Native>
int blocking(const Lookup& looked, const Call& call, const Native& native) {
  return dispatch(looked, call, Form::blocking, native, [&](Communicator& on, const Translated& translated) -> int {
    const auto served = [&] {
      const OwnCall own;
      run(on, translated);
    };
    if (on.verifies) return verify(on, call, on.tally(call.kind, Form::blocking), native, served);
    served();
    return MPI_SUCCESS;
  });
}

template <typename Native>
int nonblocking(const Lookup& looked, const Call& call, MPI_Request* request, const Native& native) {
  return dispatch(looked, call, Form::nonblocking, native, [&](Communicator& on, const Translated& translated) {
    Request started;
    {
      const OwnCall own;
      started = start(on, translated);
    }
    return make_request(std::move(started), request);
  });
}

void end_job() {
  forget_all();
  write_report(settings().report);
}

extern "C" int penstock_preload_end_job(MPI_Comm, int, void*, void*) {
  end_job();
  return MPI_SUCCESS;
}

bool ends_with_attributes = false;

/// MPI_Finalize first deletes the attributes of MPI_COMM_SELF, the one first that was set last. Those of the program
/// may close files (HDF5's does), so the job ends with one that was set before.
void end_job_with_attributes() {
  int key = MPI_KEYVAL_INVALID;
  if (PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, penstock_preload_end_job, &key, nullptr) != MPI_SUCCESS) return;
  ends_with_attributes = PMPI_Comm_set_attr(MPI_COMM_SELF, key, nullptr) == MPI_SUCCESS;
  PMPI_Comm_free_keyval(&key);
}

int initialized(int result) {
  sees_program = true;
  if (result != MPI_SUCCESS) return result;
  end_job_with_attributes();
  begin_job();
  return result;
}

}  // namespace
}  // namespace penstock::preload

#define PENSTOCK_LIST(...) __VA_ARGS__
#define PENSTOCK_TEXT_OF(text) #text
#define PENSTOCK_TEXT(text) PENSTOCK_TEXT_OF(text)
#define PENSTOCK_REPLACE(blocking_name, nonblocking_name, profiling, nonblocking_profiling, row, parameters,         \
                         arguments, ...)                                                                             \
  extern "C" PENSTOCK_API int blocking_name parameters {                                                             \
    using namespace penstock::preload;                                                                               \
    static auto* const native = next(PENSTOCK_TEXT(blocking_name), &profiling);                                      \
    const Lookup looked = look({.kind = penstock::CollectiveKind::row, __VA_ARGS__}, Form::blocking);                \
    if (looked.passes) return native arguments;                                                                      \
    return blocking(looked, {.kind = penstock::CollectiveKind::row, __VA_ARGS__}, [=] { return native arguments; }); \
  }                                                                                                                  \
  extern "C" PENSTOCK_API int nonblocking_name(PENSTOCK_LIST parameters, MPI_Request* request) {                     \
    using namespace penstock::preload;                                                                               \
    static auto* const native = next(PENSTOCK_TEXT(nonblocking_name), &nonblocking_profiling);                       \
    if (passes_nonblocking) return native(PENSTOCK_LIST arguments, request);                                         \
    const Lookup looked = look({.kind = penstock::CollectiveKind::row, __VA_ARGS__}, Form::nonblocking);             \
    if (looked.passes) return native(PENSTOCK_LIST arguments, request);                                              \
    return nonblocking(looked, {.kind = penstock::CollectiveKind::row, __VA_ARGS__}, request,                        \
                       [=] { return native(PENSTOCK_LIST arguments, request); });                                    \
  }

#define COUNT int
#define DISPLACEMENT int
#define PENSTOCK_OPERATION(large, small, parameters, arguments, ...) \
  PENSTOCK_REPLACE(MPI_##large, MPI_I##small, PMPI_##large, PMPI_I##small, small, parameters, arguments, __VA_ARGS__)
#include "preload/operations.def"
#undef PENSTOCK_OPERATION
#undef COUNT
#undef DISPLACEMENT

#if MPI_VERSION >= 4
#define COUNT MPI_Count
#define DISPLACEMENT MPI_Aint
#define PENSTOCK_LARGE_COUNTS
#define PENSTOCK_OPERATION(large, small, parameters, arguments, ...)                                          \
  PENSTOCK_REPLACE(MPI_##large##_c, MPI_I##small##_c, PMPI_##large##_c, PMPI_I##small##_c, small, parameters, \
                   arguments, __VA_ARGS__)
#include "preload/operations.def"
#undef PENSTOCK_OPERATION
#undef PENSTOCK_LARGE_COUNTS
#undef COUNT
#undef DISPLACEMENT
#endif

using penstock::preload::next;

extern "C" PENSTOCK_API int MPI_Init(int* argc, char*** argv) {
  penstock::preload::lead_fortran_here();
  static auto* const native = next("MPI_Init", &PMPI_Init);
  return penstock::preload::initialized(native(argc, argv));
}

extern "C" PENSTOCK_API int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  penstock::preload::lead_fortran_here();
  static auto* const native = next("MPI_Init_thread", &PMPI_Init_thread);
  return penstock::preload::initialized(native(argc, argv, required, provided));
}

#ifndef OPEN_MPI
/// MPICH 5.0 ends the job (an assertion in its MPI_Waitall) if a list has MPI_REQUEST_NULL beside a generalized request
/// that is not complete yet.
extern "C" PENSTOCK_API int MPI_Waitall(int count, MPI_Request requests[], MPI_Status statuses[]) {
  static auto* const native = next("MPI_Waitall", &PMPI_Waitall);
  const bool has_null = penstock::preload::in_flight() > 0 && count > 0 &&
                        std::find(requests, requests + count, MPI_REQUEST_NULL) != requests + count;
  return has_null ? penstock::preload::wait_all_without_null(count, requests, statuses, native)
                  : native(count, requests, statuses);
}
#endif

extern "C" PENSTOCK_API int MPI_Finalize(void) {
  static auto* const native = next("MPI_Finalize", &PMPI_Finalize);
  penstock::preload::sees_program = true;
  penstock::preload::forget_persistent();
  penstock::preload::forget_all();
  if (!penstock::preload::ends_with_attributes) penstock::preload::end_job();
  return native();
}
