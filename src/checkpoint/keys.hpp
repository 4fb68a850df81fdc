// Keys of the objects of checkpoints.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "store/backend.hpp"

namespace penstock::checkpoint {

/// One attempt to save a step. Saving a step again makes the next attempt, so objects of different attempts never share
/// a key, not even with those of dead runs.
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

/// The objects of a version in one backend.
struct Holding {
  bool manifest = false;
  std::vector<int> ranks;  ///< of the data objects, ascending
};

/// All versions in a backend. Other keys are ignored.
std::map<Version, Holding> list_versions(const store::Backend& backend);

/// Removes the data objects of these ranks. Remove the manifest first.
void remove_data(store::Backend& backend, const Version& version, const std::vector<int>& ranks);

}  // namespace penstock::checkpoint
