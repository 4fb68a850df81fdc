#include "mpi/transport.hpp"

#include <algorithm>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "mpi/at_finalize.hpp"
#include "mpi/check.hpp"
#include "mpi/collective_settings.hpp"
#include "mpi/native.hpp"
#include "mpi/ranks.hpp"
#include "penstock/error.hpp"

namespace penstock::mpi {
namespace {

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

class MpiTransport final : public engine::Transport {
 public:
  /// Local. Takes all memory that open() needs. `known`: the ranks of `parent`, or nullptr if open() must find them.
  MpiTransport(MPI_Comm parent, std::uint64_t piece_bytes, const Ranks* known) : piece_bytes_(piece_bytes) {
    check(MPI_Comm_rank(parent, &rank_), "MPI_Comm_rank");
    check(MPI_Comm_size(parent, &size_), "MPI_Comm_size");
    check(MPI_Query_thread(&thread_level_), "MPI_Query_thread");
    if (known != nullptr)
      ranks_ = *known;
    else
      finder_.emplace(size_);
    describe();
    at_finalize_ = AtFinalize([this] { close(); });
  }

  /// Collective. Makes the duplicate.
  void open(MPI_Comm parent) {
    comm_ = duplicate(parent);
    if (finder_) ranks_ = finder_->find(comm_, thread_level_);
    finder_.reset();
  }

  ~MpiTransport() override {
    at_finalize_ = {};
    close();
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const std::vector<std::int32_t>& node_of_rank() const override { return ranks_.node_of_rank; }
  bool any_thread() const override { return thread_level_ == MPI_THREAD_MULTIPLE; }
  std::string description() const override { return description_; }
  MPI_Comm comm() const { return comm_; }
  const Ranks& ranks() const { return ranks_; }

  Handle isend(ConstBytes from, int peer, int tag) override {
    const std::lock_guard lock(mutex_);
    require_open();
    const Handle handle = add({.size_bytes = from.size()});
    // A message of at least one full piece ends with a shorter piece, by which the receiver knows the end.
    std::uint64_t sent = 0;
    do {
      const std::uint64_t piece = std::min<std::uint64_t>(from.size() - sent, piece_bytes_);
      MPI_Request request = MPI_REQUEST_NULL;
      check(MPI_Isend(from.data() + sent, static_cast<int>(piece), MPI_BYTE, peer, tag, comm_, &request), "MPI_Isend");
      watch(request, handle);
      sent += piece;
      if (piece < piece_bytes_) break;
    } while (true);
    return handle;
  }

  Handle irecv(Bytes to, int peer, int tag) override {
    const std::lock_guard lock(mutex_);
    require_open();
    const Handle handle =
        add({.to = to, .peer = peer == engine::kAnyRank ? MPI_ANY_SOURCE : peer, .tag = tag, .receives = true});
    Transfer& transfer = transfers_.at(handle);
    const bool long_one = to.size() >= piece_bytes_;
    if (!long_one && peer == engine::kAnyRank) {
      // Probes instead of posting: MPICH loses messages if several receives for any source are posted and only some of
      // the ranks share a node.
      transfer.probes = true;
      probing_.push_back(handle);
    } else if (!long_one && ordered_.empty()) {
      watch(post(transfer), handle);
    } else {
      transfer.waiting = true;
      ordered_.push_back(handle);
      post_ordered();
    }
    return handle;
  }

  void poll() override {
    const std::lock_guard lock(mutex_);
    require_open();
    // In this order: MPI_Testsome of Open MPI tests before it moves messages; a probe moves them first.
    find_probed();
    find_complete();
  }

  std::optional<std::uint64_t> test(Handle handle) override {
    const std::lock_guard lock(mutex_);
    require_open();
    const auto found = transfers_.find(handle);
    if (found == transfers_.end())
      throw Error(ErrorCode::internal, "transfer " + std::to_string(handle) + " is not in flight", rank_);
    if (!found->second.complete) return std::nullopt;
    const Transfer done = std::move(found->second);
    forget(handle);
    if (done.failure) throw Error(*done.failure);
    return done.size_bytes;
  }

  bool cancel(Handle receive) override {
    const std::lock_guard lock(mutex_);
    if (comm_ == MPI_COMM_NULL) return true;
    const auto found = transfers_.find(receive);
    if (found == transfers_.end() || !found->second.receives)
      throw Error(ErrorCode::internal, "receive " + std::to_string(receive) + " is not in flight", rank_);
    bool withdrawn = !found->second.complete;
    if (const auto at = std::find(owners_.begin(), owners_.end(), receive); at != owners_.end()) {
      withdrawn = withdraw(requests_[static_cast<std::size_t>(at - owners_.begin())], found->second);
      drop_done();
    }
    forget(receive);
    return withdrawn;
  }

  void poke() noexcept override {
    const std::lock_guard lock(mutex_);
    int found = 0;
    if (comm_ != MPI_COMM_NULL) MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm_, &found, MPI_STATUS_IGNORE);
  }

  void allgather(ConstBytes mine, Bytes all) override {
    check(MPI_Allgather(mine.data(), static_cast<int>(mine.size()), MPI_BYTE, all.data(), static_cast<int>(mine.size()),
                        MPI_BYTE, open_comm()),
          "MPI_Allgather");
  }

  void maximum(std::span<std::uint64_t> values) override {
    check(
        MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_UINT64_T, MPI_MAX, open_comm()),
        "MPI_Allreduce");
  }

 private:
  struct Transfer {
    Bytes to{};
    std::uint64_t size_bytes = 0;  ///< of a receive: arrived so far
    int peer = 0;
    int tag = 0;
    bool receives = false;
    bool waiting = false;   ///< a receive not posted yet, because of an earlier one; see ordered_
    bool probes = false;    ///< a receive for any rank, matched by a probe and never posted; see probing_
    bool complete = false;  ///< or failed; MPI has no request of it
    int pieces = 0;         ///< requests that MPI has: all unsent pieces of a send, the next piece of a receive
    std::optional<Error> failure{};
    std::vector<std::byte> discarded{};  ///< takes a message that is too long for `to`
  };

  void describe() {
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    check(MPI_Get_library_version(version, &length), "MPI_Get_library_version");
    description_ = short_version({version, static_cast<std::size_t>(length)});
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
    const std::lock_guard lock(mutex_);
    require_open();
    return comm_;
  }

  Handle add(const Transfer& transfer) {
    const Handle handle = next_handle_++;
    transfers_.emplace(handle, transfer);
    return handle;
  }

  void watch(MPI_Request request, Handle handle) {
    requests_.push_back(request);
    owners_.push_back(handle);
    ++transfers_.at(handle).pieces;
  }

  void drop_done() {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      if (requests_[i] == MPI_REQUEST_NULL) continue;
      requests_[kept] = requests_[i];
      owners_[kept++] = owners_[i];
    }
    requests_.resize(kept);
    owners_.resize(kept);
  }

  void forget(Handle handle) {
    transfers_.erase(handle);
    std::erase(probing_, handle);
    if (std::erase(ordered_, handle) != 0) post_ordered();
  }

  /// Posts receives of ordered_, unless an earlier one there could match the same pieces.
  void post_ordered() {
    for (auto next = ordered_.begin(); next != ordered_.end(); ++next) {
      Transfer& transfer = transfers_.at(*next);
      const bool blocked = std::any_of(ordered_.begin(), next, [&](Handle handle) {
        const Transfer& earlier = transfers_.at(handle);
        return earlier.tag == transfer.tag &&
               (earlier.peer == transfer.peer || earlier.peer == MPI_ANY_SOURCE || transfer.peer == MPI_ANY_SOURCE);
      });
      if (!transfer.waiting || blocked) continue;
      transfer.waiting = false;
      watch(post(transfer), *next);
    }
  }

  MPI_Request post(const Transfer& transfer) {
    const std::uint64_t piece = std::min<std::uint64_t>(transfer.to.size() - transfer.size_bytes, piece_bytes_);
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Irecv(transfer.to.data() + transfer.size_bytes, static_cast<int>(piece), MPI_BYTE, transfer.peer,
                    transfer.tag, comm_, &request),
          "MPI_Irecv");
    return request;
  }

  /// Matches messages with the receives of probing_, in their order.
  void find_probed() {
    for (std::size_t i = 0; i < probing_.size();) {
      Transfer& transfer = transfers_.at(probing_[i]);
      int found = 0;
      MPI_Message message = MPI_MESSAGE_NULL;
      MPI_Status status;
      check(MPI_Improbe(MPI_ANY_SOURCE, transfer.tag, comm_, &found, &message, &status), "MPI_Improbe");
      if (found == 0) {
        // There is none for the later receives under this tag either.
        const int tag = transfer.tag;
        while (i < probing_.size() && transfers_.at(probing_[i]).tag == tag) ++i;
        continue;
      }
      const Handle handle = probing_[i];
      probing_.erase(probing_.begin() + static_cast<std::ptrdiff_t>(i));
      watch(take(transfer, message, status), handle);
    }
  }

  /// Non-blocking: a longer message needs a rendezvous handshake, and its sender may be busy.
  MPI_Request take(Transfer& transfer, MPI_Message message, const MPI_Status& status) {
    int length = 0;
    check(MPI_Get_count(&status, MPI_BYTE, &length), "MPI_Get_count");
    std::byte* to = transfer.to.data();
    if (static_cast<std::uint64_t>(length) > transfer.to.size()) {
      transfer.failure = too_long(transfer, status);
      transfer.discarded.resize(static_cast<std::size_t>(length));
      to = transfer.discarded.data();
    }
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Imrecv(to, length, MPI_BYTE, &message, &request), "MPI_Imrecv");
    return request;
  }

  Error too_long(const Transfer& transfer, const MPI_Status& status, const std::string& library = {}) const {
    return {ErrorCode::mismatch,
            "a message of rank " + std::to_string(status.MPI_SOURCE) + " is longer than the " +
                std::to_string(transfer.to.size()) + " bytes expected here",
            rank_, library};
  }

  void find_complete() {
    if (requests_.empty()) return;
#ifdef OPEN_MPI
    // One call tests all requests. If ranks share cores, each call that finds nothing yields the core
    // (mpi_yield_when_idle), and another process may keep it for milliseconds.
    find_some();
#else
    // One call per request: MPICH assigns an error of a call on several requests to no communicator, which ends the
    // program.
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      int complete = 0;
      MPI_Status status;
      const int result = MPI_Test(&requests_[i], &complete, &status);
      if (result != MPI_SUCCESS || complete != 0) end_piece(i, status, result);
    }
#endif
    drop_done();
  }

#ifdef OPEN_MPI
  void find_some() {
    int count = 0;
    indices_.resize(requests_.size());
    statuses_.resize(requests_.size());
    const int result =
        MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count, indices_.data(), statuses_.data());
    int error_class = MPI_SUCCESS;
    if (result != MPI_SUCCESS) MPI_Error_class(result, &error_class);
    if (error_class != MPI_ERR_IN_STATUS) check(result, "MPI_Testsome");
    for (int k = 0; k < count; ++k) {
      const MPI_Status& status = statuses_[static_cast<std::size_t>(k)];
      end_piece(static_cast<std::size_t>(indices_[static_cast<std::size_t>(k)]), status,
                error_class == MPI_ERR_IN_STATUS ? status.MPI_ERROR : MPI_SUCCESS);
    }
  }
#endif

  /// Request `i` is done. If its receive needs another piece, the request for it takes its place.
  void end_piece(std::size_t i, const MPI_Status& status, int result) {
    Transfer& transfer = transfers_.at(owners_[i]);
    requests_[i] = MPI_REQUEST_NULL;
    --transfer.pieces;
    if (result != MPI_SUCCESS) {
      int error_class = MPI_SUCCESS;
      MPI_Error_class(result, &error_class);
      transfer.failure = transfer.receives && error_class == MPI_ERR_TRUNCATE
                             ? too_long(transfer, status, error_text(result))
                             : Error(ErrorCode::mpi, transfer.receives ? "a receive failed" : "a send failed", rank_,
                                     error_text(result));
    } else if (transfer.receives) {
      int length = 0;
      check(MPI_Get_count(&status, MPI_BYTE, &length), "MPI_Get_count");
      transfer.size_bytes += static_cast<std::uint64_t>(length);
      if (!transfer.probes && static_cast<std::uint64_t>(length) >= piece_bytes_) {
        transfer.peer = status.MPI_SOURCE;
        requests_[i] = post(transfer);
        ++transfer.pieces;
      }
    }
    transfer.complete = transfer.pieces == 0;
  }

  static bool withdraw(MPI_Request& receive, const Transfer& transfer) noexcept {
    MPI_Status status;
    int withdrawn = 0;
    if (!transfer.probes) MPI_Cancel(&receive);  // a probed message has matched
    MPI_Wait(&receive, &status);
    MPI_Test_cancelled(&status, &withdrawn);
    return withdrawn != 0;
  }

  /// MPI cannot withdraw a send. It keeps the request and may read the memory until MPI_Finalize.
  static void leave(MPI_Request& send) noexcept {
    int complete = 0;
    if (MPI_Test(&send, &complete, MPI_STATUS_IGNORE) == MPI_SUCCESS && complete == 0) MPI_Request_free(&send);
  }

  void close() noexcept {
    const std::lock_guard lock(mutex_);
    if (comm_ == MPI_COMM_NULL) return;
    MPI_Comm comm = std::exchange(comm_, MPI_COMM_NULL);
    if (!running()) return;
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      if (const Transfer& transfer = transfers_.at(owners_[i]); transfer.receives)
        withdraw(requests_[i], transfer);
      else
        leave(requests_[i]);
    }
    requests_.clear();
    owners_.clear();
    transfers_.clear();
    ordered_.clear();
    probing_.clear();
    if (!must_keep()) MPI_Comm_free(&comm);
  }

  /// Packets for this communicator may still be in flight, and no rank receives them. With Open MPI the next
  /// communicator then got messages late or never, presumably because it has the same number and counts these packets
  /// in its own sequence. So communicators between nodes stay until MPI_Finalize.
  bool must_keep() const {
#ifdef OPEN_MPI
    const std::vector<std::int32_t>& nodes = ranks_.node_of_rank;
    return std::any_of(nodes.begin(), nodes.end(), [&](std::int32_t node) { return node != nodes.front(); });
#else
    return false;
#endif
  }

  std::uint64_t piece_bytes_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  int thread_level_ = MPI_THREAD_SINGLE;
  Ranks ranks_{};
  std::optional<RankFinder> finder_;  ///< until open()
  std::string description_;

  std::mutex mutex_;
  std::unordered_map<Handle, Transfer> transfers_;
  Handle next_handle_ = 1;
  /// In the order of irecv(): receives that may take several pieces, and receives posted after one. Mostly empty.
  std::vector<Handle> ordered_;
  std::vector<Handle> probing_;  ///< receives for any rank without a message yet, in the order of irecv()
  /// The requests that MPI has; owners_ holds the handle of each.
  std::vector<MPI_Request> requests_;
  std::vector<Handle> owners_;
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

std::unique_ptr<MpiTransport> open_transport(MPI_Comm parent, std::uint64_t piece_bytes, const Ranks* known) {
  require_running();
  LeftBehind::of_process().end_all();
  std::unique_ptr<MpiTransport> transport;
  std::exception_ptr failure;
  try {
    transport = std::make_unique<MpiTransport>(parent, piece_bytes, known);
  } catch (const std::exception&) {
    failure = std::current_exception();
  }
  require_all(parent, failure);
  transport->open(parent);
  return transport;
}

comm::Link link_over(MPI_Comm parent, const Ranks* known) {
  std::unique_ptr<MpiTransport> transport = open_transport(parent, kPieceBytes, known);
  const MpiTransport& made = *transport;
  comm::Link link(std::move(transport));
  try {
    // MPI never matches messages with collectives of the same communicator, so both use one duplicate.
    link.native = make_native(made.comm(), made.ranks().any_thread);
  } catch (const std::exception&) {
    link.failure = std::current_exception();
  }
  // Duplicates the duplicate: the caller may have freed `parent` by then.
  link.duplicate = [&made] { return link_over(made.comm(), &made.ranks()); };
  link.end = [](std::function<void()> action) { LeftBehind::of_process().end(std::move(action)); };
  return link;
}

}  // namespace

std::unique_ptr<engine::Transport> make_transport(MPI_Comm parent, std::uint64_t piece_bytes) {
  return open_transport(parent, piece_bytes, nullptr);
}

comm::Link make_link(MPI_Comm parent) { return link_over(parent, nullptr); }

}  // namespace penstock::mpi
