#include "mpi/transport.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "mpi/at_finalize.hpp"
#include "mpi/check.hpp"
#include "mpi/collective_settings.hpp"
#include "mpi/graph.hpp"
#include "mpi/native.hpp"
#include "mpi/ranks.hpp"
#include "mpi/yields.hpp"
#include "penstock/error.hpp"

#ifdef MPICH_NUMVERSION
// MPICH's extension. Other libraries of its ABI lack it.
extern "C" int MPIX_Request_is_complete(MPI_Request) __attribute__((weak));
#endif

namespace penstock::mpi {
namespace {

/// What is_pending() knows without a call that moves messages, as MPI_Test is: a system call over TCP.
bool is_surely_pending([[maybe_unused]] MPI_Request request) {
#ifdef MPICH_NUMVERSION
  return MPIX_Request_is_complete != nullptr && MPIX_Request_is_complete(request) == 0;
#else
  return false;
#endif
}

/// MPI_Test. Open MPI's looks at the request, moves messages, and does not always look again, so it may report what it
/// has received a call late; its MPI_Request_get_status looks again.
int test(MPI_Request& request, int& is_complete, MPI_Status& status) {
#ifdef OPEN_MPI
  if (MPI_Request_get_status(request, &is_complete, MPI_STATUS_IGNORE) == MPI_SUCCESS && is_complete == 0)
    return MPI_SUCCESS;
#endif
  return MPI_Test(&request, &is_complete, &status);
}

/// "MPICH Version:      5.0.2\nMPICH Release date: …" and "Open MPI v5.0.11, package: …" without what follows.
std::string short_version(std::string_view text) {
  text = text.substr(0, text.find_first_of(",\n"));
  std::string result;
  for (const char letter : text) {
    const bool space = letter == ' ' || letter == '\t';
    if (space && (result.empty() || result.back() == ' ')) continue;
    result += space ? ' ' : letter;
  }
  return result;
}

const std::string& library_version() {
  static const std::string known = [] {
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    check(MPI_Get_library_version(version, &length), "MPI_Get_library_version");
    return short_version({version, static_cast<std::size_t>(length)});
  }();
  return known;
}

/// Count and type of so many bytes, which an int may not hold. Any two shapes of as many bytes match.
class Shape {
 public:
  Shape(std::uint64_t bytes, std::uint64_t piece_bytes) {
    if (bytes <= piece_bytes) {
      count_ = static_cast<int>(bytes);
      return;
    }
    MPI_Datatype pieces = MPI_DATATYPE_NULL;
    const auto piece = static_cast<int>(piece_bytes);
    const std::uint64_t whole = bytes / piece_bytes;
    check(MPI_Type_vector(static_cast<int>(whole), piece, piece, MPI_BYTE, &pieces), "MPI_Type_vector");
    const std::array<int, 2> lengths{1, static_cast<int>(bytes % piece_bytes)};
    const std::array<MPI_Aint, 2> places{0, static_cast<MPI_Aint>(whole * piece_bytes)};
    const std::array<MPI_Datatype, 2> types{pieces, MPI_BYTE};
    const int result = MPI_Type_create_struct(2, lengths.data(), places.data(), types.data(), &made_);
    MPI_Type_free(&pieces);
    check(result, "MPI_Type_create_struct");
    check(MPI_Type_commit(&made_), "MPI_Type_commit");
  }
  ~Shape() {
    if (made_ != MPI_DATATYPE_NULL) MPI_Type_free(&made_);
  }
  Shape(const Shape&) = delete;
  Shape& operator=(const Shape&) = delete;

  int count() const { return count_; }
  MPI_Datatype type() const { return made_ == MPI_DATATYPE_NULL ? MPI_BYTE : made_; }

 private:
  int count_ = 1;
  MPI_Datatype made_ = MPI_DATATYPE_NULL;
};

/// Communicators that have been given up here. MPI names a later one like a freed one, and would give it what a rank
/// has sent that no other has received: messages of calls that did not fit, and what ranks tell when they leave. So a
/// communicator is freed only when this rank has received all that was sent to it. Two sums over the ranks tell: the
/// first is complete when all ranks have given the communicator up. Until then this rank answers those that still wait
/// for it, whenever MPI is called here, and in MPI_Finalize, which waits for all anyway. The second sum is that of the
/// answers.
class Retired {
 public:
  struct Entry {
    explicit Entry(int size) : sent(static_cast<std::size_t>(size)), answers(sent) {}

    MPI_Comm comm = MPI_COMM_NULL;
    std::vector<std::uint32_t> sent;  ///< messages to each rank; modulo 2^32, as all counts here
    std::uint32_t received = 0;       ///< from all ranks
    bool may_free = false;
    std::vector<std::byte> farewell;
    int farewell_tag = 0;
    std::vector<std::uint32_t> answers;  ///< as `sent`
    enum class Summed : std::uint8_t { nothing, sent, all } summed = Summed::nothing;
    std::uint32_t sum = 0;
    std::uint32_t sent_here = 0;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  /// Of one communicator. A list, so that a rank short of memory can give it up.
  using Record = std::list<Entry>;

  /// Never destroyed: MPI_Finalize may run in an exit handler.
  static Retired& of_process() {
    static auto* const retired = new Retired;
    return *retired;
  }

  void add(Record&& given) noexcept {
    const std::lock_guard lock(mutex_);
    if (!start_sum(given.front(), given.front().sent)) return;
    all_.splice(all_.end(), given);
    look_locked();
  }

  void look() noexcept {
    const std::lock_guard lock(mutex_);
    look_locked();
  }

  /// For calls that are made all the time.
  void look_now_and_then() noexcept {
    if (is_empty_.load(std::memory_order_relaxed)) return;
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (lock.owns_lock() && std::chrono::steady_clock::now() - looked_ > kBetweenLooks) look_locked();
  }

 private:
  static constexpr std::chrono::milliseconds kBetweenLooks{20};

  static bool start_sum(Entry& entry, const std::vector<std::uint32_t>& counts) noexcept {
    return MPI_Ireduce_scatter_block(counts.data(), &entry.sum, 1, MPI_UINT32_T, MPI_SUM, entry.comm, &entry.request) ==
           MPI_SUCCESS;
  }

  /// Receives what has come for nobody, and answers.
  static void answer(Entry& entry) noexcept {
    for (int found = 1; found != 0;) {
      MPI_Status status;
      int bytes = 0;
      if (MPI_Iprobe(MPI_ANY_SOURCE, entry.farewell_tag, entry.comm, &found, &status) != MPI_SUCCESS) return;
      if (found == 0) return;
      if (MPI_Get_count(&status, MPI_BYTE, &bytes) != MPI_SUCCESS) return;
      const std::unique_ptr<std::byte[]> packet(new (std::nothrow) std::byte[static_cast<std::size_t>(bytes)]);
      if (packet == nullptr) return;  // until the next look
      if (MPI_Recv(packet.get(), bytes, MPI_BYTE, status.MPI_SOURCE, entry.farewell_tag, entry.comm,
                   MPI_STATUS_IGNORE) != MPI_SUCCESS)
        return;
      ++entry.received;
      if (entry.summed != Entry::Summed::nothing) continue;  // all have left
      MPI_Request answer = MPI_REQUEST_NULL;
      // So short that MPI copies it at once.
      if (MPI_Isend(entry.farewell.data(), static_cast<int>(entry.farewell.size()), MPI_BYTE, status.MPI_SOURCE,
                    entry.farewell_tag, entry.comm, &answer) != MPI_SUCCESS)
        continue;
      ++entry.answers[static_cast<std::size_t>(status.MPI_SOURCE)];
      MPI_Request_free(&answer);
    }
  }

  /// Returns whether nothing is left to do for it.
  static bool has_ended(Entry& entry) noexcept {
    if (!entry.farewell.empty()) answer(entry);
    while (entry.summed != Entry::Summed::all) {
      int is_complete = 0;
      if (MPI_Test(&entry.request, &is_complete, MPI_STATUS_IGNORE) != MPI_SUCCESS) return true;
      if (is_complete == 0) return false;
      entry.sent_here += entry.sum;
      entry.summed = entry.summed == Entry::Summed::nothing ? Entry::Summed::sent : Entry::Summed::all;
      if (entry.summed == Entry::Summed::sent && !start_sum(entry, entry.answers)) return true;
    }
    if (!entry.may_free) return true;
    if (!entry.farewell.empty()) answer(entry);
    if (entry.received != entry.sent_here) return false;
    MPI_Comm_free(&entry.comm);
    return true;
  }

  void look_locked() noexcept {
    if (!running()) return;
    looked_ = std::chrono::steady_clock::now();
    all_.remove_if(has_ended);
    is_empty_.store(all_.empty(), std::memory_order_relaxed);
  }

  void finish() noexcept {
    const auto is_known = [](const Entry& entry) { return entry.summed == Entry::Summed::all; };
    for (;;) {
      {
        const std::lock_guard lock(mutex_);
        look_locked();
        if (std::ranges::all_of(all_, is_known)) return;
      }
      std::this_thread::yield();
    }
  }

  std::mutex mutex_;
  std::list<Entry> all_;
  std::atomic<bool> is_empty_{true};
  std::chrono::steady_clock::time_point looked_;
  AtFinalize at_finalize_{[this] { finish(); }, AtFinalize::last};
};

/// For what is nearly always free: a mutex takes several times as long then.
class SpinLock {
 public:
  void lock() noexcept {
    while (is_taken_.exchange(true, std::memory_order_acquire)) std::this_thread::sleep_for(kWait);
  }
  void unlock() noexcept { is_taken_.store(false, std::memory_order_release); }

 private:
  static constexpr std::chrono::microseconds kWait{10};
  std::atomic<bool> is_taken_{false};
};

/// One thread at a time has the lock. The engine's lock sees to that already, but MPI_Finalize closes the transport
/// without it.
class MpiTransport final : public engine::Transport {
 public:
  /// Local. Takes all memory that it needs until open() returns.
  MpiTransport(MPI_Comm parent, std::uint64_t piece_bytes) : piece_bytes_(piece_bytes) {
    check(MPI_Comm_rank(parent, &rank_), "MPI_Comm_rank");
    check(MPI_Comm_size(parent, &size_), "MPI_Comm_size");
    check(MPI_Query_thread(&thread_level_), "MPI_Query_thread");
    record_.emplace_back(size_);
    describe();
    at_finalize_ = AtFinalize([this] { close(); });
    Retired::of_process();
  }

  /// Collective. Makes the duplicate of `parent`, which has these ranks.
  void open(MPI_Comm parent, Ranks ranks) {
    ranks_ = std::move(ranks);
    comm_ = duplicate(parent);
    find_max_tag();
  }

  ~MpiTransport() override {
    at_finalize_ = {};
    close();
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const std::vector<std::int32_t>& node_of_rank() const override { return ranks_.node_of_rank; }
  bool any_thread() const override { return thread_level_ == MPI_THREAD_MULTIPLE; }
  int max_tag() const override { return max_tag_; }
  std::string description() const override { return description_; }
  MPI_Comm comm() const { return comm_; }
  const Ranks& ranks() const { return ranks_; }
  int thread_level() const { return thread_level_; }

  bool isend(ConstBytes from, int peer, int tag, Token token) override {
    const std::lock_guard lock(spin_lock_);
    require_open();
    make_room();
    MPI_Request request = MPI_REQUEST_NULL;
    const Shape shape(from.size(), piece_bytes_);
    check(MPI_Isend(from.data(), shape.count(), shape.type(), peer, tag, comm_, &request), "MPI_Isend");
    ++record_.front().sent[static_cast<std::size_t>(peer)];
    if (from.size() <= kTestedBytes) {
      int complete = 0;
      check(MPI_Test(&request, &complete, MPI_STATUS_IGNORE), "MPI_Test");
      if (complete != 0) return true;
    }
    watch(request, {.token = token, .bytes = from.size(), .peer = peer});
    return false;
  }

  void irecv(Bytes to, int peer, int tag, Token token) override {
    const std::lock_guard lock(spin_lock_);
    require_open();
    make_room();
    MPI_Request request = MPI_REQUEST_NULL;
    const Shape shape(to.size(), piece_bytes_);
    check(MPI_Irecv(to.data(), shape.count(), shape.type(), peer, tag, comm_, &request), "MPI_Irecv");
    watch(request, {.token = token, .peer = peer, .receives = true});
  }

  // Probed for, not posted: MPICH loses messages that meet several posted receives for any source if some of the ranks
  // share a node and others do not. Not blocking: MPI asks the sender of a longer message for it, which may have other
  // things to do.
  bool take(Bytes to, int tag, Token token) override {
    const std::lock_guard lock(spin_lock_);
    require_open();
    make_room();
    int found = 0;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status;
    const WithoutYields without_yields;
    check(MPI_Improbe(MPI_ANY_SOURCE, tag, comm_, &found, &message, &status), "MPI_Improbe");
    if (found == 0) return false;
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Imrecv(to.data(), static_cast<int>(to.size()), MPI_BYTE, &message, &request), "MPI_Imrecv");
    watch(request, {.token = token, .peer = status.MPI_SOURCE, .receives = true, .is_matched = true});
    return true;
  }

  int first_unmatched(int peer) override {
    const std::lock_guard lock(spin_lock_);
    require_open();
    int found = 0;
    MPI_Status status;
    check(MPI_Iprobe(peer, MPI_ANY_TAG, comm_, &found, &status), "MPI_Iprobe");
    return found != 0 ? status.MPI_TAG : -1;
  }

  void poll(std::vector<Completion>& complete) override {
    const std::lock_guard lock(spin_lock_);
    require_open();
    Retired::of_process().look_now_and_then();
    const WithoutYields without_yields;
    yielded_ = !requests_.empty() && without_yields.has_failed();
    if (requests_.empty()) return;
    complete.reserve(complete.size() + requests_.size());  // what MPI has completed it does not report again
#ifdef OPEN_MPI
    // One call tests several requests: each that finds nothing is a system call over TCP, and may be a yield.
    if (requests_.size() > 1)
      test_some(complete);
    else
      test_each(complete);
#else
    // MPICH assigns an error of a call on several requests to no communicator, which ends the program.
    test_each(complete);
#endif
    throw_failure();
  }

  void poll_for(Token token, std::vector<Completion>& complete) override {
    const std::lock_guard lock(spin_lock_);
    require_open();
    Retired::of_process().look_now_and_then();
    const auto found = std::ranges::find(entries_, token, &Entry::token);
    const auto i = found - entries_.begin();
    const WithoutYields without_yields;
    yielded_ = without_yields.has_failed();
    complete.reserve(complete.size() + 1);  // as in poll()
    int is_complete = 0;
    MPI_Status status;
    const int result = test(requests_[static_cast<std::size_t>(i)], is_complete, status);
    if (result == MPI_SUCCESS && is_complete == 0) return;
    end(*found, status, result, complete);
    entries_.erase(found);
    requests_.erase(requests_.begin() + i);
    throw_failure();
  }

  bool yielded() const noexcept override { return yielded_; }

  void cancel(Token receive) override {
    const std::lock_guard lock(spin_lock_);
    if (comm_ == MPI_COMM_NULL) return;
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      if (!entries_[i].receives || entries_[i].token != receive) continue;
      check(MPI_Cancel(&requests_[i]), "MPI_Cancel");
      entries_[i].is_cancelled = true;
    }
  }

  void retire() noexcept override {
    const std::lock_guard lock(spin_lock_);
    if (comm_ != MPI_COMM_NULL && running()) give_up(true);
  }

  void enter() noexcept override { has_entered_ = true; }

  void set_farewell(ConstBytes packet, int tag) override {
    const std::lock_guard lock(spin_lock_);
    record_.front().farewell.assign(packet.begin(), packet.end());
    record_.front().farewell_tag = tag;
  }

  void poke() noexcept override {
    const std::lock_guard lock(spin_lock_);
    int found = 0;
    if (comm_ != MPI_COMM_NULL) MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm_, &found, MPI_STATUS_IGNORE);
  }

  void allgather(ConstBytes mine, Bytes all) override {
    check(MPI_Allgather(mine.data(), static_cast<int>(mine.size()), MPI_BYTE, all.data(), static_cast<int>(mine.size()),
                        MPI_BYTE, open_comm()),
          "MPI_Allgather");
  }

  void maximum(std::span<std::uint64_t> values, const std::function<void()>& meanwhile) override {
    const int count = static_cast<int>(values.size());
    if (!meanwhile)
      return check(MPI_Allreduce(MPI_IN_PLACE, values.data(), count, MPI_UINT64_T, MPI_MAX, open_comm()),
                   "MPI_Allreduce");
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Iallreduce(MPI_IN_PLACE, values.data(), count, MPI_UINT64_T, MPI_MAX, open_comm(), &request),
          "MPI_Iallreduce");
    for (int is_complete = 0; is_complete == 0;) {
      meanwhile();
      check(MPI_Test(&request, &is_complete, MPI_STATUS_IGNORE), "MPI_Test");
      if (is_complete == 0) std::this_thread::yield();
    }
  }

 private:
  /// What MPI has: a message, or a piece of one.
  struct Entry {
    Token token = 0;
    std::uint64_t bytes = 0;  ///< of a send
    int peer = 0;
    bool receives = false;
    bool is_matched = false;
    bool is_cancelled = false;
  };
  static constexpr std::uint64_t kTestedBytes = 64 << 10;  ///< no MPI completes a longer send at once

  void throw_failure() {
    if (failure_) throw Error(*std::exchange(failure_, std::nullopt));
  }

  void find_max_tag() {
    int* max_tag = nullptr;
    int is_set = 0;
    check(MPI_Comm_get_attr(comm_, MPI_TAG_UB, static_cast<void*>(&max_tag), &is_set), "MPI_Comm_get_attr");
    if (is_set != 0) max_tag_ = *max_tag;
  }

  void describe() {
    description_ = library_version();
    if (const std::string settings = collective_settings(); !settings.empty()) description_ += " with " + settings;
    description_ += " (" PENSTOCK_MPI_ABI " ABI, ";
    description_ += thread_level_ == MPI_THREAD_MULTIPLE ? "any thread" : "calling thread only";
    description_ += ")";
  }

  void require_open() const {
    if (comm_ == MPI_COMM_NULL)
      throw Error(ErrorCode::mpi, "this communicator's MPI connection is closed: MPI_Finalize has been called", rank_);
  }

  /// For blocking calls. They run without the lock, so other threads go on meanwhile.
  MPI_Comm open_comm() {
    const std::lock_guard lock(spin_lock_);
    require_open();
    return comm_;
  }

  /// Before a message is posted: watch() must not lack memory.
  void make_room() {
    if (requests_.size() >= std::min(requests_.capacity(), entries_.capacity())) grow();
  }
  void grow() {
    const std::size_t room = std::bit_ceil(std::max<std::size_t>(requests_.size() + 1, 16));
    requests_.reserve(room);
    entries_.reserve(room);
  }
  void watch(MPI_Request request, const Entry& entry) {
    requests_.push_back(request);
    entries_.push_back(entry);
  }

  void drop_done() {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      if (requests_[i] == MPI_REQUEST_NULL) continue;
      requests_[kept] = requests_[i];
      entries_[kept++] = entries_[i];
    }
    requests_.resize(kept);
    entries_.resize(kept);
  }

  void test_each(std::vector<Completion>& complete) {
    std::size_t kept = 0;
    bool has_moved = false;  // an MPI_Test that finds its request pending has moved messages of all
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      int is_complete = 0;
      if (!has_moved || !is_surely_pending(requests_[i])) {
        MPI_Status status;
        const int result = test(requests_[i], is_complete, status);
        if (result != MPI_SUCCESS || is_complete != 0) {
          end(entries_[i], status, result, complete);
          continue;
        }
        has_moved = true;
      }
      requests_[kept] = requests_[i];
      entries_[kept++] = entries_[i];
    }
    requests_.resize(kept);
    entries_.resize(kept);
  }

#ifdef OPEN_MPI
  void test_some(std::vector<Completion>& complete) {
    int count = 0;
    indices_.resize(requests_.size());
    statuses_.resize(requests_.size());
    // It looks for messages after it has looked at the requests, and so reports them a call late. This moves them
    // first.
    int is_first_complete = 0;
    MPI_Request_get_status(requests_.front(), &is_first_complete, MPI_STATUS_IGNORE);
    const int result =
        MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count, indices_.data(), statuses_.data());
    int error_class = MPI_SUCCESS;
    if (result != MPI_SUCCESS) MPI_Error_class(result, &error_class);
    if (error_class != MPI_ERR_IN_STATUS) check(result, "MPI_Testsome");
    for (int k = 0; k < count; ++k) {
      const auto i = static_cast<std::size_t>(indices_[static_cast<std::size_t>(k)]);
      const MPI_Status& status = statuses_[static_cast<std::size_t>(k)];
      end(entries_[i], status, error_class == MPI_ERR_IN_STATUS ? status.MPI_ERROR : MPI_SUCCESS, complete);
      requests_[i] = MPI_REQUEST_NULL;
    }
    if (count > 0) drop_done();
  }
#endif

  static std::uint64_t length_of(const MPI_Status& status) {
    int bytes = 0;
    check(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
    if (bytes != MPI_UNDEFINED) return static_cast<std::uint64_t>(bytes);
    MPI_Count length = 0;  // more than an int holds
    check(MPI_Get_elements_x(&status, MPI_BYTE, &length), "MPI_Get_elements_x");
    return static_cast<std::uint64_t>(length);
  }

  void end(const Entry& entry, const MPI_Status& status, int result, std::vector<Completion>& complete) {
    Completion done{.token = entry.token, .bytes = entry.bytes};
    int error_class = MPI_SUCCESS;
    if (result != MPI_SUCCESS) MPI_Error_class(result, &error_class);
    if (entry.receives && error_class == MPI_ERR_TRUNCATE) {
      done.too_long = true;
      ++record_.front().received;
    } else if (result != MPI_SUCCESS) {
      failure_ = Error(ErrorCode::mpi,
                       std::string(entry.receives ? "a receive from" : "a send to") + " rank " +
                           std::to_string(entry.peer) + " failed",
                       rank_, error_text(result));
    } else if (entry.receives) {
      int withdrawn = 0;
      if (entry.is_cancelled) check(MPI_Test_cancelled(&status, &withdrawn), "MPI_Test_cancelled");
      done.withdrawn = withdrawn != 0;
      if (!done.withdrawn) {
        ++record_.front().received;
        done.bytes = length_of(status);
      }
    }
    complete.push_back(done);
  }

  static void withdraw(MPI_Request& receive, bool may_cancel) noexcept {
    if (may_cancel) MPI_Cancel(&receive);
    MPI_Wait(&receive, MPI_STATUS_IGNORE);
  }

  /// MPI cannot withdraw a send. It keeps the request and may read the memory until MPI_Finalize.
  static void leave(MPI_Request& send) noexcept {
    int complete = 0;
    if (MPI_Test(&send, &complete, MPI_STATUS_IGNORE) == MPI_SUCCESS && complete == 0) MPI_Request_free(&send);
  }

  void close() noexcept {
    const std::lock_guard lock(spin_lock_);
    if (comm_ == MPI_COMM_NULL) return;
    if (running()) {
      for (std::size_t i = 0; i < requests_.size(); ++i) {
        if (entries_[i].receives)
          withdraw(requests_[i], !entries_[i].is_matched && !entries_[i].is_cancelled);
        else
          leave(requests_[i]);
      }
      requests_.clear();
      entries_.clear();
      if (has_entered_ && !record_.front().farewell.empty()) return give_up(false);
      MPI_Comm_free(&comm_);
    }
    comm_ = MPI_COMM_NULL;
  }

  void give_up(bool may_free) noexcept {
    record_.front().comm = std::exchange(comm_, MPI_COMM_NULL);
    record_.front().may_free = may_free;
    Retired::of_process().add(std::move(record_));
  }

  std::uint64_t piece_bytes_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  int thread_level_ = MPI_THREAD_SINGLE;
  int max_tag_ = 32767;
  Ranks ranks_{};
  std::string description_;

  SpinLock spin_lock_;
  std::vector<MPI_Request> requests_;
  std::vector<Entry> entries_;  ///< what the requests are
  Retired::Record record_;      ///< for when the communicator is given up
  std::optional<Error> failure_;
  bool yielded_ = false;
  bool has_entered_ = false;
#ifdef OPEN_MPI
  std::vector<int> indices_;
  std::vector<MPI_Status> statuses_;
#endif
  AtFinalize at_finalize_;
};

/// Ends communicators whose last handle was dropped on a thread that may not call MPI, such as a garbage collector's.
/// It ends them when the next communicator is made, or at MPI_Finalize.
class LeftBehind {
 public:
  /// Never destroyed: MPI_Finalize may run in an exit handler.
  static LeftBehind& of_process() {
    static auto* const left = new LeftBehind;
    return *left;
  }

  void end(std::function<void()> action) {
    if (!running() || may_call()) return action();
    const std::lock_guard lock(mutex_);
    actions_.push_back(std::move(action));
  }

  void end_all() {
    std::vector<std::function<void()>> ended;
    {
      const std::lock_guard lock(mutex_);
      ended.swap(actions_);
    }
    for (const auto& action : ended) action();
  }

 private:
  std::mutex mutex_;
  std::vector<std::function<void()>> actions_;
  AtFinalize at_finalize_{[this] { end_all(); }};
};

/// `known`: the ranks of `parent`, or nullptr if they must be found. Runs `prepare` before the ranks agree to go on;
/// what it throws on one rank fails the call on all.
template <typename Prepare>
std::unique_ptr<MpiTransport> open_transport(MPI_Comm parent, std::uint64_t piece_bytes, const Ranks* known,
                                             Prepare prepare) {
  require_running();
  LeftBehind::of_process().end_all();
  Retired::of_process().look();
  std::unique_ptr<MpiTransport> transport;
  Ranks ranks;
  std::exception_ptr failure;
  try {
    transport = std::make_unique<MpiTransport>(parent, piece_bytes);
    if (known != nullptr) ranks = *known;
    prepare(*transport);
  } catch (const std::exception&) {
    failure = std::current_exception();
  }
  if (known != nullptr)
    require_all(parent, failure);
  else
    ranks = find_ranks(parent, transport != nullptr ? transport->thread_level() : MPI_THREAD_SINGLE, failure);
  transport->open(parent, std::move(ranks));
  return transport;
}

/// `known`: the ranks of `parent`, whose topology is `graph`; or nullptr if both must be found.
comm::Link link_over(MPI_Comm parent, const Ranks* known, std::shared_ptr<const Graph> graph) {
  std::vector<std::byte> exchange_memory;
  std::optional<Topology> topology;
  std::unique_ptr<MpiTransport> transport = open_transport(parent, kPieceBytes, known, [&](const MpiTransport& opened) {
    exchange_memory.resize(comm::exchange_bytes(opened.size()));
    if (known == nullptr) topology.emplace(parent);
  });
  const MpiTransport& made = *transport;
  comm::Link link(std::move(transport));
  link.exchange_memory = std::move(exchange_memory);
  try {
    if (topology) graph = topology->graph(made.comm());
    // MPI never matches messages with collectives of the same communicator, so both use one duplicate.
    link.native = make_native(made.comm(), made.ranks().any_thread);
    // Duplicates the duplicate: the caller may have freed `parent` by then.
    link.duplicate = [&made, graph] { return link_over(made.comm(), &made.ranks(), graph); };
  } catch (const std::exception&) {
    link.failure = std::current_exception();
  }
  link.graph = std::move(graph);
  link.end = [](std::function<void()> action) { LeftBehind::of_process().end(std::move(action)); };
  return link;
}

}  // namespace

std::unique_ptr<engine::Transport> make_transport(MPI_Comm parent, std::uint64_t piece_bytes) {
  return open_transport(parent, piece_bytes, nullptr, [](const MpiTransport&) {});
}

comm::Link make_link(MPI_Comm parent) { return link_over(parent, nullptr, nullptr); }

}  // namespace penstock::mpi
