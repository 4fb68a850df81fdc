#include "measurement/node_rows.hpp"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <limits>
#include <span>
#include <string>
#include <utility>

#include "base/hash.hpp"
#include "base/json.hpp"
#include "collectives/choose/row_times.hpp"
#include "host/topology.hpp"
#include "measurement/kept_files.hpp"
#include "measurement/machine.hpp"
#include "measurement/operations.hpp"
#include "penstock/collective.hpp"
#include "penstock/error.hpp"

namespace penstock::measurement {
namespace {

constexpr std::uint64_t kRowsFileVersion = 1;
constexpr int kTurns = 6;              // the first one commits memory, and does not count
constexpr double kMostRowSeconds = 1;  // then the lengths that are left are chosen by thresholds
constexpr int kOperationsOfTurn = 3;   // for a row: meet, the row, meet

using Times = std::vector<RowTime>;

/// One operation and length: the rows that are compared.
std::vector<std::span<RowTime>> contests_of(Times& times) {
  std::vector<std::span<RowTime>> contests;
  for (auto first = times.begin(); first != times.end();) {
    const auto last = std::find_if(first, times.end(), [&](const RowTime& each) {
      return each.bytes != first->bytes || each.algorithm->kind != first->algorithm->kind;
    });
    contests.emplace_back(first, last);
    first = last;
  }
  return contests;
}

std::string rows_key(const Team& team, const std::string& mpi) {
  std::string domains;
  for (const std::int32_t domain : team.domain_of_rank) domains += " " + std::to_string(domain);
  return host_facts() + "," + mpi + ",single copy " + (team.single_copy ? "on" : "off") + "," +
         std::to_string(team.size()) + " ranks,shared " + std::to_string(team.shared_limit_bytes) + ",messages " +
         std::to_string(team.message_bytes) + ",caches " + std::to_string(team.core_cache_bytes) + " " +
         std::to_string(team.last_cache_bytes) + (domains.empty() ? "" : ",domains" + domains);
}

std::string rows_text(const std::string& key, const Times& times) {
  std::string rows;
  for (const RowTime& each : times)
    rows += (rows.empty() ? "" : ", ") + json::Object()
                                             .string("operation", name(each.algorithm->kind))
                                             .number("bytes", each.bytes)
                                             .string("algorithm", each.algorithm->name)
                                             .number("nanoseconds", each.nanoseconds)
                                             .finish();
  return json::Object()
             .string("format", "penstock-node-rows")
             .number("version", kRowsFileVersion)
             .string("key", key)
             .raw("rows", "[" + rows + "]")
             .finish() +
         "\n";
}

/// Sets the times of a file that has just these rows.
bool read_rows(Times& times, const std::string& key, const std::string& text) {
  if (text.empty()) return false;
  try {
    const json::Value file = json::Value::parse(text);
    const std::vector<json::Value>& rows = file.at("rows").items();
    if (file.at("format").text() != "penstock-node-rows" || file.at("version").number() != kRowsFileVersion ||
        file.at("key").text() != key || rows.size() != times.size())
      return false;
    for (std::size_t i = 0; i < times.size(); ++i) {
      if (rows[i].at("operation").text() != name(times[i].algorithm->kind) ||
          rows[i].at("algorithm").text() != times[i].algorithm->name || rows[i].at("bytes").number() != times[i].bytes)
        return false;
      times[i].nanoseconds = rows[i].at("nanoseconds").number();
    }
    return true;
  } catch (const Error&) {
    return false;  // measured again
  }
}

std::uint64_t id_of(const Times& times) {
  std::uint64_t id = base::kSeed;
  for (const RowTime& each : times) id = base::mix(id, each.nanoseconds);
  return std::max<std::uint64_t>(1, id);
}

using Shared = std::shared_ptr<const NodeRows>;

/// By number of ranks.
Remembered<int, Shared>& remembered_rows() {
  static Remembered<int, Shared> all;
  return all;
}

Shared shared(Times times) {
  const std::uint64_t id = id_of(times);
  return std::make_shared<const NodeRows>(NodeRows{id, std::move(times)});
}

/// The rows of one operation and length in turns. Rank 0's times count.
void measure_rows(Operations& operations, const Team& team, std::span<RowTime> rows) {
  const Collective call = collectives::measured_call(rows[0].algorithm->kind, rows[0].bytes);
  std::vector<std::shared_ptr<const Plan>> plans;
  for (const RowTime& row : rows) plans.push_back(std::make_shared<const Plan>(row.algorithm->plan(team, call)));
  std::vector<std::byte> input(plans[0]->input_bytes);
  std::vector<std::byte> output(plans[0]->output_bytes);
  std::vector<double> least(rows.size(), std::numeric_limits<double>::max());
  for (int turn = 0; turn < kTurns; ++turn)
    for (std::size_t i = 0; i < rows.size(); ++i) {
      // As programs do, which otherwise would send what the caches of the receivers have already.
      std::ranges::fill(input, static_cast<std::byte>(turn));
      operations.meet(team);
      const double seconds = seconds_once([&] {
        operations.run(plans[i], input, output);
        operations.meet(team);
      });
      if (turn > 0) least[i] = std::min(least[i], seconds);
    }
  for (std::size_t i = 0; i < rows.size(); ++i)
    rows[i].nanoseconds = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(least[i] * 1e9));
}

/// If the time is up, the rest is not measured.
void measure_rows(Operations& operations, const Team& team, Times& times) {
  const std::vector<std::span<RowTime>> contests = contests_of(times);
  operations.begin(team, static_cast<int>(contests.size() + times.size() * kTurns * kOperationsOfTurn));
  double used = 0;
  for (const std::span<RowTime> contest : contests) {
    std::uint64_t goes_on = used < kMostRowSeconds ? 1 : 0;
    operations.tell(team, std::as_writable_bytes(std::span(&goes_on, 1)));
    if (goes_on == 0) return operations.done();
    used += seconds_once([&] { measure_rows(operations, team, contest); });
  }
}

/// What rank 0 knows before anything is measured.
enum class Known : std::uint64_t { nothing, times, shared_cores };

/// Rank 0's `times` and `known` on all ranks.
void tell_times(Operations& operations, const Team& team, Times& times, Known& known) {
  operations.begin(team, 1);
  std::vector<std::uint64_t> told{static_cast<std::uint64_t>(known)};
  for (const RowTime& each : times) told.push_back(each.nanoseconds);
  operations.tell(team, std::as_writable_bytes(std::span(told)));
  known = static_cast<Known>(told[0]);
  for (std::size_t i = 0; i < times.size(); ++i) times[i].nanoseconds = told[i + 1];
}

}  // namespace

std::shared_ptr<const NodeRows> known_node_rows(int ranks) { return remembered_rows().find(ranks).value_or(nullptr); }

void keep_node_rows(const Team& team, const std::string& mpi, const std::vector<RowTime>& times) {
  const std::string key = rows_key(team, mpi);
  keep_text(kept_path("node-rows", key), rows_text(key, times));
}

std::shared_ptr<const NodeRows> node_rows(engine::Engine& engine, const Team& team, const std::string& mpi,
                                          Purpose purpose) {
  // All before anything can fail: a rank that does fails what the others may wait for.
  Operations first(engine);
  Operations measuring(engine);
  Operations last(engine);
  const auto remember = [&](Times times) {
    measuring.done();
    last.done();
    Shared rows = shared(std::move(times));
    remembered_rows().add(team.size(), rows);
    return rows;
  };
  Times times = collectives::rows_to_measure(team);
  const bool decides = team.rank == 0;
  const bool chooses = purpose == Purpose::choose;
  Known known = Known::nothing;
  if (decides && purpose != Purpose::show_again) {
    const Shared remembered = known_node_rows(team.size());
    if (remembered != nullptr && remembered->times.size() == times.size()) {
      times = remembered->times;
      known = Known::times;
    } else if (const std::string key = rows_key(team, mpi);
               read_rows(times, key, kept_text(kept_path("node-rows", key)))) {
      known = Known::times;
    } else if (chooses && static_cast<std::size_t>(team.size()) > host::topology().cpus.size()) {
      known = Known::shared_cores;
    }
  }
  tell_times(first, team, times, known);
  if (known == Known::times) return remember(std::move(times));
  if (known == Known::shared_cores) return remember({});
  const bool share_cores = chooses ? !machine_for_choices(engine, team, mpi)
                                   : measured_machine(engine, team, mpi, false).machine.shares_cores();
  if (chooses && share_cores) return remember({});
  try {
    measure_rows(measuring, team, times);
  } catch (const Error&) {
    // Such as too little shared memory, here or on another rank. Thresholds need no measurement.
    measuring.fail_left();
    for (RowTime& each : times) each.nanoseconds = 0;
  }
  tell_times(last, team, times, known);
  if (share_cores) return shared(std::move(times));
  if (decides) keep_node_rows(team, mpi, times);
  return remember(std::move(times));
}

}  // namespace penstock::measurement
