#include "preload/persistent.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "penstock/comm.hpp"
#include "preload/dispatch.hpp"
#include "preload/errors.hpp"
#include "preload/own_calls.hpp"
#include "preload/requests.hpp"

namespace penstock::preload {

/// MPI's communicator for the receives: this process alone.
struct Carrier {
  explicit Carrier(std::weak_ptr<Communicator> of);
  ~Carrier();
  Carrier(const Carrier&) = delete;
  Carrier& operator=(const Carrier&) = delete;

  MPI_Comm comm = MPI_COMM_NULL;
  std::weak_ptr<Communicator> serves;  ///< the communicator of the program, whose error handler counts
  std::atomic<int> failure{MPI_SUCCESS};
  std::atomic<bool> has_told{false};  ///< of a failure
};

namespace {

constexpr std::size_t kMostChannels = 64;  // one bit each in the ranks' agreement

/// All carriers of this process, for the error handler. Never destroyed: MPI_Finalize may run in an exit handler.
struct Carriers {
  std::mutex mutex;
  std::map<MPI_Comm, Carrier*> by_handle;
  MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
};

Carriers& carriers() {
  static auto* const made = new Carriers;
  return *made;
}

/// The message of a failed operation is longer than its receive. MPI then calls this: the failure becomes that of the
/// program's communicator.
extern "C" void penstock_preload_failed(MPI_Comm* comm, int* code, ...) {
  MPI_Comm told = MPI_COMM_SELF;
  {
    Carriers& all = carriers();
    const std::lock_guard lock(all.mutex);
    const auto at = all.by_handle.find(*comm);
    if (at == all.by_handle.end()) return;
    if (const int failure = at->second->failure.load(); failure != MPI_SUCCESS) *code = failure;
    if (const auto on = at->second->serves.lock()) told = on->handle;
  }
  PMPI_Comm_call_errhandler(told, *code);
}

void check(int result, const char* call) {
  if (result != MPI_SUCCESS) throw std::runtime_error(std::string(call) + " failed");
}

/// The handler of a carrier. MPICH forgets the failure if a handler returns. So where the program wants errors
/// returned, MPI returns its own, which has not Penstock's text.
void set_handler(MPI_Comm carrier, [[maybe_unused]] MPI_Errhandler of_program) {
  MPI_Errhandler handler = carriers().handler;
#ifndef OPEN_MPI
  if (of_program == MPI_ERRORS_RETURN) handler = MPI_ERRORS_RETURN;
#endif
  PMPI_Comm_set_errhandler(carrier, handler);
}

/// Fortran's interface may have set the handler of `comm`, which nothing intercepts.
void set_handler_as(MPI_Comm comm, MPI_Comm carrier) {
  MPI_Errhandler of_program = MPI_ERRHANDLER_NULL;
  check(PMPI_Comm_get_errhandler(comm, &of_program), "MPI_Comm_get_errhandler");
  set_handler(carrier, of_program);
  PMPI_Errhandler_free(&of_program);
}

}  // namespace

Carrier::Carrier(std::weak_ptr<Communicator> of) : serves(std::move(of)) {
  // Not a duplicate, which would run the program's copy callbacks of attributes.
  check(PMPI_Comm_split(MPI_COMM_SELF, 0, 0, &comm), "MPI_Comm_split");
  Carriers& all = carriers();
  const std::lock_guard lock(all.mutex);
  if (all.handler == MPI_ERRHANDLER_NULL) PMPI_Comm_create_errhandler(penstock_preload_failed, &all.handler);
  all.by_handle.emplace(comm, this);
}

Carrier::~Carrier() {
  {
    Carriers& all = carriers();
    const std::lock_guard lock(all.mutex);
    all.by_handle.erase(comm);
  }
  PMPI_Comm_free(&comm);
}

/// MPI lets the ranks start their persistent operations in different orders. So each has a communicator of Penstock's
/// for itself, until its request is freed.
struct Channel {
  Comm comm;
  std::shared_ptr<Carrier> carrier;
  int tag = 0;
  std::atomic<bool> is_free{true};

  Channel(Comm its_comm, std::shared_ptr<Carrier> its_carrier, int its_tag)
      : comm(std::move(its_comm)), carrier(std::move(its_carrier)), tag(its_tag) {}
};

namespace {

/// A persistent request.
struct PersistentRequest final : Watched {
  std::shared_ptr<Channel> channel{};  ///< nullptr: MPI made the request, and its starts are only counted
  Request operation{};                 ///< of the last start
  std::optional<Persistent> persistent{};
  std::weak_ptr<Communicator> on{};
  CollectiveKind kind{};
  std::uint64_t bytes = 0;
  // Protected by the lock of all.
  std::uint64_t starts = 0;
  std::uint64_t completions = 0;
  bool is_freed = false;

  ~PersistentRequest() {
    if (channel == nullptr) return;
    const OwnCall own;
    persistent.reset();
    channel->is_free = true;
  }
  bool test() override { return operation.test(); }
  bool may_be_complete() const noexcept override { return operation.done(); }
  int code_of_failure(const std::exception& error) noexcept override;
  void complete() override;
};

/// Never destroyed, as above.
struct All {
  std::mutex mutex;
  std::map<MPI_Request, std::unique_ptr<PersistentRequest>> by_request;
  std::atomic<std::size_t> count{0};  ///< of by_request
  std::vector<std::unique_ptr<PersistentRequest>>
      freed{};  ///< completed after they were freed, inside MPI, where nothing can end
};

All& all_requests() {
  static auto* const made = new All;
  return *made;
}

/// Also says it: not all functions of MPI that complete requests return a code with the text.
int PersistentRequest::code_of_failure(const std::exception& error) noexcept {
  if (!channel->carrier->has_told.exchange(true))
    std::fprintf(stderr, "penstock: a persistent collective failed: %s\n", error.what());
  return code_of(error);
}

void PersistentRequest::complete() {
  static const char byte = 0;
  const bool has_failed = result != MPI_SUCCESS;
  if (has_failed) channel->carrier->failure = result;
  operation = {};
  MPI_Request sent = MPI_REQUEST_NULL;
  PMPI_Isend(&byte, has_failed ? 1 : 0, MPI_BYTE, 0, channel->tag, channel->carrier->comm, &sent);
  if (sent != MPI_REQUEST_NULL) PMPI_Request_free(&sent);
  // From here on another thread may start it again.
  const std::lock_guard lock(all_requests().mutex);
  ++completions;
  if (is_freed) all_requests().freed.emplace_back(this);
}

void end_freed() {
  std::vector<std::unique_ptr<PersistentRequest>> ended;
  All& all = all_requests();
  const std::lock_guard lock(all.mutex);
  ended.swap(all.freed);
}

/// The channel that all ranks take, or nullptr if a rank cannot serve the call or all channels are taken.
std::shared_ptr<Channel> agreed_channel(Communicator& on, bool can_serve) {
  std::array<std::uint64_t, 2> mine{can_serve ? ~std::uint64_t{0} : 0, 0};
  for (std::size_t i = 0; i < on.channels.size(); ++i)
    if (on.channels[i]->is_free) mine[1] |= std::uint64_t{1} << i;
  std::array<std::uint64_t, 2> all{};
  check(PMPI_Allreduce(mine.data(), all.data(), 2, MPI_UINT64_T, MPI_BAND, on.handle), "MPI_Allreduce");
  if (all[0] == 0) return nullptr;
  for (std::size_t i = 0; i < on.channels.size(); ++i)
    if ((all[1] >> i & 1U) != 0) return on.channels[i];
  if (on.channels.size() == kMostChannels) return nullptr;
  auto carrier = on.channels.empty() ? std::make_shared<Carrier>(shared(on)) : on.channels.front()->carrier;
  on.channels.push_back(
      std::make_shared<Channel>(on.penstock->duplicate(), std::move(carrier), static_cast<int>(on.channels.size())));
  return on.channels.back();
}

void keep(MPI_Request request, std::unique_ptr<PersistentRequest> made) {
  All& all = all_requests();
  const std::lock_guard lock(all.mutex);
  all.by_request[request] = std::move(made);
  all.count = all.by_request.size();
}

void count(PersistentRequest& started, std::uint64_t Tally::*calls, std::uint64_t Tally::*bytes) {
  const auto on = started.on.lock();
  if (on == nullptr) return;
  Tally& tally = on->tally(started.kind, Form::persistent);
  ++(tally.*calls);
  tally.*bytes += started.bytes;
}

}  // namespace

const char* make_persistent(Communicator& on, const Call& call, MPI_Request* request) {
  end_freed();
  const OwnCall own;
  Translated translated;
  const char* reason = nullptr;
  try {
    reason = translate(call, on.members(), translated);
  } catch (const std::exception&) {
    reason = "no memory for its arguments";
  }
  const std::shared_ptr<Channel> channel = agreed_channel(on, reason == nullptr);
  if (reason != nullptr) return reason;
  if (channel == nullptr) return "too many persistent requests, or arguments that another rank leaves to MPI";
  set_handler_as(on.handle, channel->carrier->comm);
  auto made = std::make_unique<PersistentRequest>();
  made->channel = channel;
  channel->is_free = false;
  made->on = shared(on);
  made->kind = call.kind;
  made->bytes = settings().times ? payload_bytes(call, on.members()) : 0;
  const Comm& comm = channel->comm;
  if (translated.items != nullptr)
    made->persistent.emplace(
        comm.prepare_items(translated.collective, translated.items->send, translated.items->receive));
  else
    made->persistent.emplace(comm.prepare(translated.collective, translated.input, translated.output));
  check(PMPI_Recv_init(nullptr, 0, MPI_BYTE, 0, channel->tag, channel->carrier->comm, request), "MPI_Recv_init");
  keep(*request, std::move(made));
  return nullptr;
}

void watch_native(const Communicator& on, const Call& call, MPI_Request request) {
  auto made = std::make_unique<PersistentRequest>();
  made->on = shared(on);
  made->kind = call.kind;
  made->bytes = payload_bytes(call, on.members());
  keep(request, std::move(made));
}

bool has_persistent() noexcept { return all_requests().count.load(std::memory_order_acquire) > 0; }

int start_persistent(MPI_Request request) {
  PersistentRequest* started = nullptr;
  {
    All& all = all_requests();
    const std::lock_guard lock(all.mutex);
    const auto at = all.by_request.find(request);
    if (at == all.by_request.end()) return MPI_SUCCESS;
    started = at->second.get();
    if (started->channel == nullptr) {
      count(*started, &Tally::native, &Tally::native_bytes);
      return MPI_SUCCESS;
    }
    ++started->starts;
    count(*started, &Tally::served, &Tally::served_bytes);
  }
  started->result = MPI_SUCCESS;
  try {
    const OwnCall own;
    started->operation = started->persistent->start();
  } catch (const std::exception& error) {
    // The request completes with the failure, as one that fails later.
    started->result = started->code_of_failure(error);
    const OwnCall own;
    started->complete();
    return MPI_SUCCESS;
  }
  watch(*started);
  return MPI_SUCCESS;
}

void set_persistent_handler(MPI_Comm comm, MPI_Errhandler handler) {
  std::vector<MPI_Comm> beside;
  {
    Carriers& all = carriers();
    const std::lock_guard lock(all.mutex);
    for (const auto& [its_comm, carrier] : all.by_handle) {
      const auto on = carrier->serves.lock();
      if (on != nullptr && on->handle == comm) beside.push_back(its_comm);
    }
  }
  for (const MPI_Comm each : beside) set_handler(each, handler);
}

MPI_Comm served_on(MPI_Request request) {
  All& all = all_requests();
  const std::lock_guard lock(all.mutex);
  const auto at = all.by_request.find(request);
  if (at == all.by_request.end() || at->second->channel == nullptr) return MPI_COMM_NULL;
  const auto on = at->second->on.lock();
  return on != nullptr ? on->handle : MPI_COMM_SELF;
}

void forget_persistent(MPI_Request request) {
  end_freed();
  std::unique_ptr<PersistentRequest> ended;
  All& all = all_requests();
  const std::lock_guard lock(all.mutex);
  const auto at = all.by_request.find(request);
  if (at == all.by_request.end()) return;
  ended = std::move(at->second);
  all.by_request.erase(at);
  all.count = all.by_request.size();
  if (ended->starts == ended->completions) return;
  ended->is_freed = true;
  static_cast<void>(ended.release());  // complete() deletes it
}

void forget_persistent() {
  end_freed();
  std::map<MPI_Request, std::unique_ptr<PersistentRequest>> ended;
  All& all = all_requests();
  const std::lock_guard lock(all.mutex);
  ended.swap(all.by_request);
  all.count = 0;
  for (auto& [request, made] : ended)
    if (made->starts != made->completions) static_cast<void>(made.release());  // it would be waited for
}

}  // namespace penstock::preload
