#include "penstock/tuning.hpp"

#include <algorithm>
#include <cmath>

#include "base/json.hpp"
#include "collectives/parts/arguments.hpp"
#include "collectives/parts/group.hpp"
#include "collectives/parts/levels.hpp"
#include "penstock/error.hpp"

namespace penstock {
namespace {

constexpr std::string_view kFormat = "penstock-tuning";
constexpr std::uint64_t kVersion = 2;
constexpr std::uint64_t kOldestVersion = 1;  // has no native candidates
constexpr std::string_view kNative = "native";

const Algorithm* find_row(CollectiveKind kind, std::string_view name) {
  const auto rows = algorithms();
  const auto row = std::ranges::find_if(rows, [&](const Algorithm& a) { return a.kind == kind && a.name == name; });
  return row == rows.end() ? nullptr : &*row;
}

TuningKey key_of(const json::Value& table) {
  return {.mpi = table.at("mpi").text(),
          .thread_level = table.at("thread_level").text(),
          .nodes = table.at("nodes").number(),
          .ranks_per_node = table.at("ranks_per_node").text(),
          .placement = table.at("placement").text(),
          .progress_cores = table.at("progress_cores").number(),
          .single_copy = table.at("single_copy").text()};
}

/// "placement is '0*4', but this communicator's is '0*2 1*2'" for each difference.
std::vector<std::string> differences(const TuningKey& table, const TuningKey& here) {
  std::vector<std::string> found;
  const auto compare = [&](const char* name, const std::string& there, const std::string& mine) {
    if (there != mine) found.push_back(std::string(name) + " is '" + there + "', here it is '" + mine + "'");
  };
  compare("mpi", table.mpi, here.mpi);
  compare("thread_level", table.thread_level, here.thread_level);
  compare("nodes", std::to_string(table.nodes), std::to_string(here.nodes));
  compare("ranks_per_node", table.ranks_per_node, here.ranks_per_node);
  compare("placement", table.placement, here.placement);
  compare("progress_cores", std::to_string(table.progress_cores), std::to_string(here.progress_cores));
  compare("single_copy", table.single_copy, here.single_copy);
  return found;
}

Tuning::Point parse_point(CollectiveKind kind, const json::Value& from) {
  Tuning::Point point{.bytes = from.at("bytes").number(),
                      .native_nanoseconds = from.at("native_nanoseconds").number(),
                      .candidates = {}};
  for (const json::Value& each : from.at("candidates").items()) {
    Tuning::Candidate candidate{each.at("algorithm").text(), each.at("segment_bytes").number(),
                                each.at("nanoseconds").number()};
    if (candidate.algorithm != kNative && find_row(kind, candidate.algorithm) == nullptr)
      throw Error(ErrorCode::unsupported, "it names the algorithm '" + candidate.algorithm + "' of " +
                                              std::string(name(kind)) +
                                              ", which this version of Penstock does not have; tune again");
    if (candidate.nanoseconds == 0)
      throw Error(ErrorCode::corrupt, "it gives '" + candidate.algorithm + "' a time of 0 ns; tune again");
    point.candidates.push_back(std::move(candidate));
  }
  return point;
}

std::string time_text(double nanoseconds) {
  const bool is_long = nanoseconds >= 1e6;
  const auto tenths = static_cast<std::uint64_t>(std::llround(nanoseconds / (is_long ? 1e5 : 1e2)));
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + (is_long ? " ms" : " us");
}

std::string against_native(double nanoseconds, std::uint64_t native_nanoseconds) {
  if (native_nanoseconds == 0 || static_cast<double>(native_nanoseconds) >= nanoseconds) return {};
  return "; MPI's own took " + time_text(static_cast<double>(native_nanoseconds));
}

bool fits_row(const Team& team, const Collective& collective, const Tuning::Candidate& candidate) {
  const Algorithm* row = find_row(collective.kind, candidate.algorithm);
  return row != nullptr && row->fits(team, collective);
}

/// "0*2 1*3": twice 0, then three times 1.
std::string runs_of(const std::vector<std::int32_t>& numbers) {
  std::string text;
  for (std::size_t first = 0; first < numbers.size();) {
    std::size_t end = first;
    while (end < numbers.size() && numbers[end] == numbers[first]) ++end;
    text += (text.empty() ? "" : " ") + std::to_string(numbers[first]) + "*" + std::to_string(end - first);
    first = end;
  }
  return text;
}

}  // namespace

TuningKey tuning_key(const Team& team, std::string_view mpi, bool any_thread) {
  std::vector<int> sizes(static_cast<std::size_t>(collectives::node_count(team)));
  for (const std::int32_t node : team.node_of_rank) ++sizes[static_cast<std::size_t>(node)];
  std::string placement = runs_of(team.node_of_rank);
  if (!team.domain_of_rank.empty()) placement += "; domains " + runs_of(team.domain_of_rank);
  std::string ranks_per_node;
  for (const int size : sizes) ranks_per_node += (ranks_per_node.empty() ? "" : " ") + std::to_string(size);
  return {.mpi = std::string(mpi),
          .thread_level = any_thread ? "multiple" : "below multiple",
          .nodes = sizes.size(),
          .ranks_per_node = std::move(ranks_per_node),
          .placement = std::move(placement),
          .progress_cores = static_cast<std::uint64_t>(team.progress_cores),
          .single_copy = team.single_copy ? "on" : "off"};
}

std::string to_json(const TuningKey& key) {
  return json::Object()
      .string("mpi", key.mpi)
      .string("thread_level", key.thread_level)
      .number("nodes", key.nodes)
      .string("ranks_per_node", key.ranks_per_node)
      .string("placement", key.placement)
      .number("progress_cores", key.progress_cores)
      .string("single_copy", key.single_copy)
      .finish();
}

Tuning Tuning::parse(std::string_view text, const TuningKey& key) {
  const json::Value file = json::Value::parse(text);
  if (file.at("format").text() != kFormat)
    throw Error(ErrorCode::corrupt, "its format is not '" + std::string(kFormat) + "'");
  if (const std::uint64_t version = file.at("version").number(); version < kOldestVersion || version > kVersion)
    throw Error(ErrorCode::unsupported, "its version is " + std::to_string(version) + "; expected " +
                                            std::to_string(kOldestVersion) + " to " + std::to_string(kVersion) +
                                            "; tune again");
  std::vector<std::string> closest;
  for (const json::Value& table : file.at("tables").items()) {
    const std::vector<std::string> different = differences(key_of(table), key);
    if (!different.empty()) {
      if (closest.empty() || different.size() < closest.size()) closest = different;
      continue;
    }
    Tuning tuning;
    for (const json::Value& operation : table.at("operations").items()) {
      CollectiveKind kind{};
      try {
        kind = collective_kind_from_name(operation.at("operation").text());
      } catch (const Error& error) {
        throw Error(error.code() == ErrorCode::corrupt ? ErrorCode::corrupt : ErrorCode::unsupported, error.message());
      }
      std::vector<Point>& points = tuning.points_[kind];
      for (const json::Value& point : operation.at("points").items()) points.push_back(parse_point(kind, point));
      std::ranges::sort(points, {}, &Point::bytes);
    }
    return tuning;
  }
  std::string why = "it has no table for this communicator";
  for (std::size_t i = 0; i < closest.size(); ++i) why += (i == 0 ? "; in the closest, " : ", ") + closest[i];
  throw Error(ErrorCode::not_found, why);
}

std::size_t Tuning::point_count() const {
  std::size_t count = 0;
  for (const auto& [kind, points] : points_) count += points.size();
  return count;
}

std::optional<Tuning::Found> Tuning::find(const Team& team, const Collective& collective, bool with_native) const {
  const auto fits = [&](const Candidate& candidate) {
    return candidate.algorithm == kNative ? with_native : fits_row(team, collective, candidate);
  };
  const auto known = points_.find(collective.kind);
  if (known == points_.end()) return std::nullopt;
  std::vector<const Point*> points;  // with a candidate that fits
  for (const Point& point : known->second)
    if (std::ranges::any_of(point.candidates, fits)) points.push_back(&point);
  if (points.empty()) return std::nullopt;

  const std::uint64_t bytes = collectives::block_bytes(collective);
  const auto above = std::ranges::lower_bound(points, bytes, {}, &Point::bytes);
  const auto best_of = [&](const Point& point) -> Found {
    const Candidate& best = *std::ranges::find_if(point.candidates, fits);
    const auto nanoseconds = static_cast<double>(best.nanoseconds);
    return {best.algorithm, best.segment_bytes,
            "tuned: " + time_text(nanoseconds) + " at " + std::to_string(point.bytes) + " bytes" +
                against_native(nanoseconds, point.native_nanoseconds)};
  };
  if (above == points.end()) return best_of(*points.back());
  if (above == points.begin() || (*above)->bytes == bytes) return best_of(**above);

  const Point& low = **std::prev(above);
  const Point& high = **above;
  const auto place = [](std::uint64_t value) {
    return std::log(static_cast<double>(std::max<std::uint64_t>(1, value)));
  };
  const double share = (place(bytes) - place(low.bytes)) / (place(high.bytes) - place(low.bytes));
  const Candidate* best = nullptr;
  double best_time = 0;
  const Candidate& first = *std::ranges::find_if(low.candidates, fits);
  const Candidate& last = *std::ranges::find_if(high.candidates, fits);
  const bool agree = first.algorithm == last.algorithm && first.segment_bytes == last.segment_bytes;
  for (const Candidate& a : low.candidates)
    for (const Candidate& b : high.candidates) {
      if (a.algorithm != b.algorithm || a.segment_bytes != b.segment_bytes || !fits(a)) continue;
      if (agree && (a.algorithm != first.algorithm || a.segment_bytes != first.segment_bytes)) continue;
      const double time = (1 - share) * place(a.nanoseconds) + share * place(b.nanoseconds);
      if (best != nullptr && time >= best_time) continue;
      best = &a;
      best_time = time;
    }
  if (best == nullptr) return best_of(share < 0.5 ? low : high);
  return Found{best->algorithm, best->segment_bytes,
               "tuned: about " + time_text(std::exp(best_time)) + " between " + std::to_string(low.bytes) + " and " +
                   std::to_string(high.bytes) + " bytes"};
}

Plan plan_task(const Team& team, const Collective& collective, std::span<const Stage> stages) {
  using namespace collectives;
  constexpr std::uint64_t kSegments = 4;
  Collective whole = collective;
  whole.kind = CollectiveKind::allreduce;
  whole.in_place = false;
  whole.segment_bytes = block_bytes(collective);
  whole.count = kSegments * collective.count;
  const LevelsRow* row = levels_row(collective.algorithm);
  if (row == nullptr)
    throw Error(ErrorCode::invalid_argument, "the algorithm '" + collective.algorithm +
                                                 "' has no tasks; expected a row of levels.def, such as hierarchical");
  if (collective.count == 0) throw Error(ErrorCode::invalid_argument, "count is 0; a task needs at least one element");
  choose(team, whole);  // checks
  Sequence sequence("task/" + collective.algorithm, team);
  Levels levels(sequence, team, whole, *row);
  for (const Stage stage : stages) levels.run(stage, {static_cast<std::uint32_t>(stage), 1});
  return finish(std::move(sequence), team, whole);
}

}  // namespace penstock
