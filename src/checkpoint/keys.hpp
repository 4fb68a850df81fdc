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

/// A version as a job stores it in a tier. That is the job that saved it, unless a later one resumes its drain: the
/// objects of two attempts share no name, so the dead job cannot touch those of the later one if it wakes up.
struct Attempt {
  Version version;
  std::uint64_t job = 0;  ///< its generation

  Attempt() = default;
  Attempt(const Version& saved) : version(saved), job(saved.generation) {}  // NOLINT(google-explicit-constructor)
  Attempt(const Version& saved, std::uint64_t by) : version(saved), job(by) {}

  bool resumed() const { return job != version.generation; }
};

/// checkpoints/step-<20 digits>.<generation>-<sequence>.rank-<r>.data. Of Penstock 0.1: without <generation>-. Of a
/// drain that was resumed: <generation>-<sequence>-<job>.
std::string data_key(const Attempt& attempt, int rank);
/// checkpoints/step-<20 digits>.<generation>-<sequence>.manifest.json
std::string manifest_key(const Attempt& attempt);
/// checkpoints/step-<20 digits>.<generation>-<sequence>.abandoned: a mark that the data was or will be removed, so that
/// a manifest that appears later counts for nothing.
std::string abandoned_key(const Attempt& attempt);
/// Those of the job that saved it.
inline std::string data_key(const Version& version, int rank) { return data_key(Attempt(version), rank); }
inline std::string manifest_key(const Version& version) { return manifest_key(Attempt(version)); }
inline std::string abandoned_key(const Version& version) { return abandoned_key(Attempt(version)); }
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
  /// Whether somebody has begun to store it and nobody has given it up.
  bool begun() const { return !complete() && !abandoned && !removed && !ranks.empty(); }
};

/// What each job has stored of a version, by its generation. A mark that the version was removed holds for all.
using Attempts = std::map<std::uint64_t, Holding>;

/// The attempt that counts: one that is complete, else one that has begun.
Attempt counted(const Version& version, const Attempts& attempts);

/// The versions that no newer one has superseded. A version supersedes the older ones of the same and of later steps:
/// the run has gone back behind them.
std::set<Version> line_of(const std::set<Version>& versions);

/// In the order of preference, best last: first those that were superseded, then the line; newer ones later.
std::vector<Version> by_preference(const std::set<Version>& versions);

/// Those that are marked as removed.
std::set<Version> removed_in(const std::map<Version, Holding>& slow);

/// All versions in a backend. Other keys are ignored. Throws Error(io) if a file is in the place of the folder.
std::map<Version, Attempts> list_attempts(const store::Backend& backend);
/// Likewise, of each version the attempt that counts.
std::map<Version, Holding> list_versions(const store::Backend& backend);

/// Removes the data objects of these ranks. Remove the manifest first.
void remove_data(store::Backend& backend, const Attempt& attempt, const std::vector<int>& ranks);

}  // namespace penstock::checkpoint
