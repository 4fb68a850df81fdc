// Messages between the ranks of a node, through the cells of a shared-memory queue (cells.hpp).
#pragma once

#include <vector>

#include "engine/cells.hpp"
#include "engine/core.hpp"

namespace penstock::engine {

/// Short messages are sent eagerly. For long ones the sender sends rts; then the receiver reads the sender's memory and
/// answers fin (rendezvous get), or answers cts and gets the message in pieces (data).
class CellMessages final : public Mechanism {
 public:
  explicit CellMessages(Core& core) : core_(core), cells_(*core.node.segment), backlog_(core.node.ranks.size()) {}
  ~CellMessages() {
    for (Fifo<Outgoing>& backlog : backlog_)
      while (!backlog.empty()) {
        const Outgoing unsent = backlog.pop();
        core_.buffers.give_back(unsent.copy, unsent.payload.size());
      }
  }

  void post(Operation& operation, StepId step);
  /// Sends a control message. Copies the payload. `owner` does not finish while the message waits for a cell.
  void send(int peer, const Header& header, ConstBytes payload, Operation* owner);
  void receive_pieces(Operation& operation, StepId step, const Header& rts);
  bool receive();  ///< true if something has come
  bool mend() { return cells_.mend(core_.detector.gone()); }
  /// Sends what waits for free cells, and the next pieces of long messages. True if something moved.
  bool send_waiting();

  bool poll() override {
    bool moved = receive();
    core_.drain();
    if (needs_polling(core_.caller)) moved |= send_waiting();
    return moved;
  }
  bool has_work(Caller) const override { return !cells_.empty(); }
  bool is_empty() const { return cells_.empty(); }
  bool needs_polling(Caller) const override { return backlog_count_ > 0 || !streams_.empty(); }
  bool is_idle() const override { return backlog_count_ == 0; }
  void cancel(Operation& operation) override;
  void waits_for(const Operation& operation, std::vector<int>& peers) const override;
  std::uint64_t moved_bytes(const Operation& operation) const override;

 private:
  /// A message that waits for a free cell.
  struct Outgoing {
    Header header;
    ConstBytes payload{};
    std::byte* copy = nullptr;          ///< the payload, if the engine owns it
    Operation* operation = nullptr;     ///< the operation that waits for it, or nullptr
    StepId step = CompiledPlan::kNone;  ///< complete when the message has left; kNone: the operation waits until then
  };
  struct Send {
    Operation* operation = nullptr;
    StepId step = 0;
    ConstBytes data;
    std::uint64_t sent_bytes = 0;
    std::uint32_t receiver_transfer = 0;
    bool streaming = false;
  };
  struct Receive {
    Operation* operation = nullptr;
    StepId step = 0;
    Bytes to;
    std::uint64_t received_bytes = 0;
  };

  bool can_wait(const Header& header) const;
  bool all_can_wait(const Fifo<Outgoing>& backlog) const;
  bool fill_cell(std::uint32_t local_rank, const Header& header, ConstBytes payload, bool leaves_reserve);
  void add_to_backlog(std::uint32_t local_rank, const Outgoing& message);
  void has_left(const Outgoing& message);
  bool stream(Send& transfer);
  void take(Header header, ConstBytes payload);
  void on_cts(const Header& header);
  void on_data(const Header& header, ConstBytes payload);
  void on_fin(const Header& header);
  template <typename Transfer>
  void end_transfer(SlotTable<Transfer>& table, std::uint32_t id);
  int peer_of(const Operation& operation, StepId step) const { return operation.step(step).peer; }

  Core& core_;
  Cells cells_;
  std::vector<Fifo<Outgoing>> backlog_;  ///< by local rank
  std::size_t backlog_count_ = 0;
  SlotTable<Send> sends_;
  SlotTable<Receive> receives_;
  std::vector<std::uint32_t> streams_;  ///< ids in sends_
};

}  // namespace penstock::engine
