// The send and recv steps whose peer is on another node.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/core.hpp"
#include "engine/remote/in_flight.hpp"
#include "engine/remote/message_counts.hpp"
#include "engine/remote/packets.hpp"
#include "engine/remote/remote_plans.hpp"
#include "engine/remote/remote_ranks.hpp"
#include "engine/remote/send_window.hpp"
#include "engine/remote/settlement.hpp"
#include "engine/remote/transfer_time.hpp"

namespace penstock::engine {

/// The transport matches them: a step is one send or one receive of the transport, straight from and into the memory of
/// the operation, under a tag that both ranks know from the operation and the plan (TagSplit). Beside them travel
/// packets, under a tag of their own: news of failures, questions of ranks that wait, their answers, and counts.
///
/// Invariants, see docs/design/network.md:
/// - Before a message is posted under a tag, on either rank, every message that the two have sent each other under it
///   for an earlier operation has been received, and no receive for one is posted (MessageCounts).
/// - When a failed operation is settled, each message that was sent to this rank for it has been received, and no
///   receive of it is posted.
/// - Memory that the transport may touch belongs to an operation that is not over, or to this class.
class RemoteMessages final : public Mechanism {
 public:
  explicit RemoteMessages(Core& core);

  /// A send or recv whose peer is on another node.
  void post(Operation& operation, StepId step);
  /// A packet, see Packets.
  void send(int peer, const Header& header, ConstBytes payload, Operation* owner) {
    packets_.send(peer, header, payload, owner);
  }
  bool receive();
  /// If the operation was completed here, tells the other nodes what this rank has sent for it, once, and takes what
  /// they have sent besides.
  void has_failed_elsewhere(std::uint64_t sequence);
  /// After each change of what is over here, if the transport may be called.
  void close_epochs();
  /// Of these ranks, for which the operation waits, one that has left and sends and receives nothing more for it; or
  /// -1. The failure detector calls it once per check.
  int find_left(Operation& operation, const std::vector<int>& peers);
  /// Fails the operation if a peer has sent a message for it that its plan does not receive. Needs no answer of the
  /// peer, which may have completed its own call and wait inside the transport's library for this rank. The failure
  /// detector calls it once per check.
  void look_for_foreign(Operation& operation);
  /// After the last use. False if something is still in flight: another user of the transport must not meet it.
  bool close();
  /// While long messages are in flight: how long they need no poll, see SendWindow; else 0.
  std::int64_t nap_ns() const { return long_in_flight_ > 0 ? static_cast<std::int64_t>(window_.nap_ns()) : 0; }
  /// Until then long messages should be on their way, see TransferTime; 0: none is in flight.
  std::int64_t transfer_until_ns() const { return static_cast<std::int64_t>(transfer_time_.until_ns()); }
  bool expects_messages() const { return leaving_ > 0 || is_busy(); }

  bool poll() override;
  bool needs_polling(Caller caller) const override {
    return !core_.transport_broken && expects_messages() &&
           (caller == Caller::application || core_.transport->any_thread());
  }
  /// After a death, ranks of other nodes may have begun what this rank never calls. They learn here how it ends, and
  /// what they have sent for it is received.
  bool is_idle() const override { return core_.transport_broken || (!is_busy() && !core_.detector.knows_of_any()); }
  void begin(Operation& operation) override;
  void end(Operation& operation) override;
  void cancel(Operation& operation) override;
  void waits_for(const Operation& operation, std::vector<int>& peers) const override;
  bool has_heard(const Operation& operation, int peer) const override;

 private:
  using Kind = InFlight::Kind;
  struct Waiting {
    Operation* operation = nullptr;
    StepId step = 0;
  };
  enum class StepStatus : std::uint8_t { none, posted, done };
  struct State {
    bool leaves_node = false;  ///< counted in leaving_
    bool is_withdrawn = false;
    std::uint32_t receives_posted = 0;
    std::uint32_t forgotten_by_peers = 0;  ///< answers
    std::uint32_t checks = 0;              ///< of the failure detector
    std::uint32_t checks_since_left = 0;   ///< of the failure detector, since a rank that it waits for has left
    std::vector<StepStatus> status;
  };
  /// What this rank and another have to do with each other.
  struct Pair {
    MessageCounts counts;
    std::uint64_t may_post_before = 0;  ///< messages of operations below
    std::uint32_t long_sends = 0;       ///< posted
    std::uint32_t excess = 0;           ///< messages that are being received because no plan does
    enum class Recount : std::uint8_t { none, asked, answered } recount = Recount::none;
  };
  bool is_busy() const {
    return !in_flight_.empty() || packets_.has_unsent() || !waiting_.empty() || !blocked_.empty() || !ending_.empty() ||
           !settlements_.empty();
  }
  bool progress(bool look_for_packets);
  bool is_its_turn();
  Pair& pair(int peer) {
    const auto [found, is_new] = pairs_.try_emplace(peer);
    if (is_new) set_limits(found->second);
    return found->second;
  }
  bool is_blocked(const Operation& operation, const Step& what);
  void on_left(int peer);
  void ask_for_failed();
  bool has_room(const Step& what);
  bool is_left_to_threads(const Step& what) const;
  void post_now(Operation& operation, StepId step);
  bool post_waiting();

  void finish(const Transport::Completion& completion);
  void finish_send(const InFlight::Entry& done);
  void finish_receive(const InFlight::Entry& done, const Transport::Completion& completion);
  void finish_long(const InFlight::Entry& done, std::uint64_t bytes);
  void set_limits(Pair& of) const;
  std::uint64_t first_of(std::uint64_t epoch) const { return epoch * plans_.tags.operations_per_epoch(); }

  void on_packet(const Header& header, ConstBytes payload);
  void on_probe(const Header& header, ConstBytes payload);
  void tell_plan(int peer, std::uint64_t sequence);

  void tell_counts(int peer, std::uint64_t epoch);
  void hear_counts(const Header& header);
  bool clear_heard();
  bool clear(int peer);
  void recount(int peer, std::uint64_t epoch);
  void on_recounted(int peer, std::uint64_t epoch, const std::vector<SentMessage>& sent);
  void give_up_communicator(int peer, const std::string& what);

  bool end_failed();
  void withdraw(Operation& operation);
  bool settle();
  void drop_gone();
  void forget(int peer, std::uint64_t sequence);
  void on_list(const Header& header, ConstBytes payload);
  void on_forgotten(int peer, std::uint64_t sequence);
  void on_all_sent(std::uint64_t sequence, int peer, std::vector<SentMessage> sent);
  void compare(Operation& operation, int peer, ListKind kind, const std::vector<SentMessage>& there);

  Core& core_;
  const RemotePlans plans_;
  RemoteRanks ranks_;
  InFlight in_flight_;
  Packets packets_;
  std::unordered_map<int, Pair> pairs_;                   ///< by rank: of those with which there were messages
  std::uint64_t closed_epochs_ = 0;                       ///< all operations of these are over here
  std::vector<int> hearing_;                              ///< peers that have told counts which are not cleared
  std::map<std::uint64_t, Settlement::Received> excess_;  ///< what was received besides, by operation
  std::chrono::steady_clock::time_point asked_;           ///< last question after ranks that hold up failed operations
  std::optional<Error> unusable_;                         ///< the communicator
  std::vector<Transport::Completion> complete_;
  PerOperation<State> states_;
  std::size_t leaving_ = 0;         ///< operations that run, with messages from or for ranks of other nodes
  Fifo<Waiting> waiting_;           ///< ready steps, for the next poll, or for long sends before them
  Fifo<Waiting> blocked_;           ///< ready steps whose tags may not be used again yet
  bool are_fewer_blocked_ = false;  ///< than blocked_ holds, perhaps

  std::uint32_t polls_ = 0;

  std::vector<Operation*> ending_;  ///< failed, with receives to withdraw; held
  std::map<std::uint64_t, Settlement> settlements_;

  SendWindow window_;  ///< long sends that a peer may have posted
  TransferTime transfer_time_;
  std::size_t long_in_flight_ = 0;
  std::chrono::steady_clock::time_point looked_;  ///< while nothing was expected
};

}  // namespace penstock::engine
