// Tests the messages between ranks of a node, and what they tell each other when an operation fails or does not fit:
// breaks each of them in turn in the shared memory where it lies. The ranks take turns in one thread, so each run sends
// the same messages.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <compare>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/cells.hpp"
#include "engine/executor.hpp"
#include "engine/node_setup.hpp"
#include "engine/segment.hpp"
#include "plans.hpp"
#include "ranks.hpp"
#include "takes_all.hpp"

namespace penstock::engine::mutation::node {
namespace {

constexpr int kSize = 3;
constexpr int kMute = 3;  ///< a rank that calls nothing: its cells carry what comes late or again
constexpr int kFailing = 1;
constexpr std::uint64_t kOperations = 4;
constexpr std::uint64_t kSignature = 7;
constexpr std::uint64_t kShortBytes = 40;
constexpr std::uint64_t kLongBytes = 40000;  // not sent eagerly, and in pieces if peers cannot read it
constexpr std::uint64_t kBlockBytes = 3 * kShortBytes + kLongBytes;
constexpr std::uint64_t kOutputBytes = kSize * kBlockBytes + 1;

/// The first operation.
enum class First : std::uint8_t {
  completes,
  completes_by_pieces,  ///< without reads of a peer's memory
  fails,                ///< on one rank, and the others wait for it
  lacks_a_message,      ///< that a rank waits for, of one that has completed it
  has_one_too_many,     ///< for a rank that has completed it
  lacks_all_messages,   ///< that two ranks wait for
};

struct Sent {
  int from = 0;
  int to = 0;
  MessageKind kind{};
  std::uint64_t of = 0;
  std::uint32_t tag = 0;
  int nth = 0;  ///< of such messages

  auto operator<=>(const Sent&) const = default;
};

enum class Way : std::uint8_t {
  rightly,
  lost,
  all_lost,  ///< and all such messages after it
  again,     ///< and then in each of many turns
  late,      ///< with all messages to the same rank that follow
  of_the_next_operation,
  of_the_one_before,
  under_another_tag,
  of_another_call,
  of_another_length,
};

struct Mutation {
  Sent message;
  Way way;

  bool is_of(Sent made) const {
    if (way == Way::all_lost && made.nth >= message.nth) made.nth = message.nth;
    return made == message;
  }
};

std::string text_of(const Mutation& mutation) {
  constexpr std::array kKind{"eager",   "rts",   "cts",       "data",     "fin",  "signal", "notice",
                             "refusal", "probe", "completed", "promised", "sent", "counts", "left"};
  constexpr std::array kWay{"right",           "lost",          "all lost",          "again",           "late",
                            "of the next one", "of one before", "under another tag", "of another call", "other length"};
  const Sent& each = mutation.message;
  return std::string(kKind[static_cast<std::size_t>(each.kind)]) + " " + std::to_string(each.nth) + " from " +
         std::to_string(each.from) + " to " + std::to_string(each.to) + " of operation " + std::to_string(each.of) +
         ", tag " + std::to_string(each.tag) + ": " + kWay[static_cast<std::size_t>(mutation.way)];
}

/// Sees each message before its receiver does, and breaks one.
class Wire {
 public:
  Wire(Segment& of_mute, std::optional<Mutation> mutation) : segment_(of_mute), mute_(of_mute), mutation_(mutation) {
    for (std::uint32_t rank = 0; rank < kSize; ++rank) last_.push_back(Segment::stub(rank));
  }

  /// After each turn of a rank.
  void look(int turn) {
    turn_ = turn;
    for (std::uint32_t to = 0; to < kSize; ++to) follow(to, [&](Cell& cell) { see(to, cell); });
    std::erase_if(injected_, [&](const Injected& each) {
      if (each.from_turn > turn) return false;
      Cell* const cell = mute_.take(each.to, each.payload.size());
      if (cell == nullptr) return false;
      cell->header = each.header;
      std::memcpy(cell->payload(), each.payload.data(), each.payload.size());
      mute_.send();
      return true;
    });
    for (std::uint32_t to = 0; to < kSize; ++to) follow(to, [](Cell&) {});
    while (mute_.receive() != nullptr) {
    }
  }
  bool is_empty() const { return injected_.empty(); }
  bool is_applied() const { return is_applied_; }
  const std::vector<Sent>& sent() const { return sent_; }

 private:
  static constexpr int kLateTurns = 40;
  static constexpr int kRepeatedTurns = 40;

  template <typename Function>
  void follow(std::uint32_t to, Function function) {
    while (const std::uint32_t next = segment_.cell(last_[to]).next.load()) {
      last_[to] = next - 1;
      if (last_[to] != Segment::stub(to)) function(segment_.cell(last_[to]));
    }
  }
  void see(std::uint32_t to, Cell& cell) {
    Header& header = cell.header;
    Sent message{static_cast<int>(header.source), static_cast<int>(to), header.kind, header.sequence, header.tag};
    message.nth = count_[message]++;
    sent_.push_back(message);
    const bool is_it = mutation_ && mutation_->is_of(message);
    const Way way = is_it ? mutation_->way : Way::rightly;
    is_applied_ = is_applied_ || is_it;
    if (way == Way::late) late_ = {message.from, message.to, turn_ + kLateTurns};
    if (turn_ < late_.until_turn && late_.from == message.from && late_.to == message.to) {
      inject(to, cell, late_.until_turn);
      return lose(header);
    }
    switch (way) {
      case Way::lost:
      case Way::all_lost: return lose(header);
      case Way::again:
        for (int turn = turn_; turn < turn_ + kRepeatedTurns; ++turn) inject(to, cell, turn);
        break;
      case Way::of_the_next_operation: ++header.sequence; break;
      case Way::of_the_one_before: --header.sequence; break;
      case Way::under_another_tag: header.tag += 1000; break;
      case Way::of_another_call: ++header.signature; break;
      case Way::of_another_length: ++header.message.bytes; break;
      default: break;
    }
  }
  void inject(std::uint32_t to, Cell& cell, int from_turn) {
    const std::byte* const payload = cell.payload();
    injected_.push_back({to, from_turn, cell.header, {payload, payload + cell.header.payload_bytes}});
  }
  /// The receiver ignores it.
  static void lose(Header& header) {
    header.kind = MessageKind::completed;
    header.sequence = ~std::uint64_t{0};
  }

  struct Injected {
    std::uint32_t to = 0;
    int from_turn = 0;
    Header header;
    std::vector<std::byte> payload;
  };
  struct {
    int from = -1;
    int to = -1;
    int until_turn = 0;
  } late_;
  Segment& segment_;
  Cells mute_;
  const std::optional<Mutation> mutation_;
  int turn_ = 0;
  bool is_applied_ = false;
  std::vector<std::uint32_t> last_;  ///< by receiver: the cell that was seen last
  std::map<Sent, int> count_;
  std::vector<Sent> sent_;
  std::vector<Injected> injected_;  ///< still to come
};

Region block_of(int peer, std::uint64_t offset, std::uint64_t bytes) {
  return {static_cast<std::uint64_t>(peer) * kBlockBytes + offset, bytes, Buffer::output};
}

/// Short and long messages, and shared memory; then a computation, and short messages.
std::shared_ptr<const Plan> whole_plan(int rank) {
  PlanBuilder builder("test/whole", rank, kSize + 1);
  const Region mine = builder.shared(kShortBytes);
  const StepId published = builder.copy({0, kShortBytes, Buffer::input}, mine);
  std::vector<StepId> received;
  for (int peer = 0; peer < kSize; ++peer) {
    if (peer == rank) continue;
    builder.send({0, kShortBytes, Buffer::input}, peer, 0);
    received.push_back(builder.recv(block_of(peer, 0, kShortBytes), peer, 0));
    builder.signal(peer, 2, {published});
    builder.read(mine, peer, block_of(peer, kShortBytes, kShortBytes), {builder.wait(peer, 2)});
    builder.send({0, kLongBytes, Buffer::input}, peer, 1);
    builder.recv(block_of(peer, 3 * kShortBytes, kLongBytes), peer, 1);
  }
  const StepId computed = builder.reduce({0, 1, Buffer::input}, {kOutputBytes - 1, 1, Buffer::output}, received);
  for (int peer = 0; peer < kSize; ++peer) {
    if (peer == rank) continue;
    builder.send({0, kShortBytes, Buffer::input}, peer, 3, {computed});
    builder.recv(block_of(peer, 2 * kShortBytes, kShortBytes), peer, 3);
  }
  return std::make_shared<const Plan>(std::move(builder).finish(kLongBytes, kOutputBytes));
}

/// Ranks 1 and 2 send each other a message. What rank 0 has does not fit to that.
std::shared_ptr<const Plan> plan_that_differs(int rank, First first) {
  PlanBuilder builder("test/differs", rank, kSize + 1);
  const auto exchange = [&](int peer) {
    builder.send({0, kShortBytes, Buffer::input}, peer, 0);
    builder.recv(block_of(peer, 0, kShortBytes), peer, 0);
  };
  if (rank > 0) exchange(kSize - rank);
  if (rank == 0) builder.recv(block_of(1, 0, kShortBytes), 1, 0);
  if (rank == 0 && first == First::has_one_too_many) builder.send({0, kShortBytes, Buffer::input}, 2, 0);
  if (rank == 1 && first == First::lacks_all_messages) builder.recv(block_of(0, 0, kShortBytes), 0, 0);
  return std::make_shared<const Plan>(std::move(builder).finish(kLongBytes, kOutputBytes));
}

class Rank {
 public:
  Rank(int rank, First first, std::shared_ptr<Executor> engine)
      : rank_(rank), first_(first), engine_(std::move(engine)) {}

  void take_turn(int turn) {
    // Rank 0 comes when the others have completed the first operation.
    constexpr int kComesInTurn = 10;
    const bool is_late = first_ == First::lacks_a_message || first_ == First::has_one_too_many;
    if (rank_ == 0 && is_late && turn < kComesInTurn) return;
    engine_->progress(Caller::application);
    engine_->check_peers(Caller::application);
    if (run_ && run_->done()) {
      check(failure_of(*run_));
      run_.reset();
    }
    if (!run_ && next_ < kOperations) start(next_++);
  }
  bool is_over() const { return !run_ && next_ == kOperations && !engine_->active; }
  bool waits() const { return run_ != nullptr; }
  bool has_wrong_data() const { return has_wrong_data_; }
  const std::vector<std::optional<Error>>& errors() const { return errors_; }
  /// Nothing moves any more.
  void give_up() {
    engine_->set_timeout(std::chrono::milliseconds(1));
    engine_->progress(Caller::application);
    engine_->check_peers(Caller::application);
    if (!run_ || !run_->done()) return;
    static_cast<void>(failure_of(*run_));
    run_.reset();
  }

 private:
  bool is_whole() const { return first_ <= First::fails; }
  void start(std::uint64_t operation) {
    std::ranges::fill(input_, static_cast<std::byte>(operation * 10 + static_cast<std::uint64_t>(rank_)));
    std::ranges::fill(output_, std::byte{255});
    const bool fails = rank_ == kFailing && operation == 0 && first_ == First::fails;
    const auto op = std::make_shared<const UserOp>(UserOp{.combine = [fails](ConstBytes, Bytes) {
      if (fails) throw Error(ErrorCode::internal, "on purpose");
    }});
    run_ = engine_->start(operation > 0 || is_whole() ? whole_plan(rank_) : plan_that_differs(rank_, first_),
                          {input_, output_}, {.user = op}, kSignature);
  }
  void check(const std::optional<Error>& error) {
    const std::uint64_t operation = next_ - 1;
    errors_.push_back(error);
    if (error || (operation == 0 && !is_whole())) return;
    for (int peer = 0; peer < kSize; ++peer)
      for (std::uint64_t i = 0; i < kBlockBytes && peer != rank_; ++i)
        has_wrong_data_ |= output_[static_cast<std::uint64_t>(peer) * kBlockBytes + i] !=
                           static_cast<std::byte>(operation * 10 + static_cast<std::uint64_t>(peer));
  }

  const int rank_;
  const First first_;
  std::vector<std::byte> input_ = std::vector<std::byte>(kLongBytes);
  std::vector<std::byte> output_ = std::vector<std::byte>(kOutputBytes);
  std::shared_ptr<Executor> engine_;
  std::shared_ptr<Run> run_;
  std::uint64_t next_ = 0;
  std::vector<std::optional<Error>> errors_;  ///< by operation
  bool has_wrong_data_ = false;
};

struct Outcome {
  bool reads_peers = false;  ///< what the kernel allows
  bool is_applied = false;
  bool is_over = false;             ///< no call waits, and nothing is left
  bool has_wrong_data = false;      ///< in an operation without an error
  std::vector<std::string> ends{};  ///< by rank: how its operations ended, a letter for each
  std::vector<Sent> sent{};
};

Outcome outcome(First first, const std::optional<Mutation>& mutation) {
  EngineOptions options;
  options.stall_timeout_ms = 0;
  options.huge_pages = false;
  options.single_copy = first != First::completes_by_pieces;
  auto transports = make_local_transports(one_node(kSize + 1));
  std::vector<Node> nodes(transports.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < transports.size(); ++rank)
    threads.emplace_back([&, rank] {
      Transport& transport = *transports[rank];
      NodeSetup setup(transport, std::vector<std::byte>(NodeSetup::memory_bytes(transport.size(), {})), {});
      setup.exchange_facts(options);
      setup.exchange_results();
      nodes[rank] = setup.finish(options);
    });
  for (std::thread& thread : threads) thread.join();

  const bool reads_peers = nodes[0].single_copy;
  Segment& of_mute = *nodes[kMute].segment;
  of_mute.slot(kMute).completed_before = kOperations;
  Wire wire(of_mute, mutation);
  std::vector<Rank> ranks;
  for (int rank = 0; rank < kSize; ++rank) {
    const auto index = static_cast<std::size_t>(rank);
    auto engine = std::make_shared<Executor>(std::shared_ptr<Transport>(std::move(transports[index])), options,
                                             std::move(nodes[index]));
    engine->enter();
    ranks.emplace_back(rank, first, std::move(engine));
  }
  constexpr int kTurns = 200;
  constexpr int kMore = 5;
  int over = 0;
  for (int turn = 0; turn < kTurns && over < kMore; ++turn) {
    for (Rank& rank : ranks) {
      rank.take_turn(turn);
      wire.look(turn);
    }
    over = std::ranges::all_of(ranks, &Rank::is_over) && wire.is_empty() ? over + 1 : 0;
  }
  Outcome outcome{
      .reads_peers = reads_peers, .is_applied = wire.is_applied(), .is_over = over == kMore, .sent = wire.sent()};
  for (const Rank& rank : ranks) {
    outcome.has_wrong_data |= rank.has_wrong_data();
    std::string& ends = outcome.ends.emplace_back();
    for (const std::optional<Error>& each : rank.errors()) ends += each ? 'e' : '-';
  }
  for (int turn = kTurns; std::ranges::any_of(ranks, &Rank::waits); ++turn)
    for (Rank& rank : ranks) {
      rank.give_up();
      wire.look(turn);
    }
  return outcome;
}

/// What a mutation may do. None gives wrong data.
enum class Effect : std::uint8_t {
  none,           ///< each rank ends each operation as if nothing were broken
  ends,           ///< each call ends, some of them perhaps by an error
  ends_by_error,  ///< each call ends, some of them by an error
  found,          ///< an error, or a call waits for what does not come
  any,
};

bool is_control(MessageKind kind) { return kind >= MessageKind::notice; }
bool is_of_step(MessageKind kind) {
  return kind == MessageKind::eager || kind == MessageKind::rts || kind == MessageKind::signal;
}

Effect effect_of(const Mutation& mutation, First first) {
  const MessageKind kind = mutation.message.kind;
  const bool completes = first == First::completes || first == First::completes_by_pieces;
  const bool is_whole = completes || first == First::fails;
  switch (mutation.way) {
    case Way::late: return is_whole || !is_of_step(kind) ? Effect::none : Effect::ends;
    case Way::again: return is_of_step(kind) ? Effect::ends : Effect::none;
    case Way::all_lost:
      // What tells a rank that it waits in vain.
      if (first == First::lacks_a_message && (kind == MessageKind::probe || kind == MessageKind::completed))
        return Effect::found;
      [[fallthrough]];
    case Way::lost:
      if (is_control(kind)) return Effect::none;  // it is sent again, or shared memory says the same
      return completes ? Effect::found : Effect::any;
    case Way::of_the_next_operation:
    case Way::of_the_one_before:
      if (kind == MessageKind::notice || kind == MessageKind::refusal) return Effect::any;
      return is_control(kind) ? Effect::none : completes ? Effect::found : Effect::any;
    default: return completes ? Effect::ends_by_error : Effect::ends;
  }
}

std::vector<Mutation> mutations_of(const Outcome& whole, First first) {
  std::vector<Mutation> mutations;
  for (const Sent& message : whole.sent) {
    const auto add = [&](std::initializer_list<Way> ways) {
      for (const Way way : ways) mutations.push_back({message, way});
    };
    if (message.of == 1 && first == First::completes) add({Way::of_the_one_before});
    if (message.of > 0) continue;
    add({Way::lost, Way::late, Way::of_the_next_operation});
    if (is_control(message.kind)) add({Way::all_lost});
    // A piece that comes twice is counted twice.
    if (message.kind != MessageKind::data) add({Way::again});
    if (is_of_step(message.kind)) add({Way::under_another_tag, Way::of_another_call});
    if (message.kind == MessageKind::probe && first == First::completes) add({Way::of_another_call});
    if (message.kind == MessageKind::eager || message.kind == MessageKind::rts) add({Way::of_another_length});
  }
  return mutations;
}

class NodeMutations : public testing::TestWithParam<First> {
 protected:
  /// Those of the first operation, but for some of the control messages.
  std::set<MessageKind> kinds() const {
    switch (GetParam()) {
      case First::completes:
        return {MessageKind::eager, MessageKind::rts, MessageKind::fin, MessageKind::signal, MessageKind::probe};
      case First::completes_by_pieces:
        return {MessageKind::eager, MessageKind::rts, MessageKind::cts, MessageKind::data, MessageKind::signal};
      case First::fails: return {MessageKind::eager, MessageKind::rts, MessageKind::signal, MessageKind::notice};
      case First::lacks_a_message:
        return {MessageKind::eager, MessageKind::probe, MessageKind::completed, MessageKind::notice};
      case First::has_one_too_many: return {MessageKind::eager, MessageKind::refusal, MessageKind::notice};
      case First::lacks_all_messages:
        return {MessageKind::eager, MessageKind::probe, MessageKind::promised, MessageKind::notice};
    }
    return {};
  }
};

TEST_P(NodeMutations, NeverGiveWrongData) {
  const Outcome whole = outcome(GetParam(), std::nullopt);
  ASSERT_TRUE(whole.is_over);
  ASSERT_FALSE(whole.has_wrong_data);
  std::set<MessageKind> missing = kinds();
  if (!whole.reads_peers) missing.erase(MessageKind::fin);
  const std::vector<Mutation> mutations = mutations_of(whole, GetParam());
  for (const Mutation& each : mutations) missing.erase(each.message.kind);
  EXPECT_TRUE(missing.empty()) << "kind " << static_cast<int>(*missing.begin());
  for (std::size_t i = 0; i < mutations.size(); i += fewer_if_sanitized(7)) {
    const Mutation& mutation = mutations[i];
    SCOPED_TRACE(text_of(mutation));
    const Outcome found = outcome(GetParam(), mutation);
    EXPECT_TRUE(found.is_applied);
    EXPECT_FALSE(found.has_wrong_data);
    const Effect effect = effect_of(mutation, GetParam());
    const bool ends_otherwise = found.ends != whole.ends;
    EXPECT_TRUE(found.is_over || effect >= Effect::found);
    EXPECT_TRUE(!ends_otherwise || effect != Effect::none);
    EXPECT_TRUE(ends_otherwise || (effect != Effect::ends_by_error && effect != Effect::found));
  }
}

std::string name_of_first(const testing::TestParamInfo<First>& first) {
  constexpr std::array kNames{"completes",       "completes_by_pieces", "fails",
                              "lacks_a_message", "has_one_too_many",    "lacks_all_messages"};
  return kNames[static_cast<std::size_t>(first.param)];
}

INSTANTIATE_TEST_SUITE_P(, NodeMutations,
                         testing::Values(First::completes, First::completes_by_pieces, First::fails,
                                         First::lacks_a_message, First::has_one_too_many, First::lacks_all_messages),
                         name_of_first);

}  // namespace
}  // namespace penstock::engine::mutation::node
