// Maps that are read in parts: by an index, deltas on top of it, and the newest records. Why:
// docs/design/store-index.md.
#include <algorithm>
#include <set>
#include <utility>

#include "penstock/error.hpp"
#include "store/blob_state.hpp"
#include "store/map_parts.hpp"

namespace penstock::store {

namespace {

/// A record of more bytes is read only if no delta stands for it.
constexpr std::uint64_t kLongRecordBytes = 160 << 10;
/// Behind so many bytes of records a delta is looked for at every version.
constexpr std::uint64_t kManyRecordBytes = 64 << 10;
constexpr std::uint64_t kFewRecordBytes = 8 << 10;
constexpr std::uint64_t kMostRecords = 16;

/// A delta is merged with those behind it if it has at most so many times their fragments.
constexpr std::uint64_t kMostGrowth = 4;

std::uint64_t region_count(const Record& record) {
  std::uint64_t count = 0;
  for (const Part& part : record.parts) count += part.extents.size();
  return count;
}

/// Whether an object that only saves time is to be passed over.
bool is_passed_over(const Error& error) {
  return error.code() == ErrorCode::corrupt || error.code() == ErrorCode::not_found;
}

/// The version behind which the delta of `version` begins: its lowest bit that is set becomes 0. So the deltas on the
/// way from any version to 0 are at most as many as its bits, and each record is in at most as many deltas.
std::uint64_t base_of_delta(std::uint64_t version) { return version & (version - 1); }

}  // namespace

/// What leads from an older version to a version: records and deltas, the newest first.
class BlobState::Way {
 public:
  struct Step {
    std::uint64_t version;
    std::optional<Record> record;
    OpenedDelta delta;  ///< if there is no record
  };

  Way(BlobState& blob, std::uint64_t version, std::uint64_t bottom) : blob_(blob), at_(version), bottom_(bottom) {}

  /// The version that the oldest step builds on.
  std::uint64_t at() const { return at_; }
  const std::vector<Step>& steps() const { return steps_; }
  std::vector<Step>& steps() { return steps_; }
  /// Whether a delta that is usual was not there.
  bool lacks_delta() const { return lacks_delta_; }
  bool crosses_loss() const { return crosses_loss_; }
  /// Versions that have an index, as the steps say.
  const std::set<std::uint64_t>& indexes() const { return indexes_; }

  /// Adds a delta, or records of versions behind `stop`. Throws as BlobState::record.
  void descend(std::uint64_t stop) {
    const bool is_usual = at_ % delta_rule.interval == 0;
    if (is_usual || behind_cut_ || record_bytes_ > kManyRecordBytes) {
      if (add_delta()) return;
      lacks_delta_ = lacks_delta_ || is_usual;
      // If there is no delta behind a cut, there was an index.
      if (std::exchange(behind_cut_, false)) {
        indexes_.insert(at_);
        return;
      }
    }
    try {
      add_records(stop);
    } catch (const Error& error) {
      // A delta may say what a record said that cannot be read.
      if (error.code() != ErrorCode::corrupt || !add_delta()) throw;
    }
  }

  /// Leaves out a delta that is much larger than all steps behind it together, and what is before it: merging it would
  /// cost more than it saves. Each delta that is left so is larger than those on top of it, so they stay few. Returns
  /// the version that the oldest step now builds on.
  std::uint64_t cut_large() {
    std::uint64_t fragments = 0;
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      const Step& step = steps_[i];
      if (!step.record && step.delta.head.fragment_count > kMostGrowth * fragments) {
        at_ = step.version;
        steps_.resize(i);
        break;
      }
      fragments +=
          step.record ? std::max<std::uint64_t>(1, region_count(*step.record)) : step.delta.head.fragment_count;
    }
    return at_;
  }

  /// Leaves out the steps up to `version`. A delta may then begin before it.
  void leave_out(std::uint64_t version) {
    while (!steps_.empty() && steps_.back().version <= version) steps_.pop_back();
    at_ = std::max(at_, version);
  }

 private:
  bool add_delta() {
    if (lacking_at_ == at_) return false;
    try {
      OpenedDelta delta = open_delta(blob_.backend_, blob_.delta_key(at_));
      if (delta.head.blob_id == blob_.blob_id_ && delta.head.version == at_ && delta.head.base >= bottom_) {
        if (at_ > blob_.known_delta_.load()) blob_.known_delta_ = at_;
        const std::uint64_t base = delta.head.base;
        behind_cut_ = base != base_of_delta(at_);
        steps_.push_back({at_, std::nullopt, std::move(delta)});
        at_ = base;
        record_bytes_ = 0;
        return true;
      }
    } catch (const Error& error) {
      if (!is_passed_over(error)) throw;
    }
    lacking_at_ = at_;
    return false;
  }

  void add_records(std::uint64_t stop) {
    const std::uint64_t first = std::max(stop, (at_ - 1) / delta_rule.interval * delta_rule.interval);
    // The newest record says how long its neighbours may be, and which index is near.
    const std::uint64_t most = record_bytes_ == 0 ? 1 : record_bytes_ > kFewRecordBytes ? 4 : kMostRecords;
    std::vector<std::string> keys;
    for (std::uint64_t version = at_; version > first && keys.size() < most; --version) {
      keys.push_back(blob_.record_key(version));
    }
    const std::uint64_t before = at_;
    for (const std::vector<std::byte>& sealed : blob_.backend_->contents_of(keys, kLongRecordBytes)) {
      if (!sealed.empty()) {
        record_bytes_ += sealed.size();
        add(blob_.decode_of(at_, sealed));
        if (record_bytes_ > kManyRecordBytes) return;
        continue;
      }
      if (at_ != before) return;
      if (!add_delta()) {
        record_bytes_ += kLongRecordBytes;
        add(blob_.record(at_));
      }
      return;
    }
  }

  void add(Record record) {
    const bool stores = record.kind == RecordKind::write || record.kind == RecordKind::append;
    if (stores && record.number > 0 && record.number < at_) indexes_.insert(record.number);
    crosses_loss_ = crosses_loss_ || stands_for_lost(record);
    steps_.push_back({at_, std::move(record), {}});
    --at_;
  }

  BlobState& blob_;
  std::uint64_t at_;
  const std::uint64_t bottom_;
  std::vector<Step> steps_;
  std::set<std::uint64_t> indexes_;
  std::uint64_t record_bytes_ = 0;  ///< of the records behind the last delta
  std::uint64_t lacking_at_ = UINT64_MAX;
  bool behind_cut_ = false;  ///< the last delta began later than usual, at an index or a large delta
  bool lacks_delta_ = false;
  bool crosses_loss_ = false;
};

BlobState::Rebuilt BlobState::layered(std::uint64_t version, const Marks& found) {
  const std::uint64_t base = found.base_of(version);
  // A version with an index of its own is read without its record, which may be long.
  if (version > 0 && backend_->exists(index_key(version))) {
    try {
      Rebuilt made{read_index(version, Loading::parts), version};
      if (version > known_index_.load()) known_index_ = version;
      return made;
    } catch (const Error& error) {
      if (!is_passed_over(error)) throw;
    }
  }
  Way way(*this, version, 0);
  std::set<std::uint64_t> listed;
  std::set<std::uint64_t> unusable{version};
  bool has_listed = false;
  const auto list_once = [&] {
    for (const std::string& index : backend_->list(key("index"))) listed.insert(number_of(index));
    has_listed = true;
  };
  /// The newest index that may be used; 0 if none is known.
  const auto nearest_known = [&] {
    std::uint64_t nearest = 0;
    const auto consider = [&](std::uint64_t index) {
      if (index < version && index > base && !unusable.contains(index)) nearest = std::max(nearest, index);
    };
    consider(known_index_.load());
    for (const std::uint64_t index : way.indexes()) consider(index);
    for (const std::uint64_t index : listed) consider(index);
    return nearest;
  };
  for (;;) {
    const std::uint64_t stop = std::max(base, nearest_known());
    const bool is_long = way.lacks_delta() && !way.steps().empty() && way.at() >= stop + delta_rule.interval;
    if (!has_listed && is_long) {
      list_once();
      continue;
    }
    if (way.at() > stop) {
      try {
        way.descend(stop);
      } catch (const Error& error) {
        // There may be an index behind a record that cannot be read.
        if (error.code() != ErrorCode::corrupt || has_listed) throw;
        list_once();
      }
      continue;
    }
    VersionMap map = empty_map();
    if (stop > 0) {
      try {
        map = read_index(stop, Loading::parts);
      } catch (const Error& error) {
        if (!is_passed_over(error)) throw;
        if (stop == base) {
          if (error.code() == ErrorCode::not_found) fail_without_index(base);
          throw;
        }
        unusable.insert(stop);
        continue;
      }
    }
    if (stop > known_index_.load()) known_index_ = stop;
    way.leave_out(stop);
    for (auto step = way.steps().rbegin(); step != way.steps().rend(); ++step) {
      if (step->record) {
        map.apply(*step->record);
      } else {
        map = VersionMap::over(std::move(map), step->delta);
      }
    }
    return {std::move(map), stop};
  }
}

void BlobState::put_delta_if_due(std::uint64_t version) {
  const auto is_due = [&] {
    const std::uint64_t cost =
        lookup_map_at(version)->replayed_since(std::max(known_index_.load(), known_delta_.load())).cost;
    return cost >= delta_rule.cost || (version % delta_rule.interval == 0 && cost >= delta_rule.least_cost);
  };
  if (!is_due()) return;
  const Marks then = marks();
  const std::uint64_t index = known_index_.load() <= version ? known_index_.load() : 0;
  const std::uint64_t bottom = std::max(then.base_of(version), index);
  std::uint64_t base = std::max(base_of_delta(version), bottom);
  if (base >= version || backend_->exists(delta_key(version))) return;
  Way way(*this, version, bottom);
  while (way.at() > base) way.descend(base);
  // A lost write is in no delta, and repair removes all that stand for its record.
  if (way.crosses_loss()) return;
  // If there is no delta to begin on, because a writer died or was an older Penstock, this one fills the gap.
  const std::uint64_t usual = way.at();
  while (way.at() > bottom && !way.crosses_loss() && !backend_->exists(delta_key(way.at()))) way.descend(bottom);
  if (way.crosses_loss()) way.leave_out(usual);
  base = way.cut_large();
  VersionMap changes(StoredMap::head_only(base > 0 ? rebuild(base, Loading::parts).head() : empty_map().head()));
  for (auto step = way.steps().rbegin(); step != way.steps().rend(); ++step) {
    if (step->record) {
      changes.apply(*step->record);
    } else {
      const std::string name = delta_key(step->version);
      changes.apply_delta(read_all(*backend_, name), backend_->url() + ": object " + name);
    }
  }
  const std::vector<std::byte> sealed = changes.encode_delta();
  // A number that was collected may have been taken by a writer that slept. See rebuild().
  const Marks now = marks();
  if (now.base_of(version) > base || now.repairs != then.repairs) return;
  const ConstBytes piece(sealed);
  const bool mine = backend_->put_if_absent(delta_key(version), std::span(&piece, 1));
  // See put_map().
  if (mine && marks().repairs != then.repairs) {
    backend_->remove(delta_key(version));
    return;
  }
  if (version > known_delta_.load()) known_delta_ = version;
}

}  // namespace penstock::store
