// Names of the objects of checkpoints, and what a backend holds of them.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "store/backend.hpp"

namespace penstock::checkpoint {

/// One try to save a step. A step that is saved again gets the next attempt, so objects of different tries, of dead
/// runs too, never share a name.
struct Version {
  std::uint64_t step = 0;
  std::uint64_t attempt = 0;

  friend auto operator<=>(const Version&, const Version&) = default;
};

/// checkpoints/step-<20 digits>.<attempt>.rank-<r>.data
std::string data_key(const Version& version, int rank);
/// checkpoints/step-<20 digits>.<attempt>.manifest.json
std::string manifest_key(const Version& version);
/// "step 12", or "step 12 (attempt 2)".
std::string describe(const Version& version);

/// What one backend holds of a version.
struct Holding {
  bool manifest = false;
  std::vector<int> ranks;  ///< of the data objects, ascending
};

/// Everything there, by version. Names of other things are ignored.
std::map<Version, Holding> list_versions(const store::Backend& backend);

/// Removes the data objects of these ranks. The manifest must be gone before.
void remove_data(store::Backend& backend, const Version& version, const std::vector<int>& ranks);

}  // namespace penstock::checkpoint
