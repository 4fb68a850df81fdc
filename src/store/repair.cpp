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
#include "store/delta_check.hpp"
#include "store/repair_steps.hpp"

namespace penstock::store {

namespace {

/// How often a blob that others go on damaging is repaired.
constexpr int kMostPasses = 8;

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

/// Plans one repair of a blob, and carries it out.
class BlobRepair {
 public:
  /// `sound`: data objects that were verified. They never change.
  BlobRepair(BlobState& blob, const RepairOptions& options, std::set<std::string>& sound)
      : blob_(blob), backend_(blob.backend()), options_(options), sound_(sound) {}

  /// Changes nothing. Returns false if a collector announced something meanwhile: plan again from the start.
  bool plan() {
    const BlobState::Marks marks = blob_.marks();
    keep_from_ = marks.keep_from;
    bases_ = {marks.bases.begin(), marks.bases.end()};
    repairs_ = marks.repairs;
    newest_ = blob_.latest();
    for (const std::string& key : backend_.list(blob_.key("versions"))) newest_ = std::max(newest_, number_of(key));
    try {
      look_at_tags();
      look_at_maps();
      std::optional<VersionMap> base = find_base();
      if (base) look_at_log(std::move(*base));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::not_found || blob_.marks().keep_from == keep_from_) throw;
      return false;
    }
    if (is_cut_short()) {
      const RepairAction ended{blob_.name(), mark_key(blob_, kRepair, repairs_),
                               "a repair is under way, or was cut short", "it is ended"};
      if (options_.apply) actions_.clear();  // the rest is planned after it
      actions_.push_back(ended);
    }
    return blob_.marks().keep_from == keep_from_;
  }
  const std::vector<RepairAction>& actions() const { return actions_; }
  const std::vector<std::string>& remaining() const { return remaining_; }

  /// Returns false, and changes nothing, if another repair has begun meanwhile: plan again from the start. One that was
  /// under way before is ended: its steps are taken, not the planned ones.
  bool apply() {
    std::vector<RepairStep> steps = std::move(steps_);
    const std::uint64_t begun = is_cut_short() ? repairs_ : repairs_ + 1;
    const std::string mark = mark_key(blob_, kRepair, begun);
    if (is_cut_short()) {
      steps = steps_in(mark);
    } else {
      std::ranges::stable_sort(steps, {}, order_of);
      const std::vector<std::byte> sealed = encode(steps);
      const ConstBytes piece(sealed);
      if (!backend_.put_if_absent(mark, std::span(&piece, 1))) return false;
    }
    for (const RepairStep& step : steps) {
      // Another repair has taken all of these steps, and perhaps found more to do.
      if (blob_.marks().repairs != begun) break;
      take(blob_, step);
    }
    // A mark of our own: another repair may have put its last one before our last change.
    for (std::uint64_t number = blob_.marks().repairs / 2 * 2 + 2; !put_mark(blob_, kRepair, number);) number += 2;
    return true;
  }

 private:
  using Kind = RepairStep::Kind;
  static constexpr const char* kRepair = "repair-";

  bool is_cut_short() const { return repairs_ % 2 == 1; }

  /// What lost writes leave is put before the deltas go that have them. No delta may stand for a write that is lost, so
  /// these go before records are replaced.
  static int order_of(const RepairStep& step) {
    if (step.kind == Kind::put_index || step.kind == Kind::mark_base) return 0;
    return step.kind == Kind::remove_delta ? 1 : 2;
  }

  /// None if they cannot be read, as those of an older Penstock, whose marks are empty: the next plan finds what is
  /// left to do.
  std::vector<RepairStep> steps_in(const std::string& mark) const {
    std::vector<RepairStep> steps;
    if (damage_of([&] { steps = decode_repair_steps(read_all(backend_, mark), backend_.url() + ": " + mark); }))
      return {};
    return steps;
  }

  void plan(const std::string& reason, std::string action, RepairStep step) {
    actions_.push_back({blob_.name(), step.object, reason, std::move(action)});
    steps_.push_back(std::move(step));
  }

  void plan_removal(const std::string& object, const std::string& reason, std::string action,
                    Kind kind = Kind::remove) {
    plan(reason, std::move(action), {.kind = kind, .object = object, .seen = sum_of(backend_, object)});
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
        plan_removal(object, *damage,
                     bases_.contains(version)
                         ? "the index is removed; what it kept of lost writes is in later indexes, or lost"
                         : "the index is removed; the records say the same");
      } else if (version == keep_from_) {
        base_damage_ = *damage;
      }
    }
    for (const std::string& object : backend_.list(blob_.key("compact"))) {
      auto damage = damage_of([&] { blob_.read_compacted(number_of(object)); });
      if (number_of(object) > newest_) damage = "there is no version " + std::to_string(number_of(object));
      if (!damage) continue;
      plan(*damage, "the compacted map is removed; the version is read where it was written",
           {.kind = Kind::remove_compacted,
            .object = object,
            .number = number_of(object),
            .seen = sum_of(backend_, object)});
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
    plan(base_damage_,
         "versions " + std::to_string(keep_from_) + " to " + std::to_string(version - 1) +
             " cannot be read any more and count as collected",
         {.kind = Kind::begin_log_at, .object = object, .number = version});
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
    DeltaCheck deltas(blob_, newest_, [&](std::uint64_t version, const std::string& why) {
      plan_removal(blob_.delta_key(version), why, "the delta is removed; the records say what is left",
                   Kind::remove_delta);
    });
    deltas.base(map);
    for (std::uint64_t version = map.version() + 1; version <= newest_; ++version) {
      const std::string object = blob_.record_key(version);
      Record record;
      if (const auto damage = damage_of([&] { record = blob_.record(version); })) {
        lost = true;
        keep_by_delta(map, deltas, version, *damage);
        record = lost_record(blob_);
        deltas.next(version, &record);
        plan_loss(version, object, *damage);
        map.apply(record);
      } else {
        const bool counts = map.apply(record);
        const bool drops = counts && drop_if_damaged(version, object, record, dropped);
        lost = lost || drops;
        const Record instead = lost_record(blob_);
        deltas.next(version, drops ? &instead : &record);
      }
      const bool is_base = bases_.contains(version);
      if (is_base && !indexes_.contains(version)) {
        lost = true;
        plan_end_of_base(version);
      }
      if (!indexes_.contains(version)) {
        deltas.base(map);
        continue;
      }
      VersionMap index = index_of(version);
      const bool agrees = index.agrees_with(map);  // then it was made after the loss
      if (!is_base && (agrees || !lost)) {
        if (!agrees)
          plan_removal(blob_.index_key(version), "it differs from what the records say", "the index is removed");
        deltas.base(map);
        continue;
      }
      // The index was made before the loss, so it has the lost write. Later versions build on it. An index after a loss
      // that was repaired before has a mark, or was made by a process that had not looked at the marks yet.
      const auto damage = damage_of([&] { verify(index); });
      if (!damage) {
        map = std::move(index);
        lost = false;
        if (!is_base) plan_base(version);
      } else if (options_.drop_damaged_data) {
        for (const auto& source : index.sources()) {
          if (source->is_object() && damage_of([&] { verify(*source); })) dropped.insert(source->object().key);
        }
        lost = true;
      } else {
        remaining_.push_back(*damage + " (of a version up to " + std::to_string(version) +
                             "; it is given up with drop_damaged_data, --drop-damaged-data)");
      }
      deltas.base(map);
    }
    if (dropped.empty()) return;
    for (const std::uint64_t version : indexes_) {
      if (version <= map_base()) continue;
      const auto names = index_of(version).sources();
      const bool holds = std::any_of(names.begin(), names.end(), [&](const auto& source) {
        return source->is_object() && dropped.contains(source->object().key);
      });
      if (holds) {
        plan_removal(blob_.index_key(version), "it refers to data that is given up",
                     "the index is removed; the records say what is left");
        if (bases_.contains(version)) plan_end_of_base(version);
      }
    }
  }

  VersionMap index_of(std::uint64_t version) const {
    const auto made = made_.find(version);
    return made != made_.end() ? made->second : blob_.read_index(version);
  }

  /// If a delta stands for a record that cannot be read, versions from that of the delta on can stay as they were:
  /// plans an index. `map` is that of the version before the record.
  void keep_by_delta(const VersionMap& map, const DeltaCheck& deltas, std::uint64_t version,
                     const std::string& reason) {
    const std::uint64_t kept = deltas.covering(version);
    const auto next = indexes_.lower_bound(version);
    if (kept == 0 || (next != indexes_.end() && *next <= kept)) return;
    VersionMap index = map;
    if (damage_of([&] { index.apply_delta(deltas.content(kept), deltas.name(kept)); })) return;
    if (damage_of([&] { verify(index); })) return;
    plan(reason,
         "what version " + std::to_string(version) + " wrote is still in the versions from " + std::to_string(kept) +
             " on, by an index that is made from a delta",
         {.kind = Kind::put_index, .object = blob_.index_key(kept), .content = index.encode()});
    indexes_.insert(kept);
    made_.emplace(kept, std::move(index));
  }

  void plan_base(std::uint64_t version) {
    plan("it has a write that is lost",
         "versions from " + std::to_string(version) + " on are built on it, and stay as they were",
         {.kind = Kind::mark_base, .object = blob_.index_key(version), .number = version});
  }
  void plan_end_of_base(std::uint64_t version) {
    plan("index " + std::to_string(version) + " goes, or is gone",
         "later versions are built on the records or on a later index",
         {.kind = Kind::unmark_base, .object = mark_key(blob_, "base-", version)});
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

  void plan_loss(std::uint64_t version, const std::string& object, const std::string& reason) {
    plan(reason,
         "what version " + std::to_string(version) + " wrote is lost: it reads as version " +
             std::to_string(version - 1),
         {.kind = Kind::lose_record, .object = object, .number = version, .seen = sum_of(backend_, object)});
  }

  BlobState& blob_;
  Backend& backend_;
  const RepairOptions& options_;
  std::set<std::string>& sound_;
  std::uint64_t keep_from_ = 0;
  std::uint64_t keep_from_then_ = 0;
  std::uint64_t newest_ = 0;
  std::set<std::uint64_t> indexes_;           ///< readable ones
  std::map<std::uint64_t, VersionMap> made_;  ///< indexes that are planned
  std::set<std::uint64_t> bases_;             ///< versions whose indexes decide; see gc/base-<number>
  std::uint64_t repairs_ = 0;                 ///< see gc/repair-<number>
  std::string base_damage_;
  std::vector<RepairAction> actions_;
  std::vector<RepairStep> steps_;
  std::vector<std::string> remaining_;
};

}  // namespace

void repair_blob(const std::shared_ptr<Backend>& backend, std::string_view name, const RepairOptions& options,
                 RepairReport& report) {
  std::set<std::string> sound;
  for (int pass = 0;;) {
    const auto blob = BlobState::find(backend, name);
    if (!blob) return;
    try {
      BlobRepair repair(*blob, options, sound);
      if (!repair.plan()) continue;
      const bool applies = options.apply && !repair.actions().empty();
      if (applies && !repair.apply()) continue;
      report.actions.insert(report.actions.end(), repair.actions().begin(), repair.actions().end());
      // Maps that others made from what they knew, and put after the plan, are found by the next one.
      if (applies && ++pass < kMostPasses) continue;
      report.remaining.insert(report.remaining.end(), repair.remaining().begin(), repair.remaining().end());
      return;
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
