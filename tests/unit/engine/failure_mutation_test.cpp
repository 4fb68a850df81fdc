// Tests that nothing hangs after a failure between nodes because of what each rank then does for the others: breaks
// each such message, receive and withdrawal in turn, and something must be seen to hang. The ranks take turns in one
// thread, so each run makes the same calls of its transports.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <compare>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/executor.hpp"
#include "engine/message.hpp"
#include "engine/remote/settlement.hpp"
#include "engine/remote/tag_split.hpp"
#include "plans.hpp"
#include "ranks.hpp"
#include "wrapped_transport.hpp"

namespace penstock::engine::mutation {
namespace {

constexpr int kSize = 3;
constexpr std::uint64_t kOperations = 5;
constexpr std::uint32_t kSlots = 2;  // so the third operation uses the tags of the first one again
constexpr std::uint64_t kSignature = 7;

/// The operation that has the tag.
std::uint64_t operation_of(int tag) {
  static const TagSplit split(LocalTransportOptions{}.max_tag, kSlots);
  std::uint64_t operation = 0;
  while (operation < kOperations && !(split.is_of(operation, tag) && split.plan_tag(operation, kSignature, tag) < 2))
    ++operation;
  return operation;
}

/// A call of a transport that others, or a later operation of this rank, rely on.
struct Owed {
  enum What : std::uint8_t { notice, list, counts, sink, withdrawal } what;
  int rank;
  int peer;
  std::uint64_t of;     ///< the operation, or the tag of a receive
  std::uint64_t items;  ///< of a list
  int nth = 0;          ///< of such calls

  auto operator<=>(const Owed&) const = default;
};

/// How a call is made. `one_less`, `one_more`: message, as counted or told.
enum class Way : std::uint8_t {
  rightly,
  omitted,
  under_another_tag,
  one_less,
  one_more,
  another_tag_told,
  fewer_bytes,
  again,  ///< and then in each of many turns: nobody may be harmed
};

struct Mutation {
  Owed call;
  Way way;
  std::size_t item = 0;  ///< of a list

  /// A rank tells of later operations too, and counts all messages from the first one on.
  bool is_of(const Owed& made) const {
    const bool is_later = made.what == call.what && made.rank == call.rank && made.peer == call.peer;
    return call.what == Owed::counts && way == Way::omitted ? is_later && made.of >= call.of : made == call;
  }
};

std::string text_of(const Mutation& mutation) {
  const Owed& each = mutation.call;
  constexpr std::array kWhat{"notice", "list", "counts", "sink", "withdrawal"};
  constexpr std::array kWay{"right",    "omitted",          "under another tag", "one less",
                            "one more", "another tag told", "fewer bytes",       "again"};
  return std::string(kWhat[each.what]) + " " + std::to_string(each.nth) + " of rank " + std::to_string(each.rank) +
         " for rank " + std::to_string(each.peer) + ", " + std::to_string(each.of) + ", " + std::to_string(each.items) +
         " items: " + kWay[static_cast<std::size_t>(mutation.way)];
}

/// What all ranks have sent and received, and the one call that is broken.
struct Network {
  std::optional<Mutation> mutation{};
  bool is_applied = false;
  bool is_down = false;  ///< ends what hangs
  bool is_over = false;  ///< the ranks leave
  int turn = 0;
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
               operation_of(its_tag) + kSlots <= operation_of(tag);
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

class NetworkEnd final : public WrappedTransport {
 public:
  NetworkEnd(std::unique_ptr<Transport> under, Network& network)
      : WrappedTransport(std::move(under)), network_(network) {}

  bool isend(ConstBytes from, int peer, int tag, Token token) override {
    check();
    if (tag != TagSplit::kControlTag) {
      network_.check_slot(rank(), peer, tag);
      ++network_.sent[{rank(), peer, tag}];
      return WrappedTransport::isend(from, peer, tag, token);
    }
    Header header;
    std::memcpy(&header, from.data(), sizeof header);
    const bool is_list = header.kind == MessageKind::sent && header.list.kind == ListKind::sent;
    if (!is_list && header.kind != MessageKind::counts && header.kind != MessageKind::notice)
      return WrappedTransport::isend(from, peer, tag, token);
    std::vector<SentMessage> list(is_list ? header.list.items : 0);
    if (!list.empty()) std::memcpy(list.data(), from.data() + sizeof header, header.payload_bytes);
    const Owed call{is_list                              ? Owed::list
                    : header.kind == MessageKind::counts ? Owed::counts
                                                         : Owed::notice,
                    rank(), peer, header.sequence, list.size()};
    if (is_list) network_.lists[call] = list;
    const Way way = network_.way_of(call);
    if (way == Way::rightly) return WrappedTransport::isend(from, peer, tag, token);
    if (way == Way::omitted) return true;
    if (way == Way::under_another_tag) ++network_.sent[{rank(), peer, tag = max_tag()}];
    std::vector<std::byte> packet(from.begin(), from.end());
    if (way == Way::again) {
      repeated_.push_back({packet, peer, token, network_.turn + kRepeatedTurns});
    } else if (is_list) {
      change(list, way, network_.mutation->item);
      header.list.items = list.size();
      header.payload_bytes = static_cast<std::uint32_t>(list.size() * sizeof(SentMessage));
      packet.resize(sizeof header + header.payload_bytes);
      if (!list.empty()) std::memcpy(packet.data() + sizeof header, list.data(), header.payload_bytes);
    } else if (way == Way::one_less || way == Way::one_more) {
      header.count.messages += way == Way::one_more ? 1 : ~std::uint64_t{0};
    }
    std::memcpy(packet.data(), &header, sizeof header);
    EXPECT_TRUE(WrappedTransport::isend(packet, peer, tag, token));
    return true;
  }
  void irecv(Bytes to, int peer, int tag, Token token) override {
    check();
    const bool is_sink = !network_.is_of_caller(to);
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
  void cancel(Token receive) override {
    const auto& [peer, self, tag] = receives_.at(receive).message;
    if (network_.way_of({Owed::withdrawal, rank(), peer, static_cast<std::uint64_t>(tag), 0}) == Way::rightly)
      WrappedTransport::cancel(receive);
  }
  void poll(std::vector<Completion>& complete) override {
    check();
    for (const Repeated& each : repeated_) {
      if (network_.turn >= each.until_turn || network_.is_over) continue;
      EXPECT_TRUE(WrappedTransport::isend(each.packet, each.peer, TagSplit::kControlTag, each.token));
    }
    WrappedTransport::poll(complete_);
    for (const Completion& each : std::exchange(complete_, {})) {
      const auto found = receives_.find(each.token);
      if (found != receives_.end() && found->second.is_sink && network_.turn < found->second.since_turn + kLateTurns) {
        complete_.push_back(each);
        continue;
      }
      complete.push_back(each);
      if (found == receives_.end()) continue;
      --(found->second.is_sink ? network_.sinks : network_.posted)[found->second.message];
      if (!each.withdrawn) --network_.sent[found->second.message];
      network_.cut_off += each.too_long ? 1 : 0;
      receives_.erase(found);
    }
  }

 private:
  void check() const {
    if (network_.is_down) throw Error(ErrorCode::mpi, "the network is down");
  }
  static void change(std::vector<SentMessage>& list, Way way, std::size_t item) {
    constexpr std::int32_t kNoTag = 1;
    if (way == Way::one_less) list.erase(list.begin() + static_cast<std::ptrdiff_t>(item));
    if (way == Way::one_more) list.push_back({.tag = kNoTag, .bytes = 8});
    if (way == Way::another_tag_told) list[item].tag = kNoTag;
    if (way == Way::fewer_bytes) list[item].bytes /= 2;
  }

  static constexpr int kLateTurns = 30;  ///< a sink takes so many: nobody waits for it but who uses its tag again
  static constexpr int kRepeatedTurns = 3 * kLateTurns;
  struct Repeated {
    std::vector<std::byte> packet;
    int peer = 0;
    Token token{};
    int until_turn = 0;
  };
  std::vector<Repeated> repeated_;
  Network& network_;
  struct Receive {
    std::tuple<int, int, int> message;
    bool is_sink = false;
    int since_turn = 0;
  };
  std::map<Token, Receive> receives_;
  std::vector<Completion> complete_;
};

constexpr int kFailing = 1;
constexpr int kSender = 2;                   ///< completes the operation without the second messages
constexpr std::uint64_t kFirstBytes = 4000;  // the transport waits for the receiver
constexpr std::uint64_t kSecondBytes = 40;
constexpr std::uint64_t kOutputBytes = kSize * (kFirstBytes + kSecondBytes) + 2;

enum class Fails : std::uint8_t { before_it_starts, in_the_middle, at_the_end };

bool completes(int rank, Fails when) {
  return rank != kFailing && (when == Fails::at_the_end || (when == Fails::in_the_middle && rank == kSender));
}

/// All send each other a long message, compute, and send each other a short one, but to kSender; then they compute.
std::shared_ptr<const Plan> plan_that_fails(int rank) {
  PlanBuilder builder("test/two_rounds", rank, kSize);
  std::vector<StepId> before;
  const auto round = [&](std::uint32_t tag, std::uint64_t bytes, std::uint64_t begin, bool receives) {
    std::vector<StepId> received = before;
    for (int peer = 0; peer < kSize; ++peer) {
      if (peer == rank) continue;
      const std::uint64_t at = begin + static_cast<std::uint64_t>(peer) * bytes;
      if (receives) received.push_back(builder.recv({at, bytes, Buffer::output}, peer, tag, before));
      if (tag == 0 || peer != kSender) builder.send({0, bytes, Buffer::input}, peer, tag, before);
    }
    before = {builder.reduce({0, 1, Buffer::input}, {kOutputBytes - 1 - tag, 1, Buffer::output}, received)};
  };
  round(0, kFirstBytes, 0, true);
  round(1, kSecondBytes, kSize * kFirstBytes, rank != kSender);
  return std::make_shared<const Plan>(std::move(builder).finish(kFirstBytes, kOutputBytes));
}

/// One rank: an operation that fails, and others that use its tags again.
class Rank {
 public:
  Rank(int rank, Fails when, Network& network) : rank_(rank), when_(when) {
    network.of_callers.push_back(input_);
    network.of_callers.push_back(output_);
  }
  void set_engine(const std::shared_ptr<Engine>& engine) { engine_ = std::static_pointer_cast<Executor>(engine); }

  void turn() {
    engine_->progress(Caller::application);
    engine_->check_peers(Caller::application);
    if (run_ && run_->done()) {
      check(failure_of(*run_));
      run_.reset();
    }
    if (!run_ && next_ < kOperations) start(next_++);
  }
  bool is_over() const { return !run_ && next_ == kOperations && !engine_->active; }
  std::string complaint() const {
    const std::string name = "rank " + std::to_string(rank_);
    if (run_) return name + " waits in operation " + std::to_string(next_ - 1) + "; " + complaint_;
    return engine_->active ? name + " has not settled all; " + complaint_ : complaint_;
  }
  /// The network is down.
  void give_up() {
    while (run_ && !run_->done()) engine_->progress(Caller::application);
    if (run_) static_cast<void>(failure_of(*run_));
    run_.reset();
  }

 private:
  void start(std::uint64_t operation) {
    if (operation > 0) {
      for (std::uint64_t peer = 0; peer < kSize; ++peer) input_[peer] = static_cast<std::byte>(operation * 10 + rank_);
      run_ = engine_->start(alltoall_plan(rank_, kSize, 1), {std::span(input_).first(kSize), output_}, {}, kSignature);
    } else if (rank_ == kFailing && when_ == Fails::before_it_starts) {
      engine_->fail_next("on purpose");
    } else {
      const int last = rank_ != kFailing ? 2 : when_ == Fails::in_the_middle ? 0 : 1;
      const auto op =
          std::make_shared<const UserOp>(UserOp{.combine = [last, calls = std::make_shared<int>(0)](ConstBytes, Bytes) {
            if ((*calls)++ == last) throw Error(ErrorCode::internal, "on purpose");
          }});
      run_ = engine_->start(plan_that_fails(rank_), {input_, output_}, {.user = op}, kSignature);
    }
  }
  void check(const std::optional<Error>& error) {
    if (next_ == 1) {
      const bool is_right = error ? error->message().find("on purpose") != std::string::npos : completes(rank_, when_);
      if (!is_right) complaint_ += error ? error->message() + "; " : "completes what has failed; ";
      return;
    }
    if (error) complaint_ += error->message() + "; ";
    for (std::uint64_t peer = 0; peer < kSize && !error; ++peer)
      if (output_[peer] != static_cast<std::byte>((next_ - 1) * 10 + peer)) complaint_ += "wrong data; ";
  }

  const int rank_;
  const Fails when_;
  std::vector<std::byte> input_ = std::vector<std::byte>(kFirstBytes);
  std::vector<std::byte> output_ = std::vector<std::byte>(kOutputBytes);
  std::shared_ptr<Executor> engine_;
  std::shared_ptr<Run> run_;
  std::uint64_t next_ = 0;
  std::string complaint_;
};

/// What is wrong when nothing moves any more: nothing if all operations are over and nothing is left hanging.
std::string what_hangs(Fails when, Network& network) {
  RanksOptions options = ranks_of({0, 1, 2});
  options.engine.operation_slots = kSlots;
  options.engine.stall_timeout_ms = 0;
  options.transport.rendezvous_bytes = 1000;
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int rank = 0; rank < kSize; ++rank) ranks.push_back(std::make_unique<Rank>(rank, when, network));
  auto transports = make_local_transports(options.nodes, options.transport);
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < kSize; ++rank)
    threads.emplace_back([&, rank] {
      ranks[rank]->set_engine(
          Engine::create(std::make_unique<NetworkEnd>(std::move(transports[rank]), network), options.engine));
    });
  for (std::thread& thread : threads) thread.join();

  constexpr int kTurns = 200;  // some ten suffice
  constexpr int kMore = 5;     // for what comes late
  int over = 0;
  for (; network.turn < kTurns && over < kMore; ++network.turn) {
    for (const auto& rank : ranks) rank->turn();
    over = std::ranges::all_of(ranks, [](const auto& rank) { return rank->is_over(); }) ? over + 1 : 0;
  }
  network.is_over = true;
  std::string complaint;
  for (const auto& rank : ranks) complaint += rank->complaint();
  const auto is_left = [](const auto& messages) { return messages.second != 0; };
  if (std::ranges::any_of(network.sent, is_left)) complaint += "messages are not received; ";
  if (std::ranges::any_of(network.posted, is_left) || std::ranges::any_of(network.sinks, is_left))
    complaint += "receives are left; ";
  if (network.is_early) complaint += "tags are used again too early; ";
  if (network.cut_off > 0) complaint += "a receive was too short; ";
  network.is_down = !complaint.empty();
  for (const auto& rank : ranks) rank->give_up();
  return complaint;
}

/// All that must be noticed. `whole`: the run that is not broken.
std::vector<Mutation> mutations_of(const Network& whole, Fails when) {
  std::vector<Mutation> mutations;
  for (const Owed& each : whole.owed) {
    const auto add = [&](std::initializer_list<Way> ways, std::size_t item = 0) {
      for (const Way way : ways) mutations.push_back({each, way, item});
    };
    switch (each.what) {
      case Owed::notice:
        add({Way::under_another_tag});
        if (!completes(each.peer, when)) add({Way::omitted});  // else the list says it
        break;
      case Owed::counts:
        if (each.of == 0) add({Way::omitted, Way::under_another_tag, Way::one_less, Way::one_more});
        break;
      case Owed::sink: add({Way::omitted, Way::under_another_tag, Way::fewer_bytes}); break;
      case Owed::withdrawal: add({Way::omitted}); break;
      case Owed::list: {
        add({Way::omitted, Way::under_another_tag, Way::one_more});
        const std::vector<SentMessage>& list = whole.lists.at(each);
        for (std::size_t item = 0; item < list.size(); ++item) {
          add({Way::another_tag_told}, item);
          // What has been received need not be told.
          const Owed sink{Owed::sink, each.peer, each.rank, static_cast<std::uint64_t>(list[item].tag), 0};
          if (whole.calls.contains(sink)) add({Way::one_less, Way::fewer_bytes}, item);
        }
      }
    }
  }
  return mutations;
}

class FailureMutations : public testing::TestWithParam<Fails> {};

TEST_P(FailureMutations, AreAllFound) {
  Network whole;
  ASSERT_EQ(what_hangs(GetParam(), whole), "");
  const std::vector<Mutation> mutations = mutations_of(whole, GetParam());
  for (const Mutation& each : mutations) {
    SCOPED_TRACE(text_of(each));
    Network network{.mutation = each};
    EXPECT_NE(what_hangs(GetParam(), network), "");
    EXPECT_TRUE(network.is_applied);
  }
  for (const auto what : {Owed::notice, Owed::list, Owed::counts, Owed::sink, Owed::withdrawal}) {
    const bool is_rare = what == Owed::sink || what == Owed::withdrawal;
    EXPECT_EQ(std::ranges::count(mutations, what, [](const Mutation& each) { return each.call.what; }) == 0,
              is_rare && GetParam() == Fails::at_the_end)
        << "kind " << what;
  }
}

// A rank may hear again what it knows, at any time: also when the operation is settled and not over.
TEST_P(FailureMutations, WhatIsToldAgainHarmsNobody) {
  Network whole;
  ASSERT_EQ(what_hangs(GetParam(), whole), "");
  for (const Owed& each : whole.owed) {
    if (each.what == Owed::sink || each.what == Owed::withdrawal) continue;
    const Mutation again{each, Way::again};
    SCOPED_TRACE(text_of(again));
    Network network{.mutation = again};
    EXPECT_EQ(what_hangs(GetParam(), network), "");
    EXPECT_TRUE(network.is_applied);
  }
}

std::string name_of_moment(const testing::TestParamInfo<Fails>& moment) {
  constexpr std::array kNames{"before_it_starts", "in_the_middle", "at_the_end"};
  return kNames[static_cast<std::size_t>(moment.param)];
}

INSTANTIATE_TEST_SUITE_P(, FailureMutations,
                         testing::Values(Fails::before_it_starts, Fails::in_the_middle, Fails::at_the_end),
                         name_of_moment);

}  // namespace
}  // namespace penstock::engine::mutation
