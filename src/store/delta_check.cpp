#include "store/delta_check.hpp"

#include <algorithm>
#include <utility>

#include "penstock/error.hpp"
#include "store/map_parts.hpp"

namespace penstock::store {

DeltaCheck::DeltaCheck(BlobState& blob, std::uint64_t newest,
                       std::function<void(std::uint64_t, const std::string&)> report)
    : blob_(blob), report_(std::move(report)) {
  for (const std::string& delta : blob.backend().list(blob.key("delta"))) {
    const std::uint64_t version = number_of(delta);
    try {
      if (version > newest) {
        report_(version, "there is no version " + std::to_string(version));
        continue;
      }
      base_of_[version] = open_delta(blob.shared_backend(), delta).head.base;
    } catch (const Error& error) {
      // A collector may have removed it.
      if (error.code() == ErrorCode::not_found) continue;
      if (error.code() != ErrorCode::corrupt) throw;
      report_(version, error.what());
    }
  }
}

void DeltaCheck::base(const VersionMap& map) {
  const std::uint64_t version = map.version();
  const bool begins_below = std::any_of(base_of_.begin(), base_of_.end(), [&](const auto& delta) {
    return delta.second < version && delta.first > version;
  });
  // Later maps have deltas below them whose base is not collected.
  if (begins_below && bases_.empty() && !seen_) kept_ = replayed_ = map;
  seen_ = true;
  const bool is_base =
      std::any_of(base_of_.begin(), base_of_.end(), [&](const auto& delta) { return delta.second == version; });
  if (!is_base) return;
  const VersionMap unchanged(StoredMap::head_only(map.head()));
  bases_.insert_or_assign(version, unchanged);
  changes_.insert_or_assign(version, unchanged);
}

std::uint64_t DeltaCheck::covering(std::uint64_t version) const {
  for (const auto& [number, base] : base_of_) {
    if (base < version && version <= number) return number;
  }
  return 0;
}

std::string DeltaCheck::name(std::uint64_t version) const {
  return blob_.backend().url() + ": object " + blob_.delta_key(version);
}

std::vector<std::byte> DeltaCheck::content(std::uint64_t version) const {
  return read_all(blob_.backend(), blob_.delta_key(version));
}

void DeltaCheck::next(std::uint64_t version, const Record* record) {
  if (record == nullptr || stands_for_lost(*record)) {
    bases_.clear();
    changes_.clear();
    kept_.reset();
    replayed_.reset();
    std::erase_if(base_of_, [&](const auto& delta) {
      const auto [number, base] = delta;
      if (base >= version || number < version) return false;
      if (record != nullptr) {
        report_(number, "it has what version " + std::to_string(version) + " wrote, which is lost");
      }
      return true;
    });
    return;
  }
  for (auto& [base, changes] : changes_) changes.apply(*record);
  if (replayed_) replayed_->apply(*record);
  const auto delta = base_of_.find(version);
  if (delta == base_of_.end()) return;
  const std::uint64_t base = delta->second;
  base_of_.erase(delta);
  compare(version, base);
  // Maps that no delta needs any more.
  const auto is_done = [&](const auto& map) {
    return std::none_of(base_of_.begin(), base_of_.end(), [&](const auto& one) { return one.second == map.first; });
  };
  std::erase_if(bases_, is_done);
  std::erase_if(changes_, is_done);
}

bool DeltaCheck::agrees(std::uint64_t version, std::uint64_t base) const {
  if (const auto known = bases_.find(base); known != bases_.end()) {
    VersionMap found = known->second;
    found.apply_delta(content(version), name(version));
    return found.changes_as(changes_.at(base));
  }
  if (kept_ && base < kept_->version()) {
    VersionMap found = *kept_;
    found.apply_delta(content(version), name(version));
    return found.size_bytes() == replayed_->size_bytes() && found.head().fence_below == replayed_->head().fence_below &&
           found.changes_since(*replayed_).empty();
  }
  // Behind damage only the checksums tell.
  MapHead unknown = blob_.empty_map().head();
  unknown.version = base;
  VersionMap(StoredMap::head_only(std::move(unknown))).apply_delta(content(version), name(version));
  return true;
}

void DeltaCheck::compare(std::uint64_t version, std::uint64_t base) {
  try {
    if (!agrees(version, base)) report_(version, "it differs from what the records say");
  } catch (const Error& error) {
    if (error.code() == ErrorCode::not_found) return;
    if (error.code() != ErrorCode::corrupt) throw;
    report_(version, error.what());
  }
}

}  // namespace penstock::store
