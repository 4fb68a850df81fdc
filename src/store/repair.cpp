#include "store/repair.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "penstock/error.hpp"
#include "store/blob_state.hpp"
#include "store/collect.hpp"

namespace penstock::store {

namespace {

/// The message if the action throws corrupt or not_found twice; else nothing. The second try is for data that a network
/// makes unreadable for a moment only.
std::optional<std::string> damage_of(const std::function<void()>& action) {
  std::optional<std::string> damage;
  for (int attempt = 0; attempt < 2; ++attempt) {
    try {
      action();
      return std::nullopt;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::corrupt && error.code() != ErrorCode::not_found) throw;
      damage = error.what();
    }
  }
  return damage;
}

class BlobRepair {
 public:
  BlobRepair(BlobState& blob, const RepairOptions& options, RepairReport& report)
      : blob_(blob), backend_(blob.backend()), options_(options), report_(report) {}

  /// Returns false, and changes nothing, if a collector announced something meanwhile: run again from the start.
  bool run() {
    keep_from_ = blob_.marks().keep_from;
    newest_ = blob_.latest();
    for (const std::string& key : backend_.list(blob_.key("versions"))) newest_ = std::max(newest_, number_of(key));
    look_at_tags();
    look_at_maps();
    std::optional<VersionMap> base = find_base();
    if (base) look_at_log(std::move(*base));
    if (blob_.marks().keep_from != keep_from_) return false;
    for (const RepairAction& action : actions_) report_.actions.push_back(action);
    for (const std::string& problem : remaining_) report_.remaining.push_back(problem);
    if (options_.apply) {
      for (const auto& change : changes_) change();
    }
    return true;
  }

 private:
  void plan(const std::string& object, const std::string& reason, std::string action, std::function<void()> change) {
    actions_.push_back({blob_.name(), object, reason, std::move(action)});
    changes_.push_back(std::move(change));
  }

  /// Copies an object that is about to be replaced or removed to lost/.
  void keep_evidence(const std::string& object) {
    std::string name = object.substr(blob_.folder().size() + 1);
    std::replace(name.begin(), name.end(), '/', '-');
    try {
      const std::vector<std::byte> content = read_all(backend_, object);
      const ConstBytes piece(content);
      backend_.put_if_absent(blob_.key("lost/") + name + '-' + std::to_string(now_ns()), std::span(&piece, 1));
    } catch (const Error& error) {
      // A missing or truncated object leaves nothing to keep.
      if (error.code() != ErrorCode::not_found && error.code() != ErrorCode::corrupt) throw;
    }
  }

  void plan_removal(const std::string& object, const std::string& reason, std::string action) {
    plan(object, reason, std::move(action), [this, object] {
      keep_evidence(object);
      backend_.remove(object);
    });
  }

  void look_at_tags() {
    for (const std::string& object : backend_.list(blob_.key("tags"))) {
      const std::string name = object.substr(object.find_last_of('/') + 1);
      std::uint64_t version = 0;
      auto damage = damage_of([&] { version = blob_.read_tag(name); });
      if (!damage && version > newest_) damage = "there is no version " + std::to_string(version);
      if (damage) {
        plan_removal(object, *damage, "the tag '" + name + "' is taken away");
      } else if (version < keep_from_ && damage_of([&] { blob_.read_index(version); })) {
        plan_removal(object, "the map of version " + std::to_string(version) + " cannot be read",
                     "the tag '" + name + "' is taken away, and with it the version");
      }
    }
  }

  void look_at_maps() {
    for (const std::string& object : backend_.list(blob_.key("index"))) {
      const std::uint64_t version = number_of(object);
      const auto damage = damage_of([&] { blob_.read_index(version); });
      if (version > newest_) {
        plan_removal(object, "there is no version " + std::to_string(version), "the index is removed");
      } else if (!damage) {
        indexes_.insert(version);
      } else if (version > keep_from_) {
        plan_removal(object, *damage, "the index is removed; the records say the same");
      } else if (version == keep_from_) {
        base_damage_ = *damage;
      }
    }
    for (const std::string& object : backend_.list(blob_.key("delta"))) {
      const std::uint64_t version = number_of(object);
      std::uint64_t base = 0;
      auto damage = damage_of([&] {
        (void)blob_.read_delta(version);
        base = blob_.base_of_delta(version);
      });
      if (version > newest_) damage = "there is no version " + std::to_string(version);
      if (damage) {
        plan_removal(object, *damage, "the delta is removed; the records say the same");
      } else {
        deltas_[version] = base;
      }
    }
    for (const std::string& object : backend_.list(blob_.key("compact"))) {
      auto damage = damage_of([&] { blob_.read_compacted(number_of(object)); });
      if (number_of(object) > newest_) damage = "there is no version " + std::to_string(number_of(object));
      if (!damage) continue;
      plan(object, *damage, "the compacted map is removed; the version is read where it was written", [this, object] {
        backend_.remove(blob_.confirmed_key(number_of(object)));
        keep_evidence(object);
        backend_.remove(object);
      });
    }
    for (const std::string& mark : backend_.list(blob_.key("confirmed"))) {
      if (const std::uint64_t version = number_of(mark);
          version > newest_ && !backend_.exists(blob_.compacted_key(version)))
        plan_removal(mark, "there is no version " + std::to_string(version), "the mark of a compacted map is removed");
    }
  }

  /// The map to replay the log from. Nothing if there is none; then it reports why.
  std::optional<VersionMap> find_base() {
    if (keep_from_ == 0) return blob_.empty_map();
    if (indexes_.contains(keep_from_)) return blob_.read_index(keep_from_);
    const std::string object = blob_.index_key(keep_from_);
    if (base_damage_.empty()) base_damage_ = "the object is missing";
    const auto next = indexes_.upper_bound(keep_from_);
    if (next == indexes_.end()) {
      remaining_.push_back(
          backend_.url() + ": object " + object +
          ", on which all versions of the blob are built, cannot be read, and there is no newer index; "
          "restore it from a copy: " +
          base_damage_);
      return std::nullopt;
    }
    const std::uint64_t version = *next;
    plan(object, base_damage_,
         "versions " + std::to_string(keep_from_) + " to " + std::to_string(version - 1) +
             " cannot be read any more and count as collected",
         [this, version] { put_keep_mark(blob_, version); });
    keep_from_then_ = version;
    return blob_.read_index(version);
  }

  void look_at_log(VersionMap map) {
    bool lost = false;
    if (const auto damage = damage_of([&] { verify(map); })) {
      remaining_.push_back(backend_.url() + ": data of version " + std::to_string(map.version()) +
                           " or before it is damaged; restore it from a copy: " + *damage);
    }
    std::set<std::string> dropped;
    for (std::uint64_t version = map.version() + 1; version <= newest_; ++version) {
      const std::string object = blob_.record_key(version);
      Record record;
      if (const auto damage = damage_of([&] { record = blob_.record(version); })) {
        lost = true;
        plan_loss(version, object, *damage);
        record = lost_record();
      }
      if (stands_for_lost(record)) drop_deltas_with(version);
      lost = lost || stands_for_lost(record);
      if (map.apply(record) && drop_if_damaged(version, object, record, dropped)) lost = true;
      if (!lost || !indexes_.contains(version)) continue;
      // The index was made before the loss, so it has the lost write. Later versions build on it.
      VersionMap index = blob_.read_index(version);
      const auto damage = damage_of([&] { verify(index); });
      if (!damage) {
        map = std::move(index);
        lost = false;
      } else if (options_.drop_damaged_data) {
        for (const auto& source : index.sources()) {
          if (source->is_object() && damage_of([&] { verify(*source); })) dropped.insert(source->object().key);
        }
      } else {
        remaining_.push_back(*damage + " (of a version up to " + std::to_string(version) +
                             "; it is given up with drop_damaged_data, --drop-damaged-data)");
      }
    }
    if (dropped.empty()) return;
    for (const std::uint64_t version : indexes_) {
      if (version <= map_base()) continue;
      const auto names = blob_.read_index(version).sources();
      const bool holds = std::any_of(names.begin(), names.end(), [&](const auto& source) {
        return source->is_object() && dropped.contains(source->object().key);
      });
      if (holds) {
        plan_removal(blob_.index_key(version), "it refers to data that is given up",
                     "the index is removed; the records say what is left");
      }
    }
  }

  std::uint64_t map_base() const { return std::max(keep_from_, keep_from_then_); }

  bool drop_if_damaged(std::uint64_t version, const std::string& object, const Record& record,
                       std::set<std::string>& dropped) {
    for (const Part& part : record.parts) {
      if (part.object.key.empty()) continue;
      const auto damage = damage_of([&] { verify(Source(part.object)); });
      if (!damage) continue;
      if (!options_.drop_damaged_data) {
        remaining_.push_back(*damage + " (version " + std::to_string(version) +
                             "; its write is given up as a whole with drop_damaged_data, --drop-damaged-data)");
        return false;
      }
      for (const Part& other : record.parts) dropped.insert(other.object.key);
      plan_loss(version, object, *damage);
      return true;
    }
    return false;
  }

  /// Throws if any byte of the object is not as it was written.
  void verify(const Source& source) {
    if (sound_.contains(source.object().key)) return;
    verify_object(backend_, source);
    sound_.insert(source.object().key);
  }
  void verify(const VersionMap& map) {
    for (const auto& source : map.sources()) {
      if (source->is_object()) verify(*source);
    }
  }

  Record lost_record() const {
    Record record;
    record.kind = RecordKind::fence;
    record.blob_id = blob_.empty_map().blob_id();
    record.time_ns = now_ns();
    record.writer = "penstock-repair";
    record.identity = 1;
    return record;
  }

  /// A delta that was made before a write got lost still has it.
  void drop_deltas_with(std::uint64_t version) {
    std::erase_if(deltas_, [&](const auto& delta) {
      const auto [number, base] = delta;
      if (version <= base || version > number) return false;
      plan_removal(blob_.delta_key(number), "it has what version " + std::to_string(version) + " wrote, which is lost",
                   "the delta is removed; the records say what is left");
      return true;
    });
  }

  void plan_loss(std::uint64_t version, const std::string& object, const std::string& reason) {
    drop_deltas_with(version);
    plan(object, reason,
         "what version " + std::to_string(version) + " wrote is lost: it reads as version " +
             std::to_string(version - 1),
         [this, version, object] {
           keep_evidence(object);
           // A collector may have freed the number meanwhile.
           if (version <= blob_.marks().keep_from) return;
           const std::vector<std::byte> sealed = encode(lost_record());
           const ConstBytes piece(sealed);
           backend_.replace(object, std::span(&piece, 1));
         });
  }

  BlobState& blob_;
  Backend& backend_;
  const RepairOptions& options_;
  RepairReport& report_;
  std::uint64_t keep_from_ = 0;
  std::uint64_t keep_from_then_ = 0;
  std::uint64_t newest_ = 0;
  std::set<std::uint64_t> indexes_;  ///< readable ones
  std::map<std::uint64_t, std::uint64_t> deltas_;  ///< version → base of readable ones
  std::set<std::string> sound_;      ///< data objects that were verified
  std::string base_damage_;
  std::vector<RepairAction> actions_;
  std::vector<std::function<void()>> changes_;
  std::vector<std::string> remaining_;
};

}  // namespace

void repair_blob(const std::shared_ptr<Backend>& backend, std::string_view name, const RepairOptions& options,
                 RepairReport& report) {
  for (;;) {
    const auto blob = BlobState::find(backend, name);
    if (!blob) return;
    try {
      if (BlobRepair(*blob, options, report).run()) return;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::not_found || !blob->is_removed()) throw;
      return;
    }
  }
}

void repair_name(const std::shared_ptr<Backend>& backend, std::string_view name, const RepairOptions& options,
                 RepairReport& report) {
  for (const BlobState::DamagedEntry& entry : BlobState::damaged_entries(backend, name)) {
    if (entry.content.empty()) {
      report.remaining.push_back(entry.reason + "; no copy of it was found; restore it");
      continue;
    }
    report.actions.push_back({std::string(name), entry.object, entry.reason, entry.action});
    if (!options.apply) continue;
    const ConstBytes piece(entry.content);
    backend->replace(entry.object, std::span(&piece, 1));
  }
}

}  // namespace penstock::store

namespace penstock {

RepairReport Store::repair(const RepairOptions& options) {
  const std::shared_ptr<store::Backend> backend = store::durable_backend(backend_);
  RepairReport report;
  for (const std::string& name : store::BlobState::names(*backend)) {
    const std::size_t remaining = report.remaining.size();
    store::repair_name(backend, name, options, report);
    // Without a readable entry the blob cannot be opened.
    if (report.remaining.size() > remaining) continue;
    try {
      store::repair_blob(backend, name, options, report);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::corrupt) throw;
      // Applying the actions for its entry should have mended this.
      if (options.apply) report.remaining.push_back(error.what());
    }
  }
  if (options.apply && report.remaining.empty()) backend->declare_whole();
  return report;
}

}  // namespace penstock
