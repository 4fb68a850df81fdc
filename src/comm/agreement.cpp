#include "comm/agreement.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <utility>

#include "base/hash.hpp"
#include "base/joined.hpp"
#include "base/ranks_text.hpp"
#include "comm/check.hpp"
#include "penstock/error.hpp"

namespace penstock::comm {
namespace {

std::string number(std::uint64_t value) { return std::to_string(static_cast<std::int64_t>(value)); }

/// An argument that has to be equal on all ranks.
struct Argument {
  const char* name;
  std::uint64_t (*of)(const Collective&);
  std::string (*text)(std::uint64_t);
};

constexpr std::array kArguments{
    Argument{"dtype", [](const Collective& asked) { return static_cast<std::uint64_t>(asked.dtype); },
             [](std::uint64_t value) { return std::string(name(static_cast<DType>(value))); }},
    Argument{"operation", [](const Collective& asked) { return static_cast<std::uint64_t>(asked.op); },
             [](std::uint64_t value) { return std::string(name(static_cast<ReduceOp>(value))); }},
    Argument{"element_bytes", [](const Collective& asked) { return asked.element_bytes; }, number},
    Argument{"commutative", [](const Collective& asked) { return std::uint64_t{asked.commutative}; }, number},
    Argument{"reproducible", [](const Collective& asked) { return std::uint64_t{asked.reproducible}; },
             [](std::uint64_t value) { return std::string(value != 0 ? "on" : "off"); }},
    Argument{"segment_bytes", [](const Collective& asked) { return asked.segment_bytes; }, number},
    Argument{"split", [](const Collective& asked) { return static_cast<std::uint64_t>(asked.split); }, number},
    Argument{"radix", [](const Collective& asked) { return static_cast<std::uint64_t>(asked.radix); }, number},
    Argument{
        "algorithm",
        [](const Collective& asked) { return asked.algorithm.empty() ? 0 : base::mix(base::kSeed, asked.algorithm); },
        [](std::uint64_t value) { return value == 0 ? "none" : std::to_string(value); }}};

enum Word : std::size_t { kKind, kSignature, kCount, kRoot, kInPlace, kFirstArgument };
constexpr std::size_t kWords = kFirstArgument + kArguments.size();
/// What follows these words if a record lists no counts.
enum DigestWord : std::size_t { kPairs = kWords, kReceived, kDigestWords };
constexpr std::uint64_t kPlan = 254;
constexpr std::uint64_t kFailure = 255;
constexpr std::size_t kMostDifferences = 4;  // named in one message
/// In larger jobs a record has digests of its counts. All records together would grow with the square of the ranks.
constexpr int kMostListed = 128;

bool lists_counts(int size) { return size <= kMostListed; }
std::size_t record_words(int size) {
  return lists_counts(size) ? kWords + 2 * static_cast<std::size_t>(size) : std::size_t{kDigestWords};
}

bool exchanges(CollectiveKind kind) {
  return has_send_counts(kind) && has_receive_counts(kind) && !is_neighborhood(kind);
}

/// Of a message. The digests of all that is sent, less those of all that is expected, are 0 if both are the same.
std::uint64_t digest(int from, int to, std::uint64_t count) {
  const std::uint64_t pair = static_cast<std::uint64_t>(from) << 32 | static_cast<std::uint64_t>(to);
  return base::mix(base::mix(base::kSeed, pair), count);
}

std::string kind_text(std::uint64_t kind) {
  return kind == kPlan ? "a redistribution or a native operation"
                       : std::string(name(static_cast<CollectiveKind>(kind)));
}

class Records {
 public:
  Records(const std::vector<std::uint64_t>& words, int size) : words_(words), size_(size) {}

  std::string disagreement() {
    for (int rank = 0; rank < size_; ++rank)
      if (word(rank, kKind) == kFailure) return "";
    compare("operation", kKind, kind_text);
    if (!found_.empty()) return text("");
    const std::uint64_t kind = word(0, kKind);
    if (kind == kPlan) {
      compare("operation", kSignature, [](std::uint64_t value) { return "number " + std::to_string(value % 9973); });
      return text(kind_text(kPlan));
    }
    compare_arguments(static_cast<CollectiveKind>(kind));
    return text(kind_text(kind));
  }

 private:
  std::uint64_t word(int rank, std::size_t index) const {
    return words_[static_cast<std::size_t>(rank) * record_words(size_) + index];
  }
  std::uint64_t sends(int rank, int to) const { return word(rank, kWords + static_cast<std::size_t>(to)); }
  std::uint64_t receives(int rank, int from) const {
    return word(rank, kWords + static_cast<std::size_t>(size_) + static_cast<std::size_t>(from));
  }

  void compare_arguments(CollectiveKind kind) {
    const bool is_moved = !computes(kind);
    const auto amount = [&](std::uint64_t value) {
      return std::to_string(value) + (is_moved ? " bytes" : " elements");
    };
    compare("root", kRoot, number);
    if (!found_.empty()) return;  // differences of the counts follow from it
    // A rank without neighbours gives any count. Those of others are compared by the lengths of their messages.
    if (!knows_counts_alone(kind) && !is_neighborhood(kind)) compare("count", kCount, amount);
    for (std::size_t i = 0; i < kArguments.size(); ++i)
      compare(kArguments[i].name, kFirstArgument + i, kArguments[i].text);
    if (!is_in_place_alone(kind)) compare("in place", kInPlace, number);
    if (!lists_counts(size_)) return compare_digests(kind);
    const auto root = static_cast<int>(word(0, kRoot));
    for (int rank = 0; rank < size_ && has_counts(kind); ++rank) {
      if (kind == CollectiveKind::gatherv && !(rank == root && word(rank, kInPlace) != 0))
        pair(rank, word(rank, kCount), root, receives(root, rank), amount);
      if (kind == CollectiveKind::scatterv && !(rank == root && word(rank, kInPlace) != 0))
        pair(root, sends(root, rank), rank, word(rank, kCount), amount);
      if (kind == CollectiveKind::allgatherv || kind == CollectiveKind::reduce_scatter)
        compare("receive count of rank " + std::to_string(rank),
                kWords + static_cast<std::size_t>(size_) + static_cast<std::size_t>(rank), amount);
      for (int to = 0; to < size_ && exchanges(kind); ++to)
        pair(rank, word(rank, kInPlace) != 0 ? receives(rank, to) : sends(rank, to), to, receives(to, rank), amount);
    }
  }

  void compare_digests(CollectiveKind kind) {
    std::uint64_t sent_but_not_expected = 0;
    bool is_received_alike = true;
    for (int rank = 0; rank < size_; ++rank) {
      sent_but_not_expected += word(rank, kPairs);
      is_received_alike = is_received_alike && word(rank, kReceived) == word(0, kReceived);
    }
    if (!is_received_alike || sent_but_not_expected != 0)
      found_.push_back(std::string(has_send_counts(kind) || kind == CollectiveKind::gatherv
                                       ? "some ranks send other counts than their receivers expect"
                                       : "the receive counts differ between ranks") +
                       " (up to " + std::to_string(kMostListed) + " ranks the error names them)");
  }

  // Groups the ranks by their value.
  template <class Text>
  void compare(const std::string& what, std::size_t index, const Text& as_text) {
    std::map<std::uint64_t, std::vector<int>> groups;
    for (int rank = 0; rank < size_; ++rank) groups[word(rank, index)].push_back(rank);
    if (groups.size() < 2) return;
    const auto text_of = [&](const auto& each) {
      return std::string(as_text(each.first)) + " on " + base::ranks_text(each.second);
    };
    found_.push_back(what + " is " + base::joined(groups, ", ", text_of));
  }

  template <class Text>
  void pair(int from, std::uint64_t sent, int to, std::uint64_t expected, const Text& as_text) {
    if (sent != expected)
      found_.push_back("rank " + std::to_string(from) + " sends " + as_text(sent) + " to rank " + std::to_string(to) +
                       ", which expects " + as_text(expected));
  }

  std::string text(const std::string& operation) const {
    if (found_.empty()) return "";
    std::string all = operation.empty() ? "" : operation + ": ";
    for (std::size_t i = 0; i < std::min(found_.size(), kMostDifferences); ++i) all += (i ? "; " : "") + found_[i];
    if (found_.size() > kMostDifferences)
      all += "; and " + std::to_string(found_.size() - kMostDifferences) + " more differences";
    return all;
  }

  const std::vector<std::uint64_t>& words_;
  int size_;
  std::vector<std::string> found_;
};

}  // namespace

std::vector<std::uint64_t> record_of(const Collective& collective, int rank, int size) {
  std::vector<std::uint64_t> record(record_words(size));
  record[kKind] = static_cast<std::uint64_t>(collective.kind);
  record[kCount] = collective.count;
  record[kRoot] = static_cast<std::uint64_t>(collective.root);
  record[kInPlace] = collective.in_place;
  for (std::size_t i = 0; i < kArguments.size(); ++i) record[kFirstArgument + i] = kArguments[i].of(collective);
  const auto count_of = [&](const std::vector<std::uint64_t>& counts, int peer) {
    const auto at = static_cast<std::size_t>(peer);
    return counts.empty() ? collective.count : at < counts.size() ? counts[at] : 0;
  };
  const auto sends = [&](int to) { return count_of(collective.send.counts, to); };
  const auto receives = [&](int from) { return count_of(collective.receive.counts, from); };
  if (lists_counts(size)) {
    for (int peer = 0; peer < size; ++peer) {
      record[kWords + static_cast<std::size_t>(peer)] = sends(peer);
      record[kWords + static_cast<std::size_t>(size + peer)] = receives(peer);
    }
    return record;
  }
  const CollectiveKind kind = collective.kind;
  std::uint64_t& pairs = record[kPairs];
  const bool is_root = rank == collective.root;
  const bool has_own_block = !(is_root && collective.in_place);
  if (kind == CollectiveKind::gatherv && has_own_block) pairs += digest(rank, collective.root, collective.count);
  if (kind == CollectiveKind::scatterv && has_own_block) pairs -= digest(collective.root, rank, collective.count);
  for (int peer = 0; peer < size; ++peer) {
    const bool is_moved = peer != rank || has_own_block;
    if (kind == CollectiveKind::gatherv && is_root && is_moved) pairs -= digest(peer, rank, receives(peer));
    if (kind == CollectiveKind::scatterv && is_root && is_moved) pairs += digest(rank, peer, sends(peer));
    if (kind == CollectiveKind::allgatherv || kind == CollectiveKind::reduce_scatter)
      record[kReceived] = base::mix(record[kReceived], receives(peer));
    if (exchanges(kind)) {
      pairs += digest(rank, peer, collective.in_place ? receives(peer) : sends(peer));
      pairs -= digest(peer, rank, receives(peer));
    }
  }
  return record;
}

std::vector<std::uint64_t> record_of_plan(std::uint64_t signature, int size) {
  std::vector<std::uint64_t> record(record_words(size));
  record[kKind] = kPlan;
  record[kSignature] = signature;
  return record;
}

std::vector<std::uint64_t> record_of_failure(int size) {
  std::vector<std::uint64_t> record(record_words(size));
  record[kKind] = kFailure;
  return record;
}

std::string disagreement(const std::vector<std::uint64_t>& records, int size) {
  return Records(records, size).disagreement();
}

Agreement::Agreement(engine::Engine& engine, std::vector<std::uint64_t> mine)
    : mine_(std::move(mine)), size_(engine.team().size()) {
  all_.resize(mine_.size() * static_cast<std::size_t>(size_));
  const Collective collective{.kind = CollectiveKind::allgather, .count = mine_.size() * sizeof(std::uint64_t)};
  run_ = engine.start(std::make_shared<const Plan>(plan_collective(engine.team(), collective)),
                      {std::as_bytes(std::span(mine_)), std::as_writable_bytes(std::span(all_))}, {},
                      signature(collective));
}

void Agreement::wait() {
  run_->wait();
  if (told_.exchange(true)) return;
  const std::string difference = disagreement(all_, size_);
  if (!difference.empty())
    throw Error(ErrorCode::mismatch, difference +
                                         "; every rank must make the same calls in the same order with "
                                         "matching counts, types and roots");
}

void Agreements::begin_failed() noexcept {
  try {
    std::erase_if(unwatched_, [](const auto& agreement) { return agreement->done(); });
    if (auto agreement = begin([&] { return record_of_failure(engine_.team().size()); }))
      unwatched_.push_back(std::move(agreement));
  } catch (const std::exception&) {
    // Out of memory: the other ranks find that this one has called something else.
  }
}

}  // namespace penstock::comm
