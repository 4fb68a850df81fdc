// The functions of MPI that this library replaces. Each serves the call or passes it to the next library with that
// name.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>

#include "penstock/error.hpp"
#include "penstock/export.hpp"
#include "preload/call.hpp"
#include "preload/communicators.hpp"
#include "preload/errors.hpp"
#include "preload/own_calls.hpp"
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
  std::fprintf(
      stderr,
      "penstock: this program's calls of MPI could not be intercepted (Fortran under an MPI whose Fortran interface "
      "does not call the C one, or an MPI that is loaded in a namespace of its own); all collectives were MPI's\n");
}

/// Measures a call, if there is to be a report.
class Timer {
 public:
  explicit Timer(std::uint64_t& total_ns) : total_ns_(settings().times ? &total_ns : nullptr) {
    if (total_ns_ != nullptr) begin_ = std::chrono::steady_clock::now();
  }
  ~Timer() {
    if (total_ns_ != nullptr)
      *total_ns_ += static_cast<std::uint64_t>((std::chrono::steady_clock::now() - begin_).count());
  }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

 private:
  std::uint64_t* total_ns_;
  std::chrono::steady_clock::time_point begin_{};
};

/// nullptr if Penstock serves the communicator now. All ranks of `on` come to the same answer: it depends on the number
/// of calls before this one, and on what MPI wants to be equal.
const char* why_native(Communicator& on, const Call& call, Form form) {
  const std::uint64_t before = on.calls++;
  if (on.penstock == nullptr) {
    if (!settings().serves) return "a broken option";
    if (!on.why_native.empty()) return on.why_native.c_str();
    if (before < settings().after || form != Form::blocking || !synchronises(call)) return "not prepared yet";
    prepare(on);
    if (on.penstock == nullptr) return on.why_native.c_str();
  }
  if (form == Form::blocking) return nullptr;
  if (settings().verifies) return "verification, which is for blocking calls";
  if (!has_progress_hook()) return "this MPI has no hook for progress";
  return on.one_node ? nullptr : "a job on several nodes";
}

template <typename Native>
int run_native(Communicator& on, const Call& call, Form form, const char* reason, Native native) {
  Tally& tally = on.tally(call.kind, form);
  ++tally.native;
  tally.reason = reason;
  if (settings().times) tally.native_bytes += payload_bytes(call, on.rank, on.ranks);
  const Timer timer(tally.native_ns);
  return native();
}

Request start(Communicator& on, const Translated& call) {
  Comm& comm = *on.penstock;
  if (call.items != nullptr) return comm.start_items(call.collective, call.items->send, call.items->receive);
  return comm.start(call.collective, call.input, call.output);
}

void run(Communicator& on, const Translated& call) {
  if (call.items != nullptr)
    start(on, call).wait();
  else
    on.penstock->run(call.collective, call.input, call.output);
}

/// Runs `action` in place of the program's call.
template <typename Action>
int serve(Communicator& on, const Call& call, Form form, Action action) {
  Tally& tally = on.tally(call.kind, form);
  ++tally.served;
  if (settings().times) tally.served_bytes += payload_bytes(call, on.rank, on.ranks);
  const Timer timer(tally.served_ns);
  try {
    return action();
  } catch (const std::exception& error) {
    return raise(on.handle, error);
  }
}

/// Gives the call to Penstock or to `native`. `action(on, translated)` runs it in Penstock.
template <typename Native, typename Action>
int dispatch(const Call& call, Form form, Native native, Action action) {
  Communicator* const on = own_depth > 0 ? nullptr : communicator_of(call.comm);
  if (on == nullptr) return native();
  const char* reason = why_native(*on, call, form);
  if (reason != nullptr) return run_native(*on, call, form, reason, native);
  Translated translated;
  try {
    const OwnCall own;
    reason = translate(call, on->rank, on->ranks, translated);
  } catch (const std::exception& error) {
    on->penstock->fail_next(error.what());  // the others must not wait for this rank
    return raise(on->handle, error);
  }
  if (reason != nullptr) return run_native(*on, call, form, reason, native);
  return serve(*on, call, form, [&] { return action(*on, translated); });
}

template <typename Native>
int blocking(const Call& call, Native native) {
  return dispatch(call, Form::blocking, native, [&](Communicator& on, const Translated& translated) -> int {
    const auto served = [&] {
      const OwnCall own;
      run(on, translated);
    };
    if (settings().verifies) return verify(on, call, on.tally(call.kind, Form::blocking), native, served);
    served();
    return MPI_SUCCESS;
  });
}

template <typename Native>
int nonblocking(const Call& call, MPI_Request* request, Native native) {
  return dispatch(call, Form::nonblocking, native, [&](Communicator& on, const Translated& translated) {
    Request started;
    {
      const OwnCall own;
      started = start(on, translated);
    }
    return make_request(std::move(started), request);
  });
}

}  // namespace
}  // namespace penstock::preload

#define PENSTOCK_LIST(...) __VA_ARGS__
#define PENSTOCK_TEXT_OF(text) #text
#define PENSTOCK_TEXT(text) PENSTOCK_TEXT_OF(text)
#define PENSTOCK_REPLACE(blocking_name, nonblocking_name, profiling, nonblocking_profiling, row, parameters, \
                         arguments, ...)                                                                     \
  extern "C" PENSTOCK_API int blocking_name parameters {                                                     \
    using namespace penstock::preload;                                                                       \
    static auto* const native = next(PENSTOCK_TEXT(blocking_name), &profiling);                              \
    return blocking({.kind = penstock::CollectiveKind::row, __VA_ARGS__}, [&] { return native arguments; }); \
  }                                                                                                          \
  extern "C" PENSTOCK_API int nonblocking_name(PENSTOCK_LIST parameters, MPI_Request* request) {             \
    using namespace penstock::preload;                                                                       \
    static auto* const native = next(PENSTOCK_TEXT(nonblocking_name), &nonblocking_profiling);               \
    return nonblocking({.kind = penstock::CollectiveKind::row, __VA_ARGS__}, request,                        \
                       [&] { return native(PENSTOCK_LIST arguments, request); });                            \
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
  static auto* const native = next("MPI_Init", &PMPI_Init);
  const int result = native(argc, argv);
  penstock::preload::sees_program = true;
  if (result == MPI_SUCCESS && penstock::preload::settings().serves) penstock::preload::begin_job();
  return result;
}

extern "C" PENSTOCK_API int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  static auto* const native = next("MPI_Init_thread", &PMPI_Init_thread);
  const int result = native(argc, argv, required, provided);
  penstock::preload::sees_program = true;
  if (result == MPI_SUCCESS && penstock::preload::settings().serves) penstock::preload::begin_job();
  return result;
}

extern "C" PENSTOCK_API int MPI_Finalize(void) {
  static auto* const native = next("MPI_Finalize", &PMPI_Finalize);
  penstock::preload::sees_program = true;
  penstock::preload::forget_all();
  penstock::preload::write_report(penstock::preload::settings().report);
  return native();
}
