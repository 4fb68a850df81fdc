#include "preload/requests.hpp"

#include <dlfcn.h>

#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "preload/errors.hpp"
#include "preload/in_order.hpp"
#include "preload/own_calls.hpp"

namespace penstock::preload {
namespace {

/// The state of a generalized request. MPI frees it when the request has completed and the program has seen it.
struct Started final : Watched {
  explicit Started(std::unique_ptr<Operation> its_operation) : operation(std::move(its_operation)) {}

  std::unique_ptr<Operation> operation;
  MPI_Request request = MPI_REQUEST_NULL;

  bool test() override { return operation->test(); }
  bool may_be_complete() const noexcept override { return operation->may_be_complete(); }
  int code_of_failure(const std::exception& error) noexcept override { return operation->code_of_failure(error); }
  void complete() override { PMPI_Grequest_complete(request); }
};

class CollectiveOperation : public Operation {
 public:
  explicit CollectiveOperation(Request request) : request_(std::move(request)) {}
  bool test() override { return request_.test(); }
  bool may_be_complete() const noexcept override { return request_.done(); }
  void wait() override { request_.wait(); }
  int cancel() noexcept override { return MPI_ERR_REQUEST; }  // which MPI forbids

 private:
  Request request_;
};

extern "C" int penstock_preload_query(void* state, MPI_Status* status) {
  const auto* const started = static_cast<const Started*>(state);
  PMPI_Status_set_elements_x(status, MPI_BYTE, static_cast<MPI_Count>(started->operation->bytes()));
  PMPI_Status_set_cancelled(status, 0);
  status->MPI_SOURCE = MPI_UNDEFINED;
  status->MPI_TAG = MPI_UNDEFINED;
  return started->result;
}

extern "C" int penstock_preload_free(void* state) {
  const OwnCall own;
  delete static_cast<Started*>(state);
  return MPI_SUCCESS;
}

extern "C" int penstock_preload_cancel(void* state, int) { return static_cast<Started*>(state)->operation->cancel(); }

/// All operations of this process that are in flight. Never destroyed: MPI_Finalize may run in an exit handler.
class InFlight {
 public:
  static InFlight& of_process() {
    static auto* const made = new InFlight;
    return *made;
  }

  /// Returns whether MPI must be told to call the hook again.
  bool add(Watched* started) {
    const std::lock_guard lock(mutex_);
    started_.push_back(started);
    count_.store(started_.size(), std::memory_order_release);
    return !std::exchange(is_hooked_, true);
  }

  std::size_t count() const noexcept { return count_.load(std::memory_order_acquire); }

  /// How many have completed. Does nothing on a thread that is inside Penstock, or while another thread does it.
  int progress() {
    if (count() == 0 || own_depth > 0) return 0;
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock()) return 0;
    const OwnCall own;
    const std::size_t completed = test_in_order(started_, has_completed, [](Watched& started) { started.complete(); });
    count_.store(started_.size(), std::memory_order_release);
    return static_cast<int>(completed);
  }

  /// Both try: the prober holds a lock of Penstock and may wait for MPI's, which a thread in the hook may hold.
  int probe(int source, int tag, MPI_Comm comm, int* found, MPI_Status* status) {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    *found = 0;
    if (!lock.owns_lock()) return MPI_SUCCESS;
    const OwnCall own;
    return PMPI_Iprobe(source, tag, comm, found, status);
  }

  /// Whether the hook can end. A later add() asks for a new one.
  bool unhook_if_idle() {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock() || !started_.empty()) return false;
    is_hooked_ = false;
    return true;
  }

 private:
  static bool has_completed(Watched& started) noexcept {
    try {
      return started.test();
    } catch (const std::exception& error) {
      started.result = started.code_of_failure(error);
      return true;
    }
  }

  std::mutex mutex_;
  std::vector<Watched*> started_;  ///< in the order of their start
  std::atomic<std::size_t> count_{0};
  bool is_hooked_ = false;
};

#ifdef OPEN_MPI
using Callback = int (*)();
using Register = int (*)(Callback);

Register opal_register() {
  static const auto found = reinterpret_cast<Register>(dlsym(RTLD_DEFAULT, "opal_progress_register"));
  return found;
}

int progress_of_open_mpi() { return InFlight::of_process().progress(); }

void hook() {
  static std::once_flag once;  // stays: it costs a load where nothing is in flight
  std::call_once(once, [] { opal_register()(progress_of_open_mpi); });
}
#else
// MPICH since 4.3 (MPIX_Async_start). Looked up, since Intel MPI and the standard ABI share the other names with it.
enum : int { kNoProgress = 0, kDone = 1 };
using Thing = void*;
using Poll = int (*)(Thing);
#if defined(MPICH) && defined(MPIX_STREAM_NULL)
using Stream = MPIX_Stream;
const Stream kNoStream = MPIX_STREAM_NULL;
#else
using Stream = int;
constexpr Stream kNoStream = 0;
#endif
using AsyncStart = int (*)(Poll, void*, Stream);

AsyncStart async_start() {
#if defined(MPICH) && defined(MPIX_STREAM_NULL)
  static const auto found = reinterpret_cast<AsyncStart>(dlsym(RTLD_DEFAULT, "PMPIX_Async_start"));
  return found;
#else
  return nullptr;
#endif
}

int progress_of_mpich(Thing) {
  InFlight& all = InFlight::of_process();
  all.progress();
  return own_depth == 0 && all.unhook_if_idle() ? kDone : kNoProgress;
}

void hook() { async_start()(progress_of_mpich, nullptr, kNoStream); }
#endif

}  // namespace

bool has_progress_hook() {
#ifdef OPEN_MPI
  return opal_register() != nullptr;
#else
  return async_start() != nullptr;
#endif
}

int probe_outside_hook(int source, int tag, MPI_Comm comm, int* found, MPI_Status* status) {
  return InFlight::of_process().probe(source, tag, comm, found, status);
}

std::size_t in_flight() noexcept { return InFlight::of_process().count(); }

int wait_all_without_null(int count, MPI_Request* requests, MPI_Status* statuses,
                          int (*wait_all)(int, MPI_Request*, MPI_Status*)) {
  const bool has_statuses = statuses != MPI_STATUSES_IGNORE;
  std::vector<int> places;
  for (int i = 0; i < count; ++i) {
    if (requests[i] != MPI_REQUEST_NULL)
      places.push_back(i);
    else if (has_statuses)
      wait_all(1, &requests[i], &statuses[i]);
  }
  std::vector<MPI_Request> others;
  std::vector<MPI_Status> theirs;
  for (const int place : places) {
    others.push_back(requests[place]);
    if (has_statuses) theirs.push_back(statuses[place]);  // MPI leaves some of a status as it was
  }
  const int result =
      wait_all(static_cast<int>(others.size()), others.data(), has_statuses ? theirs.data() : MPI_STATUSES_IGNORE);
  for (std::size_t i = 0; i < places.size(); ++i) {
    requests[places[i]] = others[i];
    if (has_statuses) statuses[places[i]] = theirs[i];
  }
  return result;
}

int Operation::code_of_failure(const std::exception& error) noexcept { return code_of(error); }

int Watched::code_of_failure(const std::exception& error) noexcept { return code_of(error); }

void watch(Watched& started) {
  if (InFlight::of_process().add(&started)) hook();
}

int make_request(Request operation, MPI_Request* request) {
  return make_request(std::make_unique<CollectiveOperation>(std::move(operation)), request);
}

int make_request(std::unique_ptr<Operation> operation, MPI_Request* request) {
  auto* const started = new Started(std::move(operation));
  const int result = PMPI_Grequest_start(penstock_preload_query, penstock_preload_free, penstock_preload_cancel,
                                         started, &started->request);
  if (result != MPI_SUCCESS) {
    const OwnCall own;
    delete started;  // waits for the operation
    return result;
  }
  *request = started->request;
  if (has_progress_hook()) {
    watch(*started);
  } else {
    const OwnCall own;
    try {
      started->operation->wait();
    } catch (const std::exception& error) {
      started->result = started->code_of_failure(error);
    }
    PMPI_Grequest_complete(*request);
  }
  return MPI_SUCCESS;
}

}  // namespace penstock::preload
