#include "penstock/split_model.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "penstock/error.hpp"

namespace penstock {
namespace {

constexpr int kMostCores = 1 << 14;

[[noreturn]] void reject(const std::string& why) { throw Error(ErrorCode::invalid_argument, "split model: " + why); }

void check_number(double value, const char* what) {
  if (!std::isfinite(value) || value < 0)
    reject(std::string(what) + " is " + std::to_string(value) + "; expected a number of at least 0");
}

void check_tree(int ranks, int radix) {
  if (ranks < 1) reject("there are " + std::to_string(ranks) + " ranks; expected at least 1");
  if (radix < 2) reject("radix is " + std::to_string(radix) + "; expected at least 2 (2 is the binomial tree)");
}

void check(const SplitModel& model) {
  switch (model.kind) {
    case CollectiveKind::bcast:
    case CollectiveKind::reduce:
    case CollectiveKind::gather:
    case CollectiveKind::scatter:
    case CollectiveKind::allreduce: break;
    default:
      reject("op is " + std::string(name(model.kind)) +
             "; expected one that follows a tree: bcast, reduce, gather, scatter or allreduce");
  }
  check_number(model.bytes, "bytes");
  check_number(model.segment_bytes, "segment_bytes");
  for (const EdgeCost& cost : {model.costs.application, model.costs.progress}) {
    check_number(cost.latency, "latency");
    check_number(cost.per_byte, "per_byte");
  }
}

void check(SplitCores cores) {
  if (cores.progress < 0)
    reject("there are " + std::to_string(cores.progress) + " communication cores; expected at least 0");
}

bool grows(const SplitModel& model) {
  return model.kind == CollectiveKind::gather || model.kind == CollectiveKind::scatter;
}
// An allreduce passes the tree twice; both passes have the same split.
bool goes_from_root(const SplitModel& model) {
  return model.kind != CollectiveKind::reduce && model.kind != CollectiveKind::gather;
}
bool goes_to_root(const SplitModel& model) {
  return model.kind != CollectiveKind::bcast && model.kind != CollectiveKind::scatter;
}

// The work at one level of a tree: independent pieces. All are equal but the last one, which can be smaller: only the
// subtree of the highest index can be incomplete.
struct Level {
  std::int64_t pieces = 0;
  double piece = 0;
  double last = 0;

  double on_application_cores() const { return pieces > 1 ? piece : last; }
  double folded(int cores) const {
    const std::int64_t equal = pieces - 1;
    const std::int64_t rounds = equal / cores;
    if (equal % cores != 0) return static_cast<double>(rounds + 1) * piece;
    return static_cast<double>(rounds) * piece + last;
  }
};

// The same if cores take pieces of edges; the last piece may be incomplete.
struct Pieces {
  double count = 0;
  double on_application = 0;
  double on_progress = 0;

  double on_application_cores(int cores) const { return folded(count, cores, on_application); }

  // The end of a level that begins at `now` on the communication cores. Application cores compute until `computed` and
  // then take pieces that have not begun.
  double end(double now, SplitCores cores, double computed) const {
    if (now >= computed)
      return now + folded(count, cores.ranks + cores.progress, std::max(on_application, on_progress));
    const double alone = now + folded(count, cores.progress, on_progress);
    if (alone <= computed) return alone;
    const double begun = std::floor((computed - now) / on_progress + kRounding) + 1;
    const double left = std::max(0.0, count - begun * cores.progress);
    return std::min(alone, std::max(now + begun * on_progress, computed + folded(left, cores.ranks, on_application)));
  }

 private:
  static constexpr double kRounding = 1e-9;  // counts are sums of quotients

  static double folded(double count, double cores, double piece) {
    const double whole = std::floor(count + kRounding);
    const double rounds = std::ceil(whole / cores - kRounding);
    const bool has_no_room_for_part = rounds * cores < whole + kRounding;
    return (rounds + (has_no_room_for_part ? std::max(0.0, count - whole) : 0)) * piece;
  }
};

class TreeTimes {
 public:
  TreeTimes(const SplitModel& model, int ranks) : model_(model), ranks_(ranks) {
    check(model);
    height_ = tree_height(ranks, model.radix);
    if (model.waiting_helps && !grows(model) && model.segment_bytes > 0)
      segments_ = std::max(1.0, std::ceil(model.bytes / model.segment_bytes));
  }

  int height() const { return height_; }

  double application(int split) const {
    double sum = 0;
    for (int level = first_split(split); level <= height_; ++level)
      for (const bool to_root : {false, true})
        if (passes(to_root)) sum += at(level, to_root, model_.costs.application, 1).on_application_cores();
    return sum;
  }

  double progress(int split, int cores) const {
    double sum = 0;
    for (int level = 1; level < first_split(split); ++level)
      for (const bool to_root : {false, true})
        if (passes(to_root)) sum += at(level, to_root, model_.costs.progress, 1).folded(cores);
    return sum;
  }

  // The total time if waiting threads help.
  double helped(SplitCores cores, int split, double computation) const {
    double application = 0;
    double now = 0;
    const auto pass = [&](int level, bool to_root) {
      const Pieces pieces = pieces_at(level, to_root);
      if (level >= first_split(split) || cores.progress == 0)
        application += pieces.on_application_cores(cores.ranks);
      else
        now = pieces.end(now, cores, computation);
    };
    if (passes(true))
      for (int level = height_; level >= 1; --level) pass(level, true);
    if (passes(false))
      for (int level = 1; level <= height_; ++level) pass(level, false);
    return application + std::max(computation, now);
  }

 private:
  int first_split(int split) const { return height_ - std::clamp(split, 0, height_) + 1; }
  bool passes(bool to_root) const { return to_root ? goes_to_root(model_) : goes_from_root(model_); }

  // Written to the base of the radix, the parent of v is v with its lowest non-zero digit set to 0. The position of
  // that digit, counted down from the height, is the level.
  Level at(int level, bool to_root, const EdgeCost& cost, double segments) const {
    std::int64_t subtree = 1;
    for (int i = level; i < height_; ++i) subtree *= model_.radix;
    const std::int64_t family = subtree * model_.radix;
    const std::int64_t count = (ranks_ - 1) / subtree;  // of the multiples of `subtree` that are not 0
    const std::int64_t last = count % model_.radix != 0 ? count * subtree : (count - 1) * subtree;
    const auto edge = [&](std::int64_t size) {
      return cost.of((grows(model_) ? model_.bytes * static_cast<double>(size) : model_.bytes) / segments);
    };
    const double whole = edge(subtree);
    const double cut = edge(std::min(subtree, ranks_ - last));
    // Messages to one rank are sequential; messages from one rank are read by their receivers in parallel.
    if (!to_root) return {count - count / model_.radix, whole, cut};
    const std::int64_t earlier_siblings = last % family / subtree - 1;
    return {last / family + 1, (model_.radix - 1) * whole, static_cast<double>(earlier_siblings) * whole + cut};
  }

  Pieces pieces_at(int level, bool to_root) const {
    const Level application = at(level, to_root, model_.costs.application, segments_);
    const Level progress = at(level, to_root, model_.costs.progress, segments_);
    const double part = application.piece > 0 ? application.last / application.piece : 1;
    return {segments_ * (static_cast<double>(application.pieces - 1) + part), application.piece, progress.piece};
  }

  const SplitModel& model_;
  std::int64_t ranks_;
  int height_ = 0;
  double segments_ = 1;  // of an edge
};

double overlapped(const SplitModel& model, const TreeTimes& tree, SplitCores cores, int split, double computation) {
  if (model.waiting_helps) return tree.helped(cores, split, computation);
  if (cores.progress == 0) return computation + tree.application(tree.height());
  return tree.application(split) + std::max(computation, tree.progress(split, cores.progress));
}

}  // namespace

int tree_height(int ranks, int radix) {
  check_tree(ranks, radix);
  int height = 0;
  for (std::int64_t reached = 1; reached < ranks; reached *= radix) ++height;
  return height;
}

std::int64_t tree_edges(int ranks, int level, int radix) {
  const int height = tree_height(ranks, radix);
  if (level < 1 || level > height)
    reject("level is " + std::to_string(level) + "; expected 1 to " + std::to_string(height) +
           ", the height of the tree of " + std::to_string(ranks) + " ranks");
  std::int64_t subtree = 1;
  for (int i = level; i < height; ++i) subtree *= radix;
  const std::int64_t count = (ranks - 1) / subtree;
  return count - count / radix;
}

double computation_time(double on_all_cores, int cores, int ranks) {
  check_number(on_all_cores, "the computation");
  if (cores < 1 || ranks < 1)
    reject("there are " + std::to_string(cores) + " cores and " + std::to_string(ranks) +
           " ranks; expected at least 1 of each");
  return on_all_cores * cores / ranks;
}

double blocking_time(const SplitModel& model, int ranks) {
  const TreeTimes tree(model, ranks);
  return tree.application(tree.height());
}

double computation_on_all_cores(const SplitModel& model, int cores, double ratio) {
  if (!std::isfinite(ratio) || ratio <= 0)
    reject("ratio is " + std::to_string(ratio) + "; expected more than 0: computation / blocking communication");
  return ratio * blocking_time(model, cores);
}

double communication_time(const SplitModel& model, SplitCores cores, int split) {
  return overlapped_time(model, cores, split, 0);
}

double overlapped_time(const SplitModel& model, SplitCores cores, int split, double computation) {
  check(cores);
  check_number(computation, "the computation");
  return overlapped(model, TreeTimes(model, cores.ranks), cores, split, computation);
}

double divided_time(const SplitModel& model, SplitCores cores, double computation) {
  check(model);
  check(cores);
  check_tree(cores.ranks, model.radix);
  check_number(computation, "the computation");
  const double edges = (cores.ranks - 1) * (model.kind == CollectiveKind::allreduce ? 2 : 1);
  const bool fluid = model.segment_bytes == 0 || model.bytes == 0;
  const double segments = fluid ? 1 : std::ceil(model.bytes / model.segment_bytes);
  const auto whole = [&](const EdgeCost& cost) {
    return edges * (fluid ? cost.per_byte * model.bytes : segments * cost.of(model.bytes / segments));
  };
  const double by_application = whole(model.costs.application);
  const double by_progress = whole(model.costs.progress);
  if (by_application == 0 || (cores.progress > 0 && by_progress == 0)) return computation;
  // The fraction of the work that a core does per unit of time.
  const double application_rate = 1 / by_application;
  const double progress_rate = cores.progress > 0 ? 1 / by_progress : 0;
  const double left = 1 - cores.progress * progress_rate * computation;
  if (left <= 0) return computation;
  const double shared = left / (cores.ranks * application_rate + cores.progress * progress_rate);
  // A piece of a sum combines all contributions; a piece of a copy goes to one rank.
  const double pieces = segments * (computes(model.kind) ? 1 : edges);
  return computation + (fluid ? shared : std::max(shared, by_application / pieces));
}

SplitPoint evaluate_split(const SplitModel& model, SplitCores cores, double computation) {
  check(cores);
  check_number(computation, "the computation");
  const TreeTimes tree(model, cores.ranks);
  SplitPoint point{.cores = cores, .computation = computation, .blocking = tree.application(tree.height())};
  for (int split = 0; split <= tree.height(); ++split) {
    point.communication.push_back(overlapped(model, tree, cores, split, 0));
    point.overlapped.push_back(overlapped(model, tree, cores, split, computation));
  }
  const auto shortest = std::min_element(point.overlapped.begin(), point.overlapped.end());
  point.best_split = cores.progress == 0 ? tree.height() : static_cast<int>(shortest - point.overlapped.begin());
  point.divided = divided_time(model, cores, computation);
  return point;
}

int best_split(const SplitModel& model, SplitCores cores, double ratio) {
  check(cores);
  const int all = cores.ranks + cores.progress;
  const double on_all_cores = computation_on_all_cores(model, all, ratio);
  return evaluate_split(model, cores, computation_time(on_all_cores, all, cores.ranks)).best_split;
}

SplitAdvice advise_ranks(const SplitModel& model, int cores, double on_all_cores) {
  if (cores < 2)
    reject("there are " + std::to_string(cores) + " cores; expected at least 2: one to compute, one to communicate");
  if (cores > kMostCores)
    reject("there are " + std::to_string(cores) + " cores; expected those of one node, at most " +
           std::to_string(kMostCores));
  SplitAdvice advice;
  for (int ranks = 1; ranks <= cores; ++ranks)
    advice.points.push_back(
        evaluate_split(model, {ranks, cores - ranks}, computation_time(on_all_cores, cores, ranks)));
  const auto best = std::ranges::min_element(advice.points, {}, &SplitPoint::best_time);
  advice.best = static_cast<std::size_t>(best - advice.points.begin());
  return advice;
}

}  // namespace penstock
