// This process's part of the network: one UCX worker, which all its groups share, and its connections.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "penstock/types.hpp"
#include "ucx/library.hpp"

namespace penstock::ucx {

class Worker;

/// A connection to another process. Made when something is first sent there; never removed.
struct Endpoint {
  explicit Endpoint(Worker& of_worker) : worker(of_worker) {}

  Worker& worker;
  ucp_ep_h handle = nullptr;
  /// UCX has reported an error of the connection. What is sent afterwards is lost.
  bool has_failed = false;
  /// It has failed, and all that came before has been received.
  std::atomic<bool> is_gone{false};
  std::string error{};
};

/// A send or receive that UCX has. Owned by UCX's callback, or by the worker's list of spare ones.
struct Pending {
  /// What becomes of it. Called with the worker's lock; `length` is what was sent.
  class Owner {
   public:
    virtual void on_done(Pending& done, ucs_status_t status, std::uint64_t length, std::uint64_t tag) noexcept = 0;

   protected:
    ~Owner() = default;
  };
  Owner* owner = nullptr;  ///< nullptr: it has left
  const Library* api = nullptr;
  std::uint32_t token = 0;
  int peer = 0;
  bool receives = false;
  bool is_lost = false;  ///< a receive that failed; its owner keeps it until it is cancelled
  std::uint64_t bytes = 0;
  void* request = nullptr;
  std::shared_ptr<void> keep{};  ///< memory that belongs to the message
  Pending* next = nullptr;
  Pending* previous = nullptr;
};

/// What all members need to exchange messages: of each rank the address.
using Addresses = std::shared_ptr<const std::vector<std::string>>;

class Worker {
 public:
  /// That of this process, which lives until it ends. ucx::open() makes it; nullptr before.
  static Worker* of_process();
  static Worker& open_process(const std::vector<std::string>& candidates);

  /// Tests make several, as if they were processes.
  explicit Worker(const Library& library);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  const std::string& address() const { return address_; }
  const Library& api() const { return api_; }
  [[nodiscard]] std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }

  // The others need the lock.

  Endpoint& endpoint(const std::string& address);
  std::size_t connections() const { return endpoints_.size(); }
  /// Whether something moved.
  bool progress();
  Pending* take();
  void give_back(Pending* pending);
  /// True if it is complete. The message of a connection that has failed is lost, and complete.
  bool send(Endpoint& to, ConstBytes from, std::uint64_t tag, Pending* pending);
  /// Calls the owner at once if the message is there.
  void receive(Bytes to, std::uint64_t tag, std::uint64_t mask, Pending* pending);
  /// False if there is none.
  bool receive_arrived(Bytes to, std::uint64_t tag, std::uint64_t mask, Pending* pending);
  void cancel(Pending& pending) {
    if (pending.request != nullptr) api_.ucp_request_cancel(worker_, pending.request);
  }

  /// The number of a communicator: proposes one that this process has not used.
  std::uint32_t propose_context() const { return next_context_; }
  /// False if it was used meanwhile.
  bool reserve_context(std::uint32_t context);

  /// Tags under which this process receives nothing any more. Who sends something under `answered` gets the farewell.
  struct Left {
    std::uint64_t tag = 0;
    std::uint64_t mask = 0;
    std::uint64_t source_shift = 0;
    std::uint64_t own_source = 0;
    std::uint64_t answered = 0;  ///< without the source
    std::vector<std::byte> farewell{};
    Addresses addresses{};
    std::set<std::uint64_t> told{};
  };
  void leave(Left left);

  void flush(std::chrono::milliseconds patience) noexcept;

 private:
  static void on_error(void* endpoint, ucp_ep_h handle, ucs_status_t status);
  static void on_sent(void* request, ucs_status_t status, void* pending);
  static void on_received(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info, void* pending);
  void check(ucs_status_t status, const char* function) const;
  void answer(Left& left);
  /// What UCX returns: nullptr or an error if it is closed, otherwise a request.
  ucs_status_ptr_t close(Endpoint& endpoint);
  void bury();

  const Library& api_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  std::string address_;
  std::mutex mutex_;
  std::unordered_map<std::string, std::unique_ptr<Endpoint>> endpoints_;
  std::atomic<bool> is_failing_{false};  ///< an endpoint has failed and is not gone
  Pending* spare_ = nullptr;
  std::uint32_t next_context_ = 1;
  std::deque<Left> left_;
  std::chrono::steady_clock::time_point looked_;
};

}  // namespace penstock::ucx
