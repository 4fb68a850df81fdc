// The functions of MPI that initialise persistent collectives, those that start and free requests, and what sets the
// error handler of their failures.
#include <dlfcn.h>

#include "penstock/export.hpp"
#include "preload/call.hpp"
#include "preload/communicators.hpp"
#include "preload/dispatch.hpp"
#include "preload/errors.hpp"
#include "preload/own_calls.hpp"
#include "preload/persistent.hpp"

#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)

namespace penstock::preload {
namespace {

/// By name alone, so that this library can be loaded before an MPI without persistent collectives.
template <typename Function>
Function* next_by_name(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

template <typename Native>
int persistent(const Call& call, MPI_Request* request, Native native) {
  Communicator* const on = own_depth > 0 ? nullptr : communicator_of(call.comm);
  if (on == nullptr) return native();
  const char* reason = why_native(*on, call, Form::persistent);
  if (reason == nullptr) {
    try {
      reason = make_persistent(*on, call, request);
    } catch (const std::exception& error) {
      return raise(on->handle, error);
    }
    if (reason == nullptr) return MPI_SUCCESS;
  }
  on->tally(call.kind, Form::persistent).reason = reason;
  const int result = native();
  if (result == MPI_SUCCESS && settings().times) watch_native(*on, call, *request);
  return result;
}

}  // namespace
}  // namespace penstock::preload

#define PENSTOCK_INIT_LIST(...) __VA_ARGS__
#define PENSTOCK_REPLACE_INIT(function, row, parameters, arguments, ...)                                     \
  extern "C" PENSTOCK_API int function(PENSTOCK_INIT_LIST parameters, MPI_Info info, MPI_Request* request) { \
    using namespace penstock::preload;                                                                       \
    static auto* const native = next_by_name<decltype(function)>(#function);                                 \
    return persistent({.kind = penstock::CollectiveKind::row, __VA_ARGS__}, request,                         \
                      [&] { return native(PENSTOCK_INIT_LIST arguments, info, request); });                  \
  }

#define COUNT int
#define DISPLACEMENT int
#define PENSTOCK_OPERATION(large, small, parameters, arguments, ...) \
  PENSTOCK_REPLACE_INIT(MPI_##large##_init, small, parameters, arguments, __VA_ARGS__)
#include "preload/operations.def"
#undef PENSTOCK_OPERATION
#undef COUNT
#undef DISPLACEMENT

#if MPI_VERSION >= 4
#define COUNT MPI_Count
#define DISPLACEMENT MPI_Aint
#define PENSTOCK_LARGE_COUNTS
#define PENSTOCK_OPERATION(large, small, parameters, arguments, ...) \
  PENSTOCK_REPLACE_INIT(MPI_##large##_init_c, small, parameters, arguments, __VA_ARGS__)
#include "preload/operations.def"
#undef PENSTOCK_OPERATION
#undef PENSTOCK_LARGE_COUNTS
#undef COUNT
#undef DISPLACEMENT
#endif

#endif

using penstock::preload::next;

extern "C" PENSTOCK_API int MPI_Start(MPI_Request* request) {
  static auto* const native = next("MPI_Start", &PMPI_Start);
  const int result = native(request);
  if (result != MPI_SUCCESS || !penstock::preload::has_persistent()) return result;
  return penstock::preload::start_persistent(*request);
}

extern "C" PENSTOCK_API int MPI_Startall(int count, MPI_Request requests[]) {
  static auto* const native = next("MPI_Startall", &PMPI_Startall);
  const int result = native(count, requests);
  if (result != MPI_SUCCESS || !penstock::preload::has_persistent()) return result;
  for (int i = 0; i < count; ++i) penstock::preload::start_persistent(requests[i]);
  return MPI_SUCCESS;
}

extern "C" PENSTOCK_API int MPI_Request_free(MPI_Request* request) {
  static auto* const native = next("MPI_Request_free", &PMPI_Request_free);
  if (!penstock::preload::has_persistent()) return native(request);
  // First: MPI may give the handle to another thread's request.
  penstock::preload::forget_persistent(*request);
  return native(request);
}

/// MPI does not let collectives be cancelled. MPI itself would cancel the receive that stands for one.
extern "C" PENSTOCK_API int MPI_Cancel(MPI_Request* request) {
  static auto* const native = next("MPI_Cancel", &PMPI_Cancel);
  const MPI_Comm comm = penstock::preload::has_persistent() ? penstock::preload::served_on(*request) : MPI_COMM_NULL;
  if (comm == MPI_COMM_NULL) return native(request);
  PMPI_Comm_call_errhandler(comm, MPI_ERR_REQUEST);
  return MPI_ERR_REQUEST;
}

extern "C" PENSTOCK_API int MPI_Comm_set_errhandler(MPI_Comm comm, MPI_Errhandler handler) {
  static auto* const native = next("MPI_Comm_set_errhandler", &PMPI_Comm_set_errhandler);
  const int result = native(comm, handler);
  if (result == MPI_SUCCESS) penstock::preload::set_persistent_handler(comm, handler);
  return result;
}
