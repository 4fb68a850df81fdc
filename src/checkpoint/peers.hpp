// The ranks that save and restore together: the three blocking collectives that this layer needs, and agreement on
// outcomes built on them.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "penstock/comm.hpp"
#include "penstock/error.hpp"
#include "penstock/types.hpp"

namespace penstock::checkpoint {

/// All methods are collective and blocking. All ranks call them in the same order, each from one thread at a time.
class Peers {
 public:
  virtual ~Peers() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual void allgather(ConstBytes mine, Bytes all) = 0;
  virtual void broadcast(Bytes data, int root) = 0;
  /// Sends to one rank and receives from one. Together these pairs are a permutation, and the sizes of a pair agree.
  virtual void shift(ConstBytes data, int to, Bytes received, int from) = 0;
};

/// A single process without a communicator.
std::shared_ptr<Peers> single_process();
std::shared_ptr<Peers> peers_of(const Comm& comm);

/// The outcome of one rank, as ranks exchange it.
struct Outcome {
  std::int32_t code = 0;  ///< ErrorCode, or 0
  char text[492] = {};

  static Outcome of(const Error& error);
};

/// Runs `action`. Turns any exception into an Error whose message starts with `what`.
std::optional<Error> attempt(const std::string& what, int rank, const std::function<void()>& action);

/// Throws `own` if this rank failed; else Error(peer_failed) with the text of the first failed rank, if any failed.
void deliver(const std::optional<Error>& own, const std::vector<Outcome>& outcomes, const std::string& what);

/// The value of an action without a result.
struct Done {};

/// What all ranks know after an action.
template <class Value>
struct Poll {
  std::optional<Error> own;
  std::vector<Outcome> outcomes;  ///< one per rank
  std::vector<Value> values;      ///< one per rank; Value{} for a failed rank
};

/// Runs `action`, which returns a small value, on every rank. Every rank gets all outcomes. Collective.
template <class Action, class Value = std::invoke_result_t<Action>>
Poll<Value> poll(Peers& peers, const std::string& what, Action action) {
  static_assert(std::is_trivially_copyable_v<Value>);
  Poll<Value> result;
  Value mine{};
  result.own = attempt(what, peers.rank(), [&] { mine = action(); });
  if (result.own) mine = Value{};
  const Outcome outcome = result.own ? Outcome::of(*result.own) : Outcome{};
  constexpr std::size_t kRecordBytes = sizeof(Outcome) + sizeof(Value);
  std::vector<std::byte> record(kRecordBytes);
  std::memcpy(record.data(), &outcome, sizeof outcome);
  std::memcpy(record.data() + sizeof outcome, &mine, sizeof mine);
  const auto ranks = static_cast<std::size_t>(peers.size());
  std::vector<std::byte> records(kRecordBytes * ranks);
  peers.allgather(record, records);
  result.outcomes.resize(ranks);
  result.values.resize(ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    std::memcpy(&result.outcomes[r], records.data() + r * kRecordBytes, sizeof(Outcome));
    std::memcpy(&result.values[r], records.data() + r * kRecordBytes + sizeof(Outcome), sizeof(Value));
  }
  return result;
}

/// The same, but throws on every rank if `action` threw on any; see deliver(). Returns the values of all ranks.
template <class Action, class Value = std::invoke_result_t<Action>>
std::vector<Value> agree(Peers& peers, const std::string& what, Action action) {
  Poll<Value> result = poll(peers, what, std::move(action));
  deliver(result.own, result.outcomes, what);
  return std::move(result.values);
}

/// Exchanges the vectors of all ranks. Collective. For short vectors: all are padded to the longest.
template <class Value>
std::vector<std::vector<Value>> gather(Peers& peers, const std::vector<Value>& mine) {
  static_assert(std::is_trivially_copyable_v<Value>);
  const auto ranks = static_cast<std::size_t>(peers.size());
  const std::uint64_t own_count = mine.size();
  std::vector<std::uint64_t> counts(ranks);
  peers.allgather(std::as_bytes(std::span(&own_count, 1)), std::as_writable_bytes(std::span(counts)));
  std::uint64_t longest = 0;
  for (const std::uint64_t count : counts) longest = std::max(longest, count);
  std::vector<std::vector<Value>> all(ranks);
  if (longest == 0) return all;
  std::vector<Value> padded = mine;
  padded.resize(longest);
  std::vector<Value> together(longest * ranks);
  peers.allgather(std::as_bytes(std::span(padded)), std::as_writable_bytes(std::span(together)));
  for (std::size_t r = 0; r < ranks; ++r) {
    const auto begin = together.begin() + static_cast<std::ptrdiff_t>(r * longest);
    all[r].assign(begin, begin + static_cast<std::ptrdiff_t>(counts[r]));
  }
  return all;
}

/// Copies `root`'s text to every rank. Collective.
std::string broadcast_text(Peers& peers, std::string text, int root);

}  // namespace penstock::checkpoint
