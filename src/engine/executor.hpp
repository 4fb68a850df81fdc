// The real executor: runs the plans of one communicator over shared memory and the transport.
//
// executor.cpp holds the life of an operation, executor_steps.cpp runs its steps, executor_tasks.cpp the tasks that the
// ranks of a node share, executor_flags.cpp short exchanges inside a node, executor_messages.cpp moves messages,
// executor_failures.cpp ends what cannot be completed, and executor_silence.cpp names who does not come.
#pragma once

#include <array>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/arena.hpp"
#include "engine/board.hpp"
#include "engine/cells.hpp"
#include "engine/distance.hpp"
#include "engine/flags.hpp"
#include "engine/node.hpp"
#include "engine/operation.hpp"
#include "engine/pools.hpp"
#include "engine/progress.hpp"
#include "engine/remote_link.hpp"
#include "plan/arithmetic.hpp"

namespace penstock::engine {

class Executor final : public Engine,
                       public Served,
                       private RemoteEvents,
                       public std::enable_shared_from_this<Executor> {
 public:
  Executor(std::unique_ptr<Transport> transport, const EngineOptions& options, Node node);
  ~Executor() override;

  const Team& team() const override { return node_.team; }
  std::uint64_t shared_limit_bytes() const override { return node_.shared_limit_bytes; }
  std::shared_ptr<Run> start(std::shared_ptr<const Plan> plan, const Bindings& bindings, const Arithmetic& arithmetic,
                             std::uint64_t signature) override;
  void run(std::shared_ptr<const Plan> plan, const Bindings& bindings, const Arithmetic& arithmetic,
           std::uint64_t signature) override;
  void fail_next(const std::string& message) noexcept override;
  std::string report() const override;

  bool progress(Caller caller) noexcept override;
  bool help() noexcept override;
  bool can_sleep(Caller caller) noexcept override;
  bool needs_polling(Caller caller) noexcept override;
  void check_peers() noexcept override;
  void poke() noexcept override;
  Doorbell& bell() noexcept override;

  /// The caller's Run is gone; the operation has finished.
  void drop(Operation* operation) noexcept;

 private:
  /// Work for a thread outside of the lock: an arithmetic step, or the copy of a long message.
  struct Task {
    Operation* operation = nullptr;
    StepId step = 0;
    bool single_copy = false;
    Header rts;
  };
  struct Ready {
    Operation* operation = nullptr;
    StepId step = 0;
  };
  /// A message to a rank of this node that waits for a free cell.
  struct Outgoing {
    Header header;
    ConstBytes payload;
    std::byte* owned = nullptr;      ///< the payload, when it is the engine's
    Operation* operation = nullptr;  ///< whose step is complete when it is sent; or nullptr
    StepId step = 0;
    Operation* owner = nullptr;  ///< of a control message: not over while it waits; or nullptr
  };
  struct SendTransfer {
    Operation* operation = nullptr;
    StepId step = 0;
    ConstBytes data;
    std::uint64_t sent_bytes = 0;
    std::uint32_t receiver_transfer = 0;
    int peer = 0;
    bool streaming = false;
    bool ready = true;   ///< false: announced before its step was ready
    bool ahead = false;  ///< counted in operation->announced_ahead
    int tag = -1;        ///< to another node: under which the receiver awaits it, once known
  };
  struct ReceiveTransfer {
    Operation* operation = nullptr;
    StepId step = 0;
    Bytes to;
    std::uint64_t received_bytes = 0;
    int peer = 0;
  };
  struct History {
    std::uint64_t sequence = ~std::uint64_t{0};
    std::uint64_t signature = 0;
    bool failed = false;
  };

  // executor.cpp
  Operation& operation(std::uint64_t sequence);
  void begin(Operation& operation);
  bool take_shared(Operation& operation);
  void launch(Operation& operation);
  void finish_if_over(Operation& operation);
  void advance_window();
  void recycle(Operation& operation);
  void update_active();
  bool poll();
  bool is_its_turn();
  bool expects_remote() const { return leaving_ > 0 || remote_->busy(); }

  // executor_steps.cpp
  void complete(Operation& operation, StepId step);
  void drain_ready();
  void issue(Operation& operation, StepId step);
  void compute(Operation& operation, StepId step);
  ConstBytes source(const Operation& operation, const Region& region) const;
  Bytes target(const Operation& operation, const Region& region) const;
  void copy(const Operation& operation, const Step& step, Bytes to, ConstBytes from);
  plan::Stores stores(const Operation& operation, const Step& step, Bytes to);
  ConstBytes shared_of_peer(const Operation& operation, const Step& step) const;
  static std::size_t index_of(Lane lane) { return static_cast<std::size_t>(lane); }
  bool may_run(Lane lane) const { return lane == Lane::progress || caller_ == Caller::application; }
  bool run_task(std::unique_lock<std::mutex>& lock, Lane lane);
  bool copy_from_peer(const Task& task);

  // executor_flags.cpp
  bool run_at_once(const std::shared_ptr<const Plan>& plan, const Bindings& bindings, const Arithmetic& arithmetic,
                   std::uint64_t signature);
  bool run_steps_at_once();
  bool await_at_once(const Step& step) const;
  void show(const Operation& operation, const Step& step);
  StepId find_shown(const Operation& operation) const;
  bool poll_flags();
  void leave_flags(Operation& operation);
  void give_up_the_dead();

  // executor_tasks.cpp
  std::uint32_t self() const { return node_.segment->local_rank(); }
  bool slot_is_free(std::uint64_t sequence) const;
  void share(Operation& operation, StepId step);
  void enter(Operation& operation, StepId step);
  bool poll_shares();
  void leave_sharing(Operation& operation);
  bool is_serving(const Operation& operation) const;
  bool has_entered(const Operation& operation, std::uint32_t task, std::uint32_t local_rank) const;
  bool is_ready(const Operation& operation, std::uint32_t task) const;
  bool has_shared_work(Caller caller) const;
  std::optional<std::uint32_t> find_task(Operation& operation, Caller caller) const;
  bool begin_task(const Operation& operation, std::uint32_t task);
  bool run_shared_task(std::unique_lock<std::mutex>& lock);
  void run_task_of(Operation& operation, std::uint32_t task, std::unique_lock<std::mutex>& lock);
  void run_front(Operation& operation);
  void move_data(const Operation& operation, std::uint32_t task, Caller caller) const;
  void finish_task(const Operation& operation, std::uint32_t task);
  void wake_for(const Operation& operation, std::uint32_t task, std::uint32_t turn);
  bool others_touch(const Operation& operation) const;
  void add_missing_sharers(const Operation& operation, std::vector<int>& peers) const;

  // executor_messages.cpp
  /// Between nodes asking first costs more than copying longer messages does.
  std::uint64_t remote_eager_bytes() const { return 4 * node_.eager_bytes; }
  bool is_local(int peer) const { return node_.local_rank[static_cast<std::size_t>(peer)] >= 0; }
  std::uint32_t local(int peer) const {
    return static_cast<std::uint32_t>(node_.local_rank[static_cast<std::size_t>(peer)]);
  }
  Header header_for(const Operation& operation, MessageKind kind, std::uint32_t tag = 0) const;
  void announce_sends(Operation& operation);
  void post_send(Operation& operation, StepId step);
  void send_control(int peer, const Header& header, Operation* owner);
  void send_local(int peer, Outgoing message);
  bool poll_cells();
  bool pump();
  void arrive(const Header& header, ConstBytes payload);
  void match(Operation& operation, const Header& header, ConstBytes payload, StoredMessage* stored);
  void deliver(Operation& operation, StepId step, const Header& header, ConstBytes payload);
  void receive_long(Operation& operation, StepId step, const Header& rts);
  void on_cts(const Header& header);
  void on_data(const Header& header, ConstBytes payload);
  void on_fin(const Header& header);
  StoredMessage* store(const Header& header, ConstBytes payload);
  void forget(StoredMessage* message);
  void on_packet(const Header& header, ConstBytes payload) override { arrive(header, payload); }
  void on_data_sent(std::uint32_t sender_transfer) override;
  void on_data_received(std::uint32_t receiver_transfer, std::uint64_t bytes) override;
  void on_released(Operation* owner) override;

  // executor_failures.cpp
  void fail(Operation& operation, const Error& error, bool announce, int partner = -1);
  void fail_mismatch(Operation& operation, const Header& header, const std::string& what);
  void fail_all(const Error& error) noexcept;
  void announce(std::uint64_t sequence, const Error& error, int partner);
  void send_notice(int peer, std::uint64_t sequence, const Error& error, int partner);
  void on_notice(const Header& header, ConstBytes payload);
  void on_completed(const Header& header);
  void late(const Header& header);
  std::string describe(const Operation& operation) const;
  bool peer_has_failed(int peer, std::uint64_t sequence) const;
  void give_up(std::uint32_t local_rank);
  std::vector<int> missing_peers(Operation& operation);
  void check_peers_of(Operation& operation);

  // executor_silence.cpp
  void watch_silence(Operation& operation);
  bool has_called(const Operation& operation, int peer) const;

  std::unique_ptr<Transport> transport_;
  const EngineOptions options_;
  Node node_;
  const int rank_;
  std::optional<Cells> cells_;
  std::optional<RemoteLink> remote_;
  std::optional<Arena> arena_;
  std::optional<Flags> flags_;
  std::optional<Board> board_;
  Distance distance_;  ///< of those who read this rank's shared memory
  Doorbell own_bell_;  ///< without a segment

  mutable std::mutex mutex_;
  Caller caller_ = Caller::application;  ///< of the thread that holds the lock
  bool transport_broken_ = false;
  std::uint64_t next_sequence_ = 0;  ///< of the next start()
  std::uint64_t base_sequence_ = 0;  ///< of the first entry of window_; all before it have finished
  Fifo<Operation*> window_;          ///< nullptr where nothing is known yet
  std::array<History, 256> history_;
  std::size_t unfinished_ = 0;
  std::size_t leaving_ = 0;  ///< of the operations that run: with messages from or for ranks of other nodes
  std::chrono::steady_clock::time_point looked_;  ///< at the transport, while nothing was expected of it
  std::vector<std::unique_ptr<Operation>> operations_;
  std::vector<Operation*> idle_operations_;
  PlanCache plans_;
  BufferPool buffers_;
  std::vector<std::unique_ptr<StoredMessage>> stored_messages_;
  std::vector<StoredMessage*> idle_messages_;

  Fifo<Ready> ready_;
  std::array<Fifo<Task>, 2> tasks_;      ///< by lane
  Fifo<Operation*> held_;                ///< waiting for space in the arena
  std::vector<Ready> held_shares_;       ///< waiting for their slot of the board
  std::vector<Operation*> flagged_;      ///< by flags, and not over, in the order of their start
  bool is_crowded_ = false;              ///< the node has more ranks than cores
  Operation at_once_;                    ///< what run_at_once() runs
  std::uint64_t shown_for_ = 0;          ///< sequence + 1 of what it has shown for, and then left to start()
  std::vector<Operation*> sharing_;      ///< with tasks that somebody may still run, in the order of their start
  std::vector<Fifo<Outgoing>> backlog_;  ///< by local rank
  std::size_t backlog_count_ = 0;
  std::uint64_t silences_ = 0;  ///< operations in which a peer kept silent for long
  std::string last_silence_;
  std::vector<bool> gone_;  ///< by local rank: found dead, gets no messages any more
  SlotTable<SendTransfer> sends_;
  SlotTable<ReceiveTransfer> receives_;
  std::vector<std::uint32_t> streams_;  ///< ids in sends_
};

}  // namespace penstock::engine
