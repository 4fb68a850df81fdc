// A network of which one call is broken, for mutation tests of what ranks owe each other. The ranks take turns, in one
// thread or in one for each, so each run makes the same calls of its transports.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <compare>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/executor.hpp"
#include "engine/message.hpp"
#include "engine/progress.hpp"
#include "engine/remote/settlement.hpp"
#include "engine/remote/tag_split.hpp"
#include "make_engine.hpp"
#include "plans.hpp"
#include "ranks.hpp"
#include "wrapped_transport.hpp"

namespace penstock::engine::mutation {

inline constexpr int kSize = 3;
inline constexpr std::uint64_t kOperations = 5;
inline constexpr std::uint32_t kSlots = 2;  // so the third operation uses the tags of the first one again
inline constexpr std::uint64_t kSignature = 7;

/// The operation that has the tag. `tags`: those of a plan are below.
inline std::uint64_t operation_of(int tag, std::uint32_t tags) {
  static const TagSplit split(LocalTransportOptions{}.max_tag, kSlots);
  std::uint64_t operation = 0;
  while (operation < kOperations && !(split.is_of(operation, tag) && split.plan_tag(operation, kSignature, tag) < tags))
    ++operation;
  return operation;
}

/// A call of a transport that others, or a later operation of this rank, rely on; or the answer of a rank that has
/// left.
struct Owed {
  enum What : std::uint8_t { notice, list, counts, recount, recounted, probe, farewell, sink, withdrawal } what;
  int rank;  ///< of a farewell: which gets it
  int peer;
  std::uint64_t of;     ///< the operation, or the tag of a receive
  std::uint64_t items;  ///< of a list
  int nth = 0;          ///< of such calls

  bool is_packet() const { return what != sink && what != withdrawal; }
  auto operator<=>(const Owed&) const = default;
};

/// How a call is made. `one_less`, `one_more`: message, as counted or told.
enum class Way : std::uint8_t {
  rightly,
  omitted,
  under_another_tag,
  of_another_epoch,
  of_another_rank,  ///< a farewell
  one_less,
  one_more,
  another_tag_told,
  fewer_bytes,
  all_omitted,  ///< and all such calls after it
  again,        ///< and then in each of many turns: nobody may be harmed
  all_again,    ///< and all such calls after it
  late,         ///< with all packets to the same rank that follow: nobody may be harmed
};

struct Mutation {
  Owed call;
  Way way;
  std::size_t item = 0;  ///< of a list

  /// A rank tells of later operations too, and counts all messages from the first one on.
  bool is_of(const Owed& made) const {
    const bool is_later = made.what == call.what && made.rank == call.rank && made.peer == call.peer;
    if (way == Way::all_omitted || way == Way::all_again) return is_later && made.nth >= call.nth;
    return call.what == Owed::counts && way == Way::omitted ? is_later && made.of >= call.of : made == call;
  }
};

inline std::string text_of(const Mutation& mutation) {
  const Owed& each = mutation.call;
  constexpr std::array kWhat{"notice", "list",     "counts", "recount",   "recounted",
                             "probe",  "farewell", "sink",   "withdrawal"};
  constexpr std::array kWay{
      "right",    "omitted",          "under another tag", "of another epoch", "of another rank", "one less",
      "one more", "another tag told", "fewer bytes",       "all omitted",      "again",           "all again",
      "late"};
  return std::string(kWhat[each.what]) + " " + std::to_string(each.nth) + " of rank " + std::to_string(each.rank) +
         " for rank " + std::to_string(each.peer) + ", " + std::to_string(each.of) + ", " + std::to_string(each.items) +
         " items, item " + std::to_string(mutation.item) + ": " + kWay[static_cast<std::size_t>(mutation.way)];
}

/// What all ranks have sent and received, and the one call that is broken.
struct Network {
  std::optional<Mutation> mutation{};
  bool is_applied = false;
  bool is_down = false;  ///< ends what hangs
  bool is_over = false;  ///< the ranks leave
  int turn = 0;
  int late = 0;  ///< packets that are still to come
  std::vector<Owed> owed{};
  std::map<Owed, std::vector<SentMessage>> lists{};
  /// By sender, receiver and tag.
  using Messages = std::map<std::tuple<int, int, int>, int>;
  Messages sent{};        ///< and not received
  Messages posted{};      ///< receives of steps that are not complete
  Messages sinks{};       ///< the same of others
  int cut_off = 0;        ///< messages for which the receive was too short
  bool is_early = false;  ///< a message was posted before those of an earlier one in its slot were received
  std::vector<ConstBytes> of_callers{};
  std::map<Owed, int> calls{};
  std::set<int> completed{};  ///< ranks that have completed the first operation
  /// The n-th send or receive of a step of a rank throws.
  struct Throwing {
    int rank = 0;
    bool is_send = false;
    int nth = 0;
  };
  std::optional<Throwing> throwing{};
  /// A rank dies before it sends its n-th message or packet; others see that some turns later.
  struct Dying {
    int rank = 0;
    int nth = 0;
    int seen_after = 0;
    std::optional<int> turn{};  ///< when it has died
  };
  std::optional<Dying> dying{};
  /// Packets that ranks receive from nobody: late, or again in each turn until the last one.
  struct Delayed {
    int receiver = 0;
    std::vector<std::byte> packet;
    bool is_late = false;
    int from_turn = 0;
    int until_turn = 0;
  };
  std::vector<Delayed> delayed{};
  std::uint32_t tags = 2;  ///< those of plans are below
  int active_turn = 0;     ///< when a rank last called the transport for more than a fruitless poll

  void act() { active_turn = turn; }
  void may_throw(int rank, bool is_send) {
    if (throwing && throwing->rank == rank && throwing->is_send == is_send && throwing->nth-- == 0)
      throw Error(ErrorCode::internal, "on purpose");
  }
  bool has_died(int rank) const { return dying && dying->rank == rank && dying->turn; }
  void may_die(int rank) {
    if (dying && dying->rank == rank && !dying->turn && dying->nth-- == 0) dying->turn = turn;
  }
  Way way_of(Owed call) {
    call.nth = calls[call]++;
    owed.push_back(call);
    if (!mutation || !mutation->is_of(call)) return Way::rightly;
    is_applied = true;
    return mutation->way;
  }
  /// A step of the rank posts a message. See invariant 1 of docs/design/network.md.
  void check_slot(int rank, int peer, int tag) {
    const auto is_left = [&](const Messages& messages, int from, int to) {
      return std::ranges::any_of(messages, [&](const auto& each) {
        const auto [its_from, its_to, its_tag] = each.first;
        return each.second > 0 && its_from == from && its_to == to &&
               operation_of(its_tag, tags) + kSlots <= operation_of(tag, tags);
      });
    };
    is_early = is_early || is_left(sent, peer, rank) || is_left(posted, peer, rank) || is_left(posted, rank, peer);
  }
  bool is_of_caller(ConstBytes memory) const {
    return std::ranges::any_of(of_callers, [&](ConstBytes each) {
      return memory.data() >= each.data() && memory.data() < each.data() + each.size();
    });
  }
};

/// For ranks that are in blocking calls, each in its own thread: one at a time goes on, until it polls.
class Turns {
 public:
  /// `at_turn` is called when all ranks have had their turn.
  explicit Turns(std::function<void()> at_turn) : at_turn_(std::move(at_turn)) {}

  /// Before the first call of the thread. From now on it drives no other engine, does not sleep, and does not check its
  /// peers while it waits: no run depends on time.
  void enter(int rank, Executor& engine) {
    await(rank);
    engines_[static_cast<std::size_t>(rank)] = &engine;
    engine.waiters.fetch_add(1);
  }
  /// Returns when it is the rank's turn again.
  void pass(int rank) {
    Executor* const engine = engines_[static_cast<std::size_t>(rank)];
    if (engine == nullptr) return;
    engine->checked_ns.store(std::numeric_limits<std::int64_t>::max());
    Progress::of_process().attention(*engine);
    hand_on(rank);
    await(rank);
  }
  void leave(int rank) {
    engines_[static_cast<std::size_t>(rank)]->waiters.fetch_sub(1);
    engines_[static_cast<std::size_t>(rank)] = nullptr;
    hand_on(rank);
  }

 private:
  void await(int rank) {
    for (int whose = whose_.load(); whose != rank; whose = whose_.load()) whose_.wait(whose);
  }
  void hand_on(int rank) {
    if (rank + 1 == kSize) at_turn_();
    whose_.store((rank + 1) % kSize);
    whose_.notify_all();
  }

  const std::function<void()> at_turn_;
  std::array<Executor*, kSize> engines_{};
  std::atomic<int> whose_{0};
};

class NetworkEnd final : public WrappedTransport {
 public:
  NetworkEnd(std::unique_ptr<Transport> under, Network& network, Turns* turns = nullptr)
      : WrappedTransport(std::move(under)), network_(network), turns_(turns) {}
  /// What it should send late or again still comes.
  ~NetworkEnd() override { leave_to_network(); }

  bool isend(ConstBytes from, int peer, int tag, Token token) override {
    check();
    network_.may_die(rank());
    if (network_.has_died(rank())) {
      leave_to_network();
      return true;
    }
    network_.act();
    if (tag == TagSplit::kControlTag) return send_packet(from, peer, token);
    network_.may_throw(rank(), true);
    network_.check_slot(rank(), peer, tag);
    ++network_.sent[{rank(), peer, tag}];
    return WrappedTransport::isend(from, peer, tag, token);
  }
  void irecv(Bytes to, int peer, int tag, Token token) override {
    check();
    network_.act();
    const bool is_sink = !network_.is_of_caller(to);
    if (!is_sink) network_.may_throw(rank(), false);
    if (!is_sink) network_.check_slot(rank(), peer, tag);
    const Way way =
        !is_sink ? Way::rightly : network_.way_of({Owed::sink, rank(), peer, static_cast<std::uint64_t>(tag), 0});
    if (way == Way::omitted) return;
    if (way == Way::under_another_tag) tag = max_tag();
    if (way == Way::fewer_bytes) to = to.first(to.size() / 2);
    receives_[token] = {{peer, rank(), tag}, is_sink, network_.turn};
    ++(is_sink ? network_.sinks : network_.posted)[receives_[token].message];
    WrappedTransport::irecv(to, peer, tag, token);
  }
  bool take(Bytes to, int tag, Token token) override {
    if (network_.has_died(rank())) return false;
    const auto due = std::ranges::find_if(network_.delayed, [&](const Network::Delayed& each) {
      return each.receiver == rank() && each.from_turn <= network_.turn && !network_.is_over;
    });
    if (due != network_.delayed.end()) {
      const std::uint64_t bytes = due->packet.size();
      std::memcpy(to.data(), due->packet.data(), bytes);
      network_.late -= due->is_late ? 1 : 0;
      if (due->is_late || ++due->from_turn > due->until_turn)
        network_.delayed.erase(due);
      else
        std::rotate(due, due + 1, network_.delayed.end());
      complete_.push_back({.token = token, .bytes = bytes});
      return true;
    }
    if (!WrappedTransport::take(to, tag, token)) return false;
    network_.act();
    Header header;
    std::memcpy(&header, to.data(), sizeof header);
    if (header.kind == MessageKind::left) take_farewell(header, to);
    return true;
  }
  void cancel(Token receive) override {
    const auto& [peer, self, tag] = receives_.at(receive).message;
    if (network_.way_of({Owed::withdrawal, rank(), peer, static_cast<std::uint64_t>(tag), 0}) == Way::rightly)
      WrappedTransport::cancel(receive);
  }
  bool has_gone(int peer) noexcept override {
    return network_.has_died(peer) && network_.turn >= *network_.dying->turn + network_.dying->seen_after;
  }
  void poll(std::vector<Completion>& complete) override {
    if (turns_ != nullptr && !network_.is_over) turns_->pass(rank());
    check();
    if (network_.has_died(rank())) return;
    for (Repeated& each : repeated_) {
      // Once per turn: a rank that answers each would never come to an end.
      if (network_.turn >= each.until_turn || each.turn == network_.turn || network_.is_over) continue;
      each.turn = network_.turn;
      EXPECT_TRUE(WrappedTransport::isend(each.packet, each.peer, TagSplit::kControlTag, each.token));
    }
    for (const Late& each : late_.turn <= network_.turn ? std::exchange(late_.packets, {}) : std::vector<Late>{}) {
      --network_.late;
      EXPECT_TRUE(WrappedTransport::isend(each.packet, late_.peer, TagSplit::kControlTag, each.token));
    }
    WrappedTransport::poll(complete_);
    for (const Completion& each : std::exchange(complete_, {})) {
      const auto found = receives_.find(each.token);
      if (found != receives_.end() && found->second.is_sink && network_.turn < found->second.since_turn + kLateTurns) {
        complete_.push_back(each);
        continue;
      }
      complete.push_back(each);
      network_.act();
      if (found == receives_.end()) continue;
      --(found->second.is_sink ? network_.sinks : network_.posted)[found->second.message];
      if (!each.withdrawn) --network_.sent[found->second.message];
      network_.cut_off += each.too_long ? 1 : 0;
      receives_.erase(found);
    }
  }

 private:
  static constexpr int kLateTurns = 30;  ///< a sink takes so many: nobody waits for it but who uses its tag again
  static constexpr int kRepeatedTurns = 3 * kLateTurns;

  void check() const {
    if (network_.is_down) throw Error(ErrorCode::mpi, "the network is down");
  }
  static std::optional<Owed::What> what_is(const Header& header) {
    switch (header.kind) {
      case MessageKind::notice: return Owed::notice;
      case MessageKind::counts: return Owed::counts;
      case MessageKind::recount: return Owed::recount;
      case MessageKind::probe: return Owed::probe;
      case MessageKind::sent:
        if (header.list.kind == ListKind::sent) return Owed::list;
        if (header.list.kind == ListKind::recounted) return Owed::recounted;
        [[fallthrough]];
      default: return std::nullopt;
    }
  }
  bool send_packet(ConstBytes from, int peer, Token token) {
    Header header;
    std::memcpy(&header, from.data(), sizeof header);
    std::vector<std::byte> packet(from.begin(), from.end());
    const auto what = what_is(header);
    const bool is_list = what == Owed::list || what == Owed::recounted;
    std::vector<SentMessage> list(is_list ? header.list.items : 0);
    if (!list.empty()) std::memcpy(list.data(), from.data() + sizeof header, header.payload_bytes);
    Way way = Way::rightly;
    if (what) {
      const Owed call{*what, rank(), peer, header.sequence, list.size()};
      if (is_list) network_.lists[call] = list;
      way = network_.way_of(call);
    }
    int tag = TagSplit::kControlTag;
    if (way == Way::late) late_ = {peer, network_.turn + 2 * kLateTurns, {}};
    if (way == Way::late || (!late_.packets.empty() && late_.peer == peer)) {
      late_.packets.push_back({std::move(packet), token});
      ++network_.late;
      return true;
    }
    if (way == Way::omitted || way == Way::all_omitted) return true;
    if (way == Way::under_another_tag) ++network_.sent[{rank(), peer, tag = max_tag()}];
    const bool is_repeated = way == Way::again || way == Way::all_again;
    if (is_repeated) repeated_.push_back({packet, peer, token, network_.turn + kRepeatedTurns});
    if (way == Way::of_another_epoch) header.sequence += kSlots / 2;
    if (is_list && way != Way::rightly && !is_repeated) {
      change(list, way, network_.mutation->item);
      header.list.items = list.size();
      header.payload_bytes = static_cast<std::uint32_t>(list.size() * sizeof(SentMessage));
      packet.resize(sizeof header + header.payload_bytes);
      if (!list.empty()) std::memcpy(packet.data() + sizeof header, list.data(), header.payload_bytes);
    } else if (way == Way::one_less || way == Way::one_more) {
      header.count.messages += way == Way::one_more ? 1 : ~std::uint64_t{0};
    }
    std::memcpy(packet.data(), &header, sizeof header);
    if (way == Way::rightly) return WrappedTransport::isend(from, peer, tag, token);
    EXPECT_TRUE(WrappedTransport::isend(packet, peer, tag, token));
    return true;
  }
  static void change(std::vector<SentMessage>& list, Way way, std::size_t item) {
    constexpr std::int32_t kNoTag = 1;
    if (way == Way::one_less) list.erase(list.begin() + static_cast<std::ptrdiff_t>(item));
    if (way == Way::one_more) list.push_back({.tag = kNoTag, .bytes = 8});
    if (way == Way::another_tag_told) list[item].tag = kNoTag;
    if (way == Way::fewer_bytes) list[item].bytes /= 2;
  }
  /// The transport has received it, so one that is lost is one that the engine ignores.
  void take_farewell(Header header, Bytes to) {
    const Way way = network_.way_of({Owed::farewell, rank(), static_cast<int>(header.source), 0, 0});
    const bool is_late = way == Way::late;
    if (way == Way::again || is_late) {
      const int from_turn = network_.turn + (is_late ? 2 * kLateTurns : 0);
      const ConstBytes packet = ConstBytes(to).first(sizeof header);
      network_.delayed.push_back(
          {rank(), {packet.begin(), packet.end()}, is_late, from_turn, network_.turn + kRepeatedTurns});
      network_.late += is_late ? 1 : 0;
    }
    if (way == Way::of_another_rank) header.source = static_cast<std::uint32_t>(kSize - rank()) - header.source;
    if (is_late || way == Way::omitted || way == Way::all_omitted) ++header.communicator;
    std::memcpy(to.data(), &header, sizeof header);
  }
  /// This rank sends nothing more.
  void leave_to_network() {
    for (Repeated& each : std::exchange(repeated_, {}))
      network_.delayed.push_back({each.peer, std::move(each.packet), false, network_.turn, each.until_turn});
    for (Late& each : std::exchange(late_.packets, {}))
      network_.delayed.push_back({late_.peer, std::move(each.packet), true, late_.turn, late_.turn});
  }

  struct Repeated {
    std::vector<std::byte> packet;
    int peer = 0;
    Token token{};
    int until_turn = 0;
    int turn = -1;
  };
  std::vector<Repeated> repeated_;
  struct Late {
    std::vector<std::byte> packet;
    Token token{};
  };
  struct {
    int peer = -1;
    int turn = 0;
    std::vector<Late> packets;
  } late_;
  Network& network_;
  Turns* const turns_;
  struct Receive {
    std::tuple<int, int, int> message;
    bool is_sink = false;
    int since_turn = 0;
  };
  std::map<Token, Receive> receives_;
  std::vector<Completion> complete_;
};

/// As alltoall_plan(), but a message to itself takes no fast path.
inline std::shared_ptr<const Plan> exchange_in_place_plan(int rank) {
  PlanBuilder builder("test/exchange", rank, kSize);
  for (int peer = 0; peer < kSize; ++peer) {
    const auto at = static_cast<std::uint64_t>(peer);
    if (peer == rank) {
      builder.copy({at, 1, Buffer::input}, {at, 1, Buffer::output});
      continue;
    }
    builder.recv({at, 1, Buffer::output}, peer, 1);
    builder.send({at, 1, Buffer::input}, peer, 1);
  }
  return std::make_shared<const Plan>(std::move(builder).finish(kSize, kSize));
}

/// One rank: a first operation, by the test, and others that use its tags again.
class Rank {
 public:
  Rank(int rank, Network& network, std::uint64_t input_bytes, std::uint64_t output_bytes)
      : rank_(rank), input_(input_bytes), output_(output_bytes), network_(network) {
    network.of_callers.push_back(input_);
    network.of_callers.push_back(output_);
  }
  virtual ~Rank() = default;
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;
  void set_engine(const std::shared_ptr<Engine>& engine) { engine_ = std::static_pointer_cast<Executor>(engine); }

  Executor& engine() { return *engine_; }

  /// `turn`: of all ranks.
  virtual void take_turn(int turn) {
    static_cast<void>(turn);
    engine_->progress(Caller::application);
    engine_->check_peers(Caller::application);
    if (run_ && run_->done()) {
      check(failure_of(*run_));
      run_.reset();
    }
    if (!run_ && next_ < operations_) start(next_++);
  }
  virtual bool is_over() const { return !run_ && next_ == operations_ && !engine_->active; }
  std::string complaint() const {
    const std::string name = "rank " + std::to_string(rank_);
    if (run_ || is_calling_) return name + " waits in operation " + std::to_string(next_ - 1) + "; " + complaint_;
    return is_over() ? complaint_ : name + " has not settled all; " + complaint_;
  }
  /// Blocking calls of all operations, one after the other.
  void call_all() {
    is_calling_ = true;
    while (next_ < operations_) {
      fill(next_++);
      check(failure_of_call());
    }
    is_calling_ = false;
  }
  bool is_calling() const { return is_calling_; }
  bool has_wrong_data() const { return has_wrong_data_; }
  /// The last operation has failed here.
  bool has_failed_at_last() const { return has_failed_at_last_; }
  /// The network is down.
  void give_up() {
    while (run_ && !run_->done()) engine_->progress(Caller::application);
    if (run_) static_cast<void>(failure_of(*run_));
    run_.reset();
  }

 protected:
  virtual void start_first() = 0;
  /// A blocking call of the operation before next_.
  virtual std::optional<Error> failure_of_call() { return std::nullopt; }
  /// How an operation has ended.
  virtual bool is_right(std::uint64_t operation, const std::optional<Error>& error) const = 0;
  virtual void start_later(std::uint64_t operation) {
    static_cast<void>(operation);
    run_ = engine_->start(alltoall_plan(rank_, kSize, 1), {std::span(input_).first(kSize), output_}, {}, kSignature);
  }
  virtual bool has_right_data(std::uint64_t operation) const {
    for (std::uint64_t peer = 0; peer < kSize; ++peer)
      if (output_[peer] != static_cast<std::byte>(operation * 10 + peer)) return false;
    return true;
  }

  const int rank_;
  std::vector<std::byte> input_;
  std::vector<std::byte> output_;
  std::shared_ptr<Executor> engine_;
  std::shared_ptr<Run> run_;
  std::uint64_t next_ = 0;
  std::uint64_t operations_ = kOperations;  ///< that it calls

 private:
  void fill(std::uint64_t operation) {
    for (std::uint64_t peer = 0; peer < kSize && operation > 0; ++peer)
      input_[peer] = static_cast<std::byte>(operation * 10 + static_cast<std::uint64_t>(rank_));
  }
  void start(std::uint64_t operation) {
    if (operation == 0) return start_first();
    fill(operation);
    start_later(operation);
  }
  void check(const std::optional<Error>& error) {
    const std::uint64_t operation = next_ - 1;
    has_failed_at_last_ = operation + 1 == kOperations && error;
    if (operation == 0 && !error) network_.completed.insert(rank_);
    if (!is_right(operation, error)) complaint_ += error ? error->message() + "; " : "completes what has failed; ";
    if (operation == 0 || error || has_right_data(operation)) return;
    has_wrong_data_ = true;
    complaint_ += "wrong data; ";
  }

  Network& network_;
  std::string complaint_;
  bool is_calling_ = false;
  bool has_wrong_data_ = false;
  bool has_failed_at_last_ = false;
};

using Ranks = std::vector<std::unique_ptr<Rank>>;

struct Outcome {
  std::string complaint;  ///< nothing if all operations end as they should and nothing is left hanging
  bool is_over = true;    ///< no rank waits
  bool has_wrong_data = false;
  int failed_at_last = 0;  ///< ranks on which the last operation has failed
};

inline void make_engines(const Ranks& ranks, Network& network, Turns* turns = nullptr) {
  RanksOptions options = ranks_of({0, 1, 2});
  options.engine.operation_slots = kSlots;
  options.engine.stall_timeout_ms = 0;
  options.transport.rendezvous_bytes = 3000;  // packets are shorter
  auto transports = make_local_transports(options.nodes, options.transport);
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < kSize; ++rank)
    threads.emplace_back([&, rank] {
      ranks[rank]->set_engine(
          make_engine(std::make_unique<NetworkEnd>(std::move(transports[rank]), network, turns), options.engine));
    });
  for (std::thread& thread : threads) thread.join();
}

/// What is wrong when nothing moves any more.
inline Outcome judge(const Ranks& ranks, const Network& network, int has_left = -1) {
  Outcome outcome;
  for (const auto& rank : ranks) {
    outcome.complaint += rank->complaint();
    outcome.is_over = outcome.is_over && rank->is_over();
    outcome.has_wrong_data = outcome.has_wrong_data || rank->has_wrong_data();
    outcome.failed_at_last += rank->has_failed_at_last() ? 1 : 0;
  }
  const auto is_left = [&](const auto& messages) {
    return messages.second != 0 && std::get<1>(messages.first) != has_left;
  };
  if (std::ranges::any_of(network.sent, is_left)) outcome.complaint += "messages are not received; ";
  if (std::ranges::any_of(network.posted, is_left) || std::ranges::any_of(network.sinks, is_left))
    outcome.complaint += "receives are left; ";
  if (network.is_early) outcome.complaint += "tags are used again too early; ";
  if (network.cut_off > 0) outcome.complaint += "a receive was too short; ";
  return outcome;
}

/// The ranks start their operations and make progress in turn. `has_left`: a rank that receives nothing more; what was
/// sent to it stays in flight.
inline Outcome outcome_of(const Ranks& ranks, Network& network, int has_left = -1) {
  make_engines(ranks, network);
  constexpr int kTurns = 200;  // some ten suffice
  constexpr int kMore = 5;     // for what comes late
  int over = 0;
  for (; network.turn < kTurns && over < kMore; ++network.turn) {
    for (const auto& rank : ranks) rank->take_turn(network.turn);
    const bool is_over = std::ranges::all_of(ranks, [](const auto& rank) { return rank->is_over(); });
    over = is_over && network.late == 0 ? over + 1 : 0;
  }
  network.is_over = true;
  const Outcome outcome = judge(ranks, network, has_left);
  network.is_down = !outcome.complaint.empty() || has_left >= 0;
  for (const auto& rank : ranks) rank->give_up();
  return outcome;
}

/// The same with blocking calls.
inline Outcome outcome_of_calls(const Ranks& ranks, Network& network) {
  constexpr int kMore = 5;
  constexpr int kQuietTurns = 150;  // a rank that expects messages looks for packets in each 64th poll
  constexpr int kTurns = 3000;
  int over = 0;
  Outcome outcome;
  Turns turns([&] {
    if (network.is_over) return;
    ++network.turn;
    const bool is_over = std::ranges::all_of(ranks, [](const auto& rank) { return rank->is_over(); });
    over = is_over && network.late == 0 ? over + 1 : 0;
    const bool is_quiet = network.turn > network.active_turn + kQuietTurns && network.late == 0;
    if (over < kMore && !is_quiet && network.turn < kTurns) return;
    outcome = judge(ranks, network);
    network.is_down = !outcome.complaint.empty();
    network.is_over = true;
  });
  make_engines(ranks, network, &turns);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kSize; ++rank)
    threads.emplace_back([&, rank] {
      Rank& own = *ranks[static_cast<std::size_t>(rank)];
      turns.enter(rank, own.engine());
      own.call_all();
      while (!network.is_over) own.take_turn(network.turn);
      turns.leave(rank);
    });
  for (std::thread& thread : threads) thread.join();
  return outcome;
}

/// That each packet may come again or late. `outcome`: of one run over the network.
template <typename Function>
void expect_harmless_again_and_late(const std::vector<Owed>& all, Function outcome) {
  for (const Owed& call : all)
    for (const Way way : {Way::again, Way::late}) {
      if (!call.is_packet()) continue;
      const Mutation harmless{call, way};
      SCOPED_TRACE(text_of(harmless));
      Network network{.mutation = harmless};
      EXPECT_EQ(outcome(network).complaint, "");
      EXPECT_TRUE(network.is_applied);
    }
}

}  // namespace penstock::engine::mutation
