#include "comm/agreement.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <utility>

#include "base/hash.hpp"
#include "base/ranks_text.hpp"
#include "comm/check.hpp"
#include "penstock/error.hpp"

namespace penstock::comm {
namespace {

enum Word : std::size_t {
  kKind,
  kSignature,
  kCount,
  kDType,
  kOp,
  kRoot,
  kInPlace,
  kElementBytes,
  kCommutative,
  kReproducible,
  kSegmentBytes,
  kSplit,
  kRadix,
  kAlgorithm,
  kWords
};
constexpr std::uint64_t kPlan = 254;
constexpr std::uint64_t kFailure = 255;
constexpr std::size_t kMostDifferences = 4;  // named in one message

std::size_t record_words(int size) { return kWords + 2 * static_cast<std::size_t>(size); }

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
    const auto number = [](std::uint64_t value) { return std::to_string(static_cast<std::int64_t>(value)); };
    compare("root", kRoot, number);
    if (!found_.empty()) return;  // differences of the counts follow from it
    // A rank without neighbours gives any count. Those of others are compared by the lengths of their messages.
    if (!knows_counts_alone(kind) && !is_neighborhood(kind)) compare("count", kCount, amount);
    compare("dtype", kDType, [](std::uint64_t value) { return std::string(name(static_cast<DType>(value))); });
    compare("operation", kOp, [](std::uint64_t value) { return std::string(name(static_cast<ReduceOp>(value))); });
    compare("element_bytes", kElementBytes, number);
    compare("commutative", kCommutative, number);
    compare("reproducible", kReproducible, [](std::uint64_t value) { return value != 0 ? "on" : "off"; });
    compare("segment_bytes", kSegmentBytes, number);
    compare("split", kSplit, number);
    compare("radix", kRadix, number);
    compare("algorithm", kAlgorithm, [](std::uint64_t value) { return value == 0 ? "none" : std::to_string(value); });
    if (!is_in_place_alone(kind)) compare("in place", kInPlace, number);
    const auto root = static_cast<int>(word(0, kRoot));
    const bool exchanges = has_send_counts(kind) && has_receive_counts(kind) && !is_neighborhood(kind);
    for (int rank = 0; rank < size_ && has_counts(kind); ++rank) {
      if (kind == CollectiveKind::gatherv && !(rank == root && word(rank, kInPlace) != 0))
        pair(rank, word(rank, kCount), root, receives(root, rank), amount);
      if (kind == CollectiveKind::scatterv && !(rank == root && word(rank, kInPlace) != 0))
        pair(root, sends(root, rank), rank, word(rank, kCount), amount);
      if (kind == CollectiveKind::allgatherv || kind == CollectiveKind::reduce_scatter)
        compare("receive count of rank " + std::to_string(rank),
                kWords + static_cast<std::size_t>(size_) + static_cast<std::size_t>(rank), amount);
      for (int to = 0; to < size_ && exchanges; ++to)
        pair(rank, word(rank, kInPlace) != 0 ? receives(rank, to) : sends(rank, to), to, receives(to, rank), amount);
    }
  }

  // Groups the ranks by their value.
  template <class Text>
  void compare(const std::string& what, std::size_t index, const Text& as_text) {
    std::map<std::uint64_t, std::vector<int>> groups;
    for (int rank = 0; rank < size_; ++rank) groups[word(rank, index)].push_back(rank);
    if (groups.size() < 2) return;
    std::string difference = what + " is ";
    bool is_first = true;
    for (const auto& [value, ranks] : groups) {
      difference += (is_first ? "" : ", ") + std::string(as_text(value)) + " on " + base::ranks_text(ranks);
      is_first = false;
    }
    found_.push_back(difference);
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

std::vector<std::uint64_t> record_of(const Collective& collective, int size) {
  std::vector<std::uint64_t> record(record_words(size));
  record[kKind] = static_cast<std::uint64_t>(collective.kind);
  record[kCount] = collective.count;
  record[kDType] = static_cast<std::uint64_t>(collective.dtype);
  record[kOp] = static_cast<std::uint64_t>(collective.op);
  record[kRoot] = static_cast<std::uint64_t>(collective.root);
  record[kInPlace] = collective.in_place;
  record[kElementBytes] = collective.element_bytes;
  record[kCommutative] = collective.commutative;
  record[kReproducible] = collective.reproducible;
  record[kSegmentBytes] = collective.segment_bytes;
  record[kSplit] = static_cast<std::uint64_t>(collective.split);
  record[kRadix] = static_cast<std::uint64_t>(collective.radix);
  if (!collective.algorithm.empty()) record[kAlgorithm] = base::mix(base::kSeed, collective.algorithm);
  const auto ranks = static_cast<std::size_t>(size);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const auto of = [&](const std::vector<std::uint64_t>& counts) {
      return counts.empty() ? collective.count : rank < counts.size() ? counts[rank] : 0;
    };
    record[kWords + rank] = of(collective.send.counts);
    record[kWords + ranks + rank] = of(collective.receive.counts);
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
