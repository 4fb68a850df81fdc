#include "checkpoint/keys.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <optional>

namespace penstock::checkpoint {

namespace {

constexpr std::string_view kFolder = "checkpoints";
constexpr std::string_view kStep = "step-";
constexpr std::string_view kRank = "rank-";
constexpr std::string_view kData = ".data";
constexpr std::string_view kManifest = "manifest.json";
constexpr std::size_t kDigits = 20;

std::string stem(const Version& version) {
  char digits[kDigits + 1];
  std::snprintf(digits, sizeof digits, "%020llu", static_cast<unsigned long long>(version.step));
  return std::string(kFolder) + '/' + std::string(kStep) + digits + '.' + std::to_string(version.attempt) + '.';
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
  Version version;
  std::optional<int> rank;  ///< empty: the manifest
};

std::optional<Name> parse(std::string_view key) {
  Name name;
  if (!take(key, kFolder) || !take(key, "/") || !take(key, kStep)) return std::nullopt;
  const auto step = take_number<std::uint64_t>(key);
  if (!step || !take(key, ".")) return std::nullopt;
  const auto attempt = take_number<std::uint64_t>(key);
  if (!attempt || !take(key, ".")) return std::nullopt;
  name.version = {*step, *attempt};
  if (key == kManifest) return name;
  if (!take(key, kRank)) return std::nullopt;
  name.rank = take_number<int>(key);
  if (!name.rank || *name.rank < 0 || key != kData) return std::nullopt;
  return name;
}

}  // namespace

std::string data_key(const Version& version, int rank) {
  return stem(version) + std::string(kRank) + std::to_string(rank) + std::string(kData);
}

std::string manifest_key(const Version& version) { return stem(version) + std::string(kManifest); }

std::string describe(const Version& version) {
  std::string text = "step " + std::to_string(version.step);
  if (version.attempt > 0) text += " (attempt " + std::to_string(version.attempt + 1) + ")";
  return text;
}

std::map<Version, Holding> list_versions(const store::Backend& backend) {
  std::map<Version, Holding> versions;
  for (const std::string& key : backend.list(kFolder)) {
    const std::optional<Name> name = parse(key);
    if (!name) continue;
    Holding& holding = versions[name->version];
    if (name->rank) {
      holding.ranks.push_back(*name->rank);
    } else {
      holding.manifest = true;
    }
  }
  for (auto& [version, holding] : versions) std::sort(holding.ranks.begin(), holding.ranks.end());
  return versions;
}

void remove_data(store::Backend& backend, const Version& version, const std::vector<int>& ranks) {
  std::vector<std::string> keys;
  keys.reserve(ranks.size());
  for (const int rank : ranks) keys.push_back(data_key(version, rank));
  backend.remove_all(keys);
}

}  // namespace penstock::checkpoint
