// Tests what happens when a rank leaves or dies while it owes the answer to a question after messages that no rank
// receives: at each moment, also if the question or the answer comes late or again. The others must neither hang nor
// have wrong data, and are told its name.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "broken_network.hpp"
#include "takes_all.hpp"

namespace penstock::engine::mutation::departure {
namespace {

constexpr int kDeaf = 0;     ///< has no step for what the others send it in the first operation
constexpr int kLeaving = 1;  // or dying
constexpr std::uint64_t kBytes = 40;
constexpr std::uint32_t kMessages = 130;  ///< of kLeaving for kDeaf: an answer lists them in two packets

/// How kLeaving goes. Of a death see Network::Dying.
struct Departure {
  bool dies = false;
  std::uint64_t operations = kOperations;  ///< that it calls
  int turns = 0;                           ///< then, until it leaves
  bool is_asleep = false;                  ///< meanwhile
};

class DepartingRank final : public Rank {
 public:
  DepartingRank(int rank, const Departure& how, Network& network)
      : Rank(rank, network, kBytes, kSize * kBytes + 1), how_(how), network_(network) {
    if (rank == kLeaving) operations_ = how.operations;
  }

  void take_turn(int turn) override {
    if (has_gone_) return;
    const bool has_called_all = rank_ == kLeaving && !how_.dies && !run_ && next_ == operations_;
    if (!has_called_all || !how_.is_asleep) Rank::take_turn(turn);
    has_gone_ = network_.has_died(rank_);
    if (!has_called_all || turns_++ < how_.turns) return;
    has_gone_ = true;
    engine_.reset();
  }
  /// After a death the engine stays active.
  bool is_over() const override {
    return has_gone_ || (!run_ && next_ == operations_ && !engine_->needs_polling(Caller::application));
  }
  bool has_gone() const { return has_gone_; }

 private:
  void start_first() override {
    PlanBuilder builder("test/deaf", rank_, kSize);
    for (int peer = 0; peer < kSize; ++peer) {
      if (peer == rank_) continue;
      const bool is_list = rank_ == kLeaving && peer == kDeaf;
      for (std::uint32_t tag = 0; tag < (is_list ? kMessages : 1); ++tag)
        builder.send({0, kBytes, Buffer::input}, peer, tag);
      if (rank_ != kDeaf) builder.recv({static_cast<std::uint64_t>(peer) * kBytes, kBytes, Buffer::output}, peer, 0);
    }
    run_ = engine_->start(std::make_shared<const Plan>(std::move(builder).finish(kBytes, kSize * kBytes + 1)),
                          {input_, output_}, {}, kSignature);
  }
  bool is_right(std::uint64_t operation, const std::optional<Error>& error) const override {
    if (error) return error->code() == ErrorCode::peer_failed && error->rank() == kLeaving;
    return how_.dies || operation < how_.operations;
  }

  const Departure how_;
  Network& network_;
  int turns_ = 0;
  bool has_gone_ = false;
};

/// What kDeaf has been told when kLeaving goes.
enum State : std::uint8_t { not_asked, asked, half_answered, answered };

State state_of(const Network& network) {
  const auto sent = [&](Owed::What what, int rank, int peer) {
    return std::ranges::count_if(
        network.owed, [&](const Owed& each) { return each.what == what && each.rank == rank && each.peer == peer; });
  };
  if (sent(Owed::recount, kDeaf, kLeaving) == 0) return not_asked;
  return static_cast<State>(asked + std::min<std::ptrdiff_t>(2, sent(Owed::recounted, kLeaving, kDeaf)));
}

struct Ended {
  std::string complaint;  ///< of the others; nothing if they end as they should
  State state{};
};

Ended ended(const Departure& how, Network& network) {
  constexpr int kTurns = 400;
  network.tags = kMessages;
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int rank = 0; rank < kSize; ++rank) ranks.push_back(std::make_unique<DepartingRank>(rank, how, network));
  make_engines(ranks, network);
  Ended result;
  const auto& leaving = static_cast<const DepartingRank&>(*ranks[kLeaving]);
  const auto is_over = [](const auto& rank) { return rank->is_over(); };
  for (; network.turn < kTurns && !(network.late == 0 && std::ranges::all_of(ranks, is_over)); ++network.turn) {
    const bool had_gone = leaving.has_gone();
    const State before = state_of(network);  // it answers what has come, then leaves
    for (const auto& rank : ranks) rank->take_turn(network.turn);
    if (leaving.has_gone() && !had_gone) result.state = how.dies ? state_of(network) : before;
  }
  network.is_over = network.is_down = true;
  for (const int rank : {0, 2}) result.complaint += ranks[static_cast<std::size_t>(rank)]->complaint();
  for (const auto& [message, left] : network.sent)
    if (left != 0 && std::get<0>(message) != kLeaving && std::get<1>(message) != kLeaving)
      result.complaint += "messages are not received; ";
  for (const auto& rank : ranks) rank->give_up();
  return result;
}

/// Nothing, and each way in which the question and the answer may come.
std::vector<std::optional<Mutation>> ways_to_be_told() {
  const Owed question{Owed::recount, kDeaf, kLeaving, 0, 0};
  const Owed answer{Owed::recounted, kLeaving, kDeaf, 0, kMessages};
  Owed second_half = answer;
  second_half.nth = 1;
  return {std::nullopt,
          Mutation{question, Way::late},
          Mutation{question, Way::again},
          Mutation{answer, Way::late},
          Mutation{answer, Way::all_again},
          Mutation{second_half, Way::late}};
}

std::string text_of(const std::optional<Mutation>& told) { return told ? mutation::text_of(*told) : "as it happens"; }

TEST(RecountDepartures, ARankThatLeavesHangsNobody) {
  std::set<State> states;
  for (const std::optional<Mutation>& told : ways_to_be_told())
    for (const std::uint64_t operations : {1, 2, 3})
      for (int turns = 0; turns < 10; ++turns)
        for (const bool is_asleep : {false, true}) {
          SCOPED_TRACE(text_of(told) + ", leaves after " + std::to_string(operations) + " operations and " +
                       std::to_string(turns) + " turns" + (is_asleep ? ", asleep" : ""));
          Network network{.mutation = told};
          const Ended result = ended({.operations = operations, .turns = turns, .is_asleep = is_asleep}, network);
          EXPECT_EQ(result.complaint, "");
          states.insert(result.state);
        }
  EXPECT_EQ(states, (std::set{not_asked, asked, answered}));
}

TEST(RecountDepartures, ARankThatDiesHangsNobody) {
  std::set<State> states;
  for (const std::optional<Mutation>& told : ways_to_be_told())
    for (const int seen_after : {0, 20}) {
      bool has_died = true;
      for (int nth = 0; has_died; ++nth) {
        SCOPED_TRACE(text_of(told) + ", dies before message " + std::to_string(nth) + ", seen after " +
                     std::to_string(seen_after) + " turns");
        Network network{.mutation = told, .dying = Network::Dying{kLeaving, nth, seen_after}};
        const Ended result = ended({.dies = true}, network);
        has_died = network.dying->turn.has_value();
        if (!has_died) break;
        EXPECT_EQ(result.complaint, "");
        states.insert(result.state);
      }
    }
  EXPECT_EQ(states, (std::set{not_asked, asked, half_answered, answered}));
}

}  // namespace
}  // namespace penstock::engine::mutation::departure
