// Messages to and from ranks of other nodes.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <vector>

#include "engine/core.hpp"
#include "engine/settlement.hpp"
#include "engine/tag_split.hpp"

namespace penstock::engine {

/// The transport matches them: a step is one send or one receive of the transport, straight from and into the memory of
/// the operation, under a tag that both ranks know from the operation and the plan (TagSplit). Beside them travel
/// packets, under a tag of their own: news of failures, questions of ranks that wait, and their answers.
///
/// Invariants, see docs/design/network.md:
/// - Messages of one pair under one tag are posted in the same order on both sides: an operation is posted only once
/// the
///   one that had its slot is over and settled here.
/// - When a failed operation is settled, each message that was sent to this rank for it has been received, and no
///   receive of it is posted.
/// - Memory that the transport may touch belongs to an operation that is not over, or to this class.
class RemoteMessages final : public Mechanism {
 public:
  explicit RemoteMessages(Core& core);

  /// A send or recv whose peer is on another node.
  void post(Operation& operation, StepId step);
  /// A packet. Copies the payload; an owner is not over before it has left.
  void send(int peer, const Header& header, ConstBytes payload, Operation* owner);
  bool receive();
  /// If the operation was completed here, tells the other nodes what this rank has sent for it, once, and takes what
  /// they have sent besides.
  void has_failed_elsewhere(std::uint64_t sequence);
  /// After the last use. False if something may still come: another user of the transport must not meet it.
  bool close();
  /// Whether messages follow each other so slowly that there is time to sleep meanwhile.
  bool is_slow() const { return long_in_flight_ > 0 && service_ns_ > kSlowNs; }
  bool expects_messages() const { return leaving_ > 0 || is_busy(); }

  bool poll() override;
  bool needs_polling(Caller caller) const override {
    return !core_.transport_broken && expects_messages() &&
           (caller == Caller::application || core_.transport->any_thread());
  }
  bool is_idle() const override { return core_.transport_broken || !is_busy(); }
  void begin(Operation& operation) override;
  void end(Operation& operation) override;
  void cancel(Operation& operation) override;
  void waits_for(const Operation& operation, std::vector<int>& peers) const override;
  bool has_heard(const Operation& operation, int peer) const override;

 private:
  enum class Kind : std::uint8_t { send, receive, packet_out, packet_in, sink };
  /// What the transport has.
  struct InFlight {
    Kind kind = Kind::send;
    int peer = 0;
    StepId step = 0;
    Operation* operation = nullptr;  ///< of a step; a packet's owner, or nullptr
    std::uint64_t sequence = 0;
    std::uint64_t posted_ns = 0;  ///< of long messages
    std::unique_ptr<std::byte[]> memory{};
  };
  struct Packet {
    std::unique_ptr<std::byte[]> memory;
    std::uint64_t bytes = 0;
    int peer = 0;
    Operation* owner = nullptr;
  };
  struct Waiting {
    Operation* operation = nullptr;
    StepId step = 0;
  };
  enum class StepStatus : std::uint8_t { none, posted, done };
  struct State {
    bool leaves_node = false;  ///< counted in leaving_
    std::vector<StepStatus> status;
  };
  /// What a rank tells of its messages to another; Header::tag of MessageKind::sent.
  enum class SentList : std::uint32_t {
    all,        ///< all that it has sent; the operation has failed somewhere, and is over there
    planned,    ///< all that it sends, or has sent, unless it fails
    forgotten,  ///< it completed the operation too long ago to know
  };
  static constexpr std::uint64_t kSlowNs = 300'000;  ///< several times what a nap takes

  bool is_busy() const {
    return in_flight_count_ > 0 || !outbox_.empty() || !waiting_.empty() || !ending_.empty() || !settlements_.empty();
  }
  bool progress(bool look_for_packets);
  bool is_its_turn();
  bool may_post(const Operation& operation, const Step& what) const;
  void post_now(Operation& operation, StepId step);
  bool post_waiting();
  int tag_of(const Operation& operation, StepId step) const;

  std::uint32_t add(InFlight entry);
  InFlight remove(std::uint32_t token);
  void finish(const Transport::Completion& completion);
  void finish_send(const InFlight& done);
  void finish_receive(const InFlight& done, const Transport::Completion& completion);
  void finish_long(std::uint64_t posted_ns);

  bool flush();
  bool take_packet();
  void on_packet(const Header& header, ConstBytes payload);
  void on_probe(const Header& header, ConstBytes payload);

  bool end_failed();
  void withdraw(const Operation& operation);
  bool settle();
  void drop_gone();
  bool is_over(std::uint64_t sequence) const;
  void send_list(int peer, std::uint64_t sequence, SentList kind, const std::vector<SentMessage>& sent);
  /// What the plan of this rank, of a running operation or a past one, sends to the peer or receives from it.
  std::vector<SentMessage> planned(std::uint64_t sequence, int peer, StepKind kind) const;
  void answer(int peer, std::uint64_t sequence, SentList kind);
  void on_list(const Header& header, ConstBytes payload);
  void on_all_sent(std::uint64_t sequence, int peer, std::vector<SentMessage> sent);
  void compare(Operation& operation, int peer, const std::vector<SentMessage>& planned_there);

  Core& core_;
  const TagSplit tags_;
  std::vector<int> remote_;  ///< ranks of other nodes
  SlotTable<InFlight> in_flight_;
  std::size_t in_flight_count_ = 0;
  std::vector<Transport::Completion> complete_;
  PerOperation<State> states_;
  std::size_t leaving_ = 0;  ///< operations that run, with messages from or for ranks of other nodes
  Fifo<Waiting> waiting_;    ///< ready steps that may not be posted yet

  Fifo<Packet> outbox_;
  std::vector<std::unique_ptr<std::byte[]>> spare_;
  bool is_taking_ = false;  ///< a packet is being received
  std::uint32_t polls_ = 0;

  std::vector<Operation*> ending_;  ///< failed, with receives to withdraw; held
  std::map<std::uint64_t, Settlement> settlements_;
  std::map<int, std::vector<SentMessage>> lists_;  ///< in part, by source

  std::vector<std::uint32_t> long_sends_;  ///< posted, by peer
  std::uint32_t window_;                   ///< long sends that a peer may have posted
  std::uint32_t fruitless_ = 0;            ///< polls in which nothing moved
  std::size_t long_in_flight_ = 0;
  std::uint64_t last_done_ns_ = 0;
  std::uint64_t service_ns_ = 0;                  ///< of a long message, a moving average
  std::chrono::steady_clock::time_point looked_;  ///< while nothing was expected
};

}  // namespace penstock::engine
