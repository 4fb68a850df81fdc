#include "checkpoint/keys.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <iterator>
#include <optional>

#include "penstock/error.hpp"

namespace penstock::checkpoint {

namespace {

constexpr std::string_view kFolder = "checkpoints";
constexpr std::string_view kStep = "step-";
constexpr std::string_view kRank = "rank-";
constexpr std::string_view kData = ".data";
constexpr std::string_view kManifest = "manifest.json";
constexpr std::string_view kAbandoned = "abandoned";
constexpr std::string_view kRemoved = "removed";
constexpr std::size_t kDigits = 20;

std::string stem(const Attempt& attempt) {
  const Version& version = attempt.version;
  char digits[kDigits + 1];
  std::snprintf(digits, sizeof digits, "%020llu", static_cast<unsigned long long>(version.step));
  const std::string generation =
      version.generation == 0 && !attempt.resumed() ? "" : std::to_string(version.generation) + '-';
  const std::string job = attempt.resumed() ? '-' + std::to_string(attempt.job) : "";
  return std::string(kFolder) + '/' + std::string(kStep) + digits + '.' + generation +
         std::to_string(version.sequence) + job + '.';
}

/// Parses a decimal number at the start of `text`, and removes it from there.
template <class Number>
std::optional<Number> take_number(std::string_view& text) {
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

bool take(std::string_view& text, std::string_view expected) {
  if (!text.starts_with(expected)) return false;
  text.remove_prefix(expected.size());
  return true;
}

struct Name {
  enum class Kind : std::uint8_t { manifest, abandoned, removed, data };

  Attempt attempt;
  Kind kind = Kind::manifest;
  int rank = 0;
};

std::optional<Name> parse(std::string_view key) {
  Name name;
  if (!take(key, kFolder) || !take(key, "/") || !take(key, kStep)) return std::nullopt;
  const auto step = take_number<std::uint64_t>(key);
  if (!step || !take(key, ".")) return std::nullopt;
  // <sequence>, <generation>-<sequence>, or <generation>-<sequence>-<job>
  std::vector<std::uint64_t> numbers;
  do {
    const auto number = take_number<std::uint64_t>(key);
    if (!number || numbers.size() == 3) return std::nullopt;
    numbers.push_back(*number);
  } while (take(key, "-"));
  if (!take(key, ".")) return std::nullopt;
  if (numbers.size() == 1) {
    name.attempt = Version{*step, 0, numbers[0]};
  } else {
    name.attempt = Version{*step, numbers[0], numbers[1]};
    if (numbers.size() == 3) name.attempt.job = numbers[2];
    // Two names of one attempt, or a job that has drained what was not saved yet: somebody else's.
    if (numbers.size() == 2 ? numbers[0] == 0 : numbers[2] <= numbers[0]) return std::nullopt;
  }
  if (key == kManifest) return name;
  name.kind = Name::Kind::abandoned;
  if (key == kAbandoned) return name;
  name.kind = Name::Kind::removed;
  if (key == kRemoved) return name;
  name.kind = Name::Kind::data;
  if (!take(key, kRank)) return std::nullopt;
  const auto rank = take_number<int>(key);
  if (!rank || *rank < 0 || key != kData) return std::nullopt;
  name.rank = *rank;
  return name;
}

}  // namespace

std::string data_key(const Attempt& attempt, int rank) {
  return stem(attempt) + std::string(kRank) + std::to_string(rank) + std::string(kData);
}

std::string manifest_key(const Attempt& attempt) { return stem(attempt) + std::string(kManifest); }

std::string abandoned_key(const Attempt& attempt) { return stem(attempt) + std::string(kAbandoned); }

std::string removed_key(const Version& version) { return stem(version) + std::string(kRemoved); }

std::set<Version> removed_in(const std::map<Version, Holding>& slow) {
  std::set<Version> removed;
  for (const auto& [version, holding] : slow) {
    if (holding.removed) removed.insert(version);
  }
  return removed;
}

std::string tag_of(const Version& version) {
  return std::string(kStep) + std::to_string(version.step) + '.' + std::to_string(version.generation) + '-' +
         std::to_string(version.sequence);
}

std::optional<Version> version_of_tag(std::string_view tag) {
  const std::string_view whole = tag;
  if (!take(tag, kStep)) return std::nullopt;
  const auto step = take_number<std::uint64_t>(tag);
  if (!step || !take(tag, ".")) return std::nullopt;
  const auto generation = take_number<std::uint64_t>(tag);
  if (!generation || !take(tag, "-")) return std::nullopt;
  const auto sequence = take_number<std::uint64_t>(tag);
  if (!sequence) return std::nullopt;
  const Version version{*step, *generation, *sequence};
  // "step-007.1-1" is somebody else's.
  return tag_of(version) == whole ? std::optional(version) : std::nullopt;
}

std::string describe(const Version& version) { return "step " + std::to_string(version.step); }

std::set<Version> line_of(const std::set<Version>& versions) {
  std::set<Version> line;
  std::optional<std::uint64_t> first_step;
  for (auto version = versions.rbegin(); version != versions.rend(); ++version) {
    if (first_step && version->step >= *first_step) continue;
    first_step = version->step;
    line.insert(*version);
  }
  return line;
}

std::vector<Version> by_preference(const std::set<Version>& versions) {
  const std::set<Version> line = line_of(versions);
  std::vector<Version> ordered;
  std::set_difference(versions.begin(), versions.end(), line.begin(), line.end(), std::back_inserter(ordered));
  ordered.insert(ordered.end(), line.begin(), line.end());
  return ordered;
}

Attempt counted(const Version& version, const Attempts& attempts) {
  const auto rank_of = [](const Holding& holding) { return holding.complete() ? 2 : holding.begun() ? 1 : 0; };
  auto best = attempts.begin();
  for (auto one = attempts.begin(); one != attempts.end(); ++one) {
    if (rank_of(one->second) > rank_of(best->second)) best = one;
  }
  return {version, best == attempts.end() ? version.generation : best->first};
}

std::map<Version, Attempts> list_attempts(const store::Backend& backend) {
  std::map<Version, Attempts> versions;
  const std::vector<std::string> keys = backend.list(kFolder);
  // Below an object there are no keys; but it is not an empty place.
  if (keys.empty() && backend.exists(kFolder)) {
    throw Error(ErrorCode::io, backend.url() + ": '" + std::string(kFolder) +
                                   "' is a file; expected the folder of checkpoints; move the file away");
  }
  for (const std::string& key : keys) {
    const std::optional<Name> name = parse(key);
    if (!name) continue;
    Holding& holding = versions[name->attempt.version][name->attempt.job];
    switch (name->kind) {
      case Name::Kind::manifest: holding.manifest = true; break;
      case Name::Kind::abandoned: holding.abandoned = true; break;
      case Name::Kind::removed: holding.removed = true; break;
      case Name::Kind::data: holding.ranks.push_back(name->rank); break;
    }
  }
  for (auto& [version, attempts] : versions) {
    const bool removed =
        std::any_of(attempts.begin(), attempts.end(), [](const auto& one) { return one.second.removed; });
    for (auto& [job, holding] : attempts) {
      holding.removed = removed;
      std::sort(holding.ranks.begin(), holding.ranks.end());
    }
  }
  return versions;
}

std::map<Version, Holding> list_versions(const store::Backend& backend) {
  std::map<Version, Holding> versions;
  for (const auto& [version, attempts] : list_attempts(backend)) {
    versions.emplace(version, attempts.at(counted(version, attempts).job));
  }
  return versions;
}

void remove_data(store::Backend& backend, const Attempt& attempt, const std::vector<int>& ranks) {
  std::vector<std::string> keys;
  keys.reserve(ranks.size());
  for (const int rank : ranks) keys.push_back(data_key(attempt, rank));
  backend.remove_all(keys);
}

}  // namespace penstock::checkpoint
