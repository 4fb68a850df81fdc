// Keys of the objects of checkpoints.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "store/backend.hpp"

namespace penstock::checkpoint {

/// One save of a step. No two saves are equal, so their objects never share a key.
struct Version {
  std::uint64_t step = 0;
  std::uint64_t generation = 0;  ///< number of the job that saved it; 0: Penstock 0.1 did, which knew no jobs
  std::uint64_t sequence = 0;    ///< number of the save in its job; Penstock 0.1: number of the attempt at this step

  friend bool operator==(const Version&, const Version&) = default;
  /// In the order of the saves, not of the steps. That of Penstock 0.1 is not known; there it is the order of the
  /// steps.
  friend std::strong_ordering operator<=>(const Version& a, const Version& b) {
    if (a.generation != b.generation) return a.generation <=> b.generation;
    if (a.generation == 0) return std::pair(a.step, a.sequence) <=> std::pair(b.step, b.sequence);
    return std::pair(a.sequence, a.step) <=> std::pair(b.sequence, b.step);
  }
};

/// checkpoints/step-<20 digits>.<generation>-<sequence>.rank-<r>.data. Of Penstock 0.1: without <generation>-.
std::string data_key(const Version& version, int rank);
/// checkpoints/step-<20 digits>.<generation>-<sequence>.manifest.json
std::string manifest_key(const Version& version);
/// checkpoints/step-<20 digits>.<generation>-<sequence>.abandoned: a mark that the data was or will be removed, so that
/// a manifest that appears later counts for nothing.
std::string abandoned_key(const Version& version);
/// checkpoints/step-<20 digits>.<generation>-<sequence>.removed: a mark in the slow tier that a user has removed it. It
/// counts in no tier of any node from then on.
std::string removed_key(const Version& version);
/// step-<step>.<generation>-<sequence>: the tag of a version in the blob of a run.
std::string tag_of(const Version& version);
/// Nothing for a tag of another form.
std::optional<Version> version_of_tag(std::string_view tag);
/// "step 12"
std::string describe(const Version& version);

/// The objects of a version in one backend.
struct Holding {
  bool manifest = false;
  bool abandoned = false;
  bool removed = false;
  std::vector<int> ranks;  ///< of the data objects, ascending

  bool complete() const { return manifest && !abandoned && !removed; }
};

/// The versions that no newer one has superseded. A version supersedes the older ones of the same and of later steps:
/// the run has gone back behind them.
std::set<Version> line_of(const std::set<Version>& versions);

/// In the order of preference, best last: first those that were superseded, then the line; newer ones later.
std::vector<Version> by_preference(const std::set<Version>& versions);

/// Those that are marked as removed.
std::set<Version> removed_in(const std::map<Version, Holding>& slow);

/// All versions in a backend. Other keys are ignored. Throws Error(io) if a file is in the place of the folder.
std::map<Version, Holding> list_versions(const store::Backend& backend);

/// Removes the data objects of these ranks. Remove the manifest first.
void remove_data(store::Backend& backend, const Version& version, const std::vector<int>& ranks);

}  // namespace penstock::checkpoint
