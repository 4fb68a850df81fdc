#include "ucx/worker.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>
#include <utility>

#include "penstock/error.hpp"

namespace penstock::ucx {
namespace {

constexpr unsigned kMostSteps = 64;                     // of progress, so that a flood does not hold the caller
constexpr std::chrono::milliseconds kBetweenLooks{20};  // after messages for what this process has left
constexpr std::size_t kMostLeft = 256;                  // communicators whose peers get an answer
constexpr std::size_t kLongestAnswered = 4096;          // longer messages are dropped

/// Never destroyed: ranks may use it while the process ends.
std::atomic<Worker*> the_worker{nullptr};

}  // namespace

Worker* Worker::of_process() { return the_worker.load(std::memory_order_acquire); }

Worker& Worker::open_process(const std::vector<std::string>& candidates) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (Worker* const open = of_process()) return *open;
  auto* const made = new Worker(library(candidates));
  the_worker.store(made, std::memory_order_release);
  return *made;
}

void Worker::check(ucs_status_t status, const char* function) const {
  if (status != UCS_OK)
    throw Error(ErrorCode::io, std::string("UCX cannot be used here: ") + function + " failed", -1,
                api_.ucs_status_string(status));
}

Worker::Worker(const Library& library) : api_(library) {
  ucp_config_t* config = nullptr;
  check(api_.ucp_config_read(nullptr, nullptr, &config), "ucp_config_read");
  // By default UCX finds out after 20 s that a process has ended whose node it shares.
  if (std::getenv("UCX_KEEPALIVE_INTERVAL") == nullptr) api_.ucp_config_modify(config, "KEEPALIVE_INTERVAL", "1s");
  // UCX 1.20 aborts the program if it connects a second time to a process that has ended meanwhile.
  // Before 1.17 its settings of transports have no prefix here, and it warns on stdout of names that it does not know.
  if (std::getenv("UCX_TCP_MAX_CONN_RETRIES") == nullptr)
    api_.ucp_config_modify(config, api_.minor_version < 17 ? "MAX_CONN_RETRIES" : "TCP_MAX_CONN_RETRIES", "1");
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_TAG;
  const ucs_status_t status = api_.ucp_init_version(1, 13, &params, config, &context_);
  api_.ucp_config_release(config);
  check(status, "ucp_init");
  try {
    ucp_worker_params_t worker_params{};
    worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    worker_params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
    check(api_.ucp_worker_create(context_, &worker_params, &worker_), "ucp_worker_create");
    ucp_address_t* address = nullptr;
    std::size_t length = 0;
    check(api_.ucp_worker_get_address(worker_, &address, &length), "ucp_worker_get_address");
    address_.assign(reinterpret_cast<const char*>(address), length);
    api_.ucp_worker_release_address(worker_, address);
  } catch (...) {
    if (worker_ != nullptr) api_.ucp_worker_destroy(worker_);
    api_.ucp_cleanup(context_);
    throw;
  }
}

Worker::~Worker() {
  {
    const auto locked = lock();
    for (const auto& [address, endpoint] : endpoints_) {
      const ucs_status_ptr_t closing = close(*endpoint);
      if (is_request(closing)) {
        while (api_.ucp_request_check_status(closing) == UCS_INPROGRESS) api_.ucp_worker_progress(worker_);
        api_.ucp_request_free(closing);
      }
    }
  }
  api_.ucp_worker_destroy(worker_);
  api_.ucp_cleanup(context_);
  while (spare_ != nullptr) delete std::exchange(spare_, spare_->next);
}

Endpoint& Worker::endpoint(const std::string& address) {
  std::unique_ptr<Endpoint>& found = endpoints_[address];
  if (found != nullptr) return *found;
  found = std::make_unique<Endpoint>(*this);
  ucp_ep_params_t params{};
  params.field_mask =
      UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = &Worker::on_error;
  params.err_handler.arg = found.get();
  const ucs_status_t status = api_.ucp_ep_create(worker_, &params, &found->handle);
  if (status != UCS_OK) {  // usually because the process has ended
    found->handle = nullptr;
    found->has_failed = true;
    found->error = api_.ucs_status_string(status);
    found->is_gone.store(true, std::memory_order_release);
  }
  return *found;
}

// UCX forbids to close the endpoint, and to make progress, here. It may not have returned the handle yet.
void Worker::on_error(void* endpoint, ucp_ep_h, ucs_status_t status) {
  auto& failed = *static_cast<Endpoint*>(endpoint);
  if (failed.has_failed) return;
  failed.has_failed = true;
  failed.error = failed.worker.api_.ucs_status_string(status);
  failed.worker.is_failing_.store(true, std::memory_order_relaxed);
}

ucs_status_ptr_t Worker::close(Endpoint& endpoint) {
  if (endpoint.handle == nullptr) return nullptr;
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  return api_.ucp_ep_close_nbx(std::exchange(endpoint.handle, nullptr), &param);
}

// Of those that have failed nothing more can come.
void Worker::bury() {
  is_failing_.store(false, std::memory_order_relaxed);
  for (const auto& [address, endpoint] : endpoints_) {
    if (!endpoint->has_failed || endpoint->is_gone.load(std::memory_order_relaxed)) continue;
    if (const ucs_status_ptr_t closing = close(*endpoint); is_request(closing)) api_.ucp_request_free(closing);
    endpoint->is_gone.store(true, std::memory_order_release);
  }
}

bool Worker::progress() {
  unsigned steps = 0;
  while (steps < kMostSteps && api_.ucp_worker_progress(worker_) != 0) ++steps;
  if (steps == 0 && is_failing_.load(std::memory_order_relaxed)) bury();
  if (!left_.empty()) {
    const auto now = std::chrono::steady_clock::now();
    if (now - looked_ > kBetweenLooks) {
      looked_ = now;
      for (Left& left : left_) answer(left);
    }
  }
  return steps > 0;
}

Pending* Worker::take() {
  if (spare_ == nullptr) return new Pending;
  return std::exchange(spare_, spare_->next);
}

void Worker::give_back(Pending* pending) {
  *pending = {};
  pending->next = std::exchange(spare_, pending);
}

void Worker::on_sent(void* request, ucs_status_t status, void* given) {
  auto* const pending = static_cast<Pending*>(given);
  if (request != nullptr) pending->api->ucp_request_free(request);
  pending->request = nullptr;
  if (pending->owner != nullptr)
    pending->owner->on_done(*pending, status, pending->bytes, 0);
  else
    delete pending;
}

void Worker::on_received(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info, void* given) {
  auto* const pending = static_cast<Pending*>(given);
  const bool is_known = status == UCS_OK || status == UCS_ERR_MESSAGE_TRUNCATED;
  const ucp_tag_recv_info_t known = is_known ? *info : ucp_tag_recv_info_t{};  // part of the request
  if (request != nullptr) pending->api->ucp_request_free(request);
  pending->request = nullptr;
  if (pending->owner != nullptr)
    pending->owner->on_done(*pending, status, known.length, known.sender_tag);
  else
    delete pending;
}

bool Worker::send(Endpoint& to, ConstBytes from, std::uint64_t tag, Pending* pending) {
  if (to.has_failed) return true;
  pending->bytes = from.size();
  pending->api = &api_;
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.send = &Worker::on_sent;
  param.user_data = pending;
  const ucs_status_ptr_t started = api_.ucp_tag_send_nbx(to.handle, from.data(), from.size(), tag, &param);
  if (started == nullptr) return true;
  if (is_error(started)) {
    to.has_failed = true;
    to.error = api_.ucs_status_string(raw_status(started));
    to.handle = nullptr;  // left to UCX: 1.20 crashes when it closes a connection that it had not made yet
    is_failing_.store(true, std::memory_order_relaxed);
    return true;
  }
  pending->request = started;
  return false;
}

// Probed for first: UCX 1.13 does not say how long a message is that it has when the receive is posted.
void Worker::receive(Bytes to, std::uint64_t tag, std::uint64_t mask, Pending* pending) {
  if (receive_arrived(to, tag, mask, pending)) return;
  ucp_tag_recv_info_t info{};
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_RECV_INFO;
  param.cb.recv = &Worker::on_received;
  param.user_data = pending;
  param.recv_info.tag_info = &info;
  pending->receives = true;
  pending->api = &api_;
  const ucs_status_ptr_t started = api_.ucp_tag_recv_nbx(worker_, to.data(), to.size(), tag, mask, &param);
  if (is_request(started)) {
    pending->request = started;
    return;
  }
  on_received(nullptr, raw_status(started), &info, pending);
}

bool Worker::receive_arrived(Bytes to, std::uint64_t tag, std::uint64_t mask, Pending* pending) {
  ucp_tag_recv_info_t info{};
  const ucp_tag_message_h message = api_.ucp_tag_probe_nb(worker_, tag, mask, 1, &info);
  if (message == nullptr) return false;
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_RECV_INFO;
  param.cb.recv = &Worker::on_received;
  param.user_data = pending;
  ucp_tag_recv_info_t received = info;
  param.recv_info.tag_info = &received;
  pending->receives = true;
  pending->api = &api_;
  const ucs_status_ptr_t started = api_.ucp_tag_msg_recv_nbx(worker_, to.data(), to.size(), message, &param);
  if (is_request(started)) {
    pending->request = started;
    return true;
  }
  on_received(nullptr, raw_status(started), &info, pending);
  return true;
}

bool Worker::reserve_context(std::uint32_t context) {
  if (context < next_context_) return false;
  next_context_ = context + 1;
  return true;
}

void Worker::leave(Left left) {
  answer(left);
  left_.push_back(std::move(left));
  // Their numbers are not used again, so that what comes for older ones meets nobody.
  if (left_.size() > kMostLeft) left_.pop_front();
}

void Worker::answer(Left& left) {
  // Messages that a rank sends itself what it has left, or that it has in flight, end by themselves.
  for (;;) {
    ucp_tag_recv_info_t info{};
    const ucp_tag_message_h message = api_.ucp_tag_probe_nb(worker_, left.tag, left.mask, 1, &info);
    if (message == nullptr) return;
    auto memory = std::make_shared<std::vector<std::byte>>(std::min(info.length, kLongestAnswered));
    Pending* const dropped = new Pending;
    dropped->keep = memory;
    dropped->api = &api_;
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    param.cb.recv = &Worker::on_received;
    param.user_data = dropped;
    const ucs_status_ptr_t started =
        api_.ucp_tag_msg_recv_nbx(worker_, memory->data(), memory->size(), message, &param);
    if (is_request(started))
      dropped->request = started;
    else
      delete dropped;
    const std::uint64_t source = (info.sender_tag & ~left.mask) >> left.source_shift & ((std::uint64_t{1} << 20) - 1);
    const std::uint64_t own_field = source << left.source_shift;
    if (left.farewell.empty() || (info.sender_tag ^ own_field) != left.answered || source >= left.addresses->size() ||
        !left.told.insert(source).second)
      continue;
    auto packet = std::make_shared<std::vector<std::byte>>(left.farewell);
    Pending* const farewell = new Pending;
    farewell->keep = packet;
    if (send(endpoint((*left.addresses)[source]), *packet, left.answered | left.own_source << left.source_shift,
             farewell))
      delete farewell;
  }
}

void Worker::flush(std::chrono::milliseconds patience) noexcept {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  const auto locked = lock();
  ucp_request_param_t param{};
  const ucs_status_ptr_t flushing = api_.ucp_worker_flush_nbx(worker_, &param);
  if (!is_request(flushing)) return;
  while (api_.ucp_request_check_status(flushing) == UCS_INPROGRESS && std::chrono::steady_clock::now() < deadline)
    if (!progress()) std::this_thread::yield();
  api_.ucp_request_free(flushing);
}

}  // namespace penstock::ucx
