#include "store/collect.hpp"

#include <algorithm>
#include <charconv>
#include <set>

#include "penstock/error.hpp"

namespace penstock::store {

namespace {

struct DataName {
  std::uint64_t base = 0;
  std::int64_t time_ns = 0;
};

/// Parses the key of a data object: …/data/<base>-<time>-<writer>-<number>.
DataName parse(const std::string& key) {
  DataName name;
  const char* at = key.data() + key.find_last_of('/') + 1;
  const char* end = key.data() + key.size();
  const auto base = std::from_chars(at, end, name.base);
  if (base.ec != std::errc() || base.ptr == end || *base.ptr != '-' ||
      std::from_chars(base.ptr + 1, end, name.time_ns).ec != std::errc()) {
    throw Error(ErrorCode::corrupt, "the object '" + key + "' has no place in a store; move it away");
  }
  return name;
}

void add_sources(const VersionMap& map, std::set<std::string>& keys) {
  for (const auto& source : map.sources()) {
    if (source->is_object()) keys.insert(source->object().key);
  }
}

/// As add_sources, if the map is still there. Another collector may have removed it, with the objects that only it
/// needed.
template <typename ReadMap>
void add_sources_if_there(const ReadMap& read_map, std::set<std::string>& keys) {
  try {
    add_sources(read_map(), keys);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::not_found) throw;
  }
}

std::set<std::uint64_t> numbers_below(BlobState& blob, const char* folder) {
  std::set<std::uint64_t> numbers;
  for (const std::string& key : blob.backend().list(blob.key(folder))) numbers.insert(number_of(key));
  return numbers;
}

std::set<std::uint64_t> tagged_versions(const BlobState& blob) {
  std::set<std::uint64_t> versions;
  for (const auto& [name, version] : blob.tags()) versions.insert(version);
  return versions;
}

/// Keys of all data objects that versions from `keep_from` to `newest`, and those with a tag, need.
std::set<std::string> needed_objects(BlobState& blob, std::uint64_t keep_from, std::uint64_t newest) {
  std::set<std::string> needed;
  const std::set<std::uint64_t> tagged = tagged_versions(blob);
  const std::set<std::uint64_t> confirmed = numbers_below(blob, "confirmed");
  const std::set<std::uint64_t> compacted = numbers_below(blob, "compact");
  for (const std::uint64_t version : compacted) {
    if (version < keep_from && !tagged.contains(version)) continue;
    add_sources_if_there([&] { return blob.read_compacted(version).value_or(blob.empty_map()); }, needed);
  }
  for (const std::uint64_t version : tagged) {
    // The mark was listed first, so the map to the copy was there when the copy was looked for.
    if (version >= keep_from || (confirmed.contains(version) && compacted.contains(version))) continue;
    add_sources_if_there([&] { return blob.read_index(version); }, needed);
  }
  VersionMap map = *blob.map_at(keep_from);
  add_sources(map, needed);
  for (std::uint64_t version = keep_from + 1; version <= newest; ++version) {
    const Record record = blob.record(version);
    if (!map.apply(record)) continue;
    for (const Part& part : record.parts) {
      if (!part.object.key.empty()) needed.insert(part.object.key);
    }
  }
  // Repair puts these marks before it gives up records, so they are there if one above has been given up.
  for (const std::uint64_t version : blob.marks().bases) {
    if (version > keep_from) add_sources_if_there([&] { return blob.read_index(version); }, needed);
  }
  return needed;
}

/// The known data objects that versions up to `keep_from` name. No later record can name them.
std::set<std::string> committed_objects(BlobState& blob, std::uint64_t from, std::uint64_t keep_from) {
  std::set<std::string> committed;
  for (const std::uint64_t version : numbers_below(blob, "index")) {
    if (version < keep_from) add_sources_if_there([&] { return blob.read_index(version); }, committed);
  }
  for (const std::uint64_t version : numbers_below(blob, "compact")) {
    if (version >= keep_from) break;
    add_sources_if_there([&] { return blob.read_compacted(version).value_or(blob.empty_map()); }, committed);
  }
  add_sources(*blob.map_at(from), committed);
  for (std::uint64_t version = std::max<std::uint64_t>(from, 1); version <= keep_from; ++version) {
    for (const Part& part : blob.record(version).parts) {
      if (!part.object.key.empty()) committed.insert(part.object.key);
    }
  }
  return committed;
}

/// Removes marks that larger marks had replaced before this run began.
void remove_old_marks(BlobState& blob, const BlobState::Marks& then) {
  std::vector<std::string> old;
  for (const std::string& mark : blob.backend().list(blob.key("gc"))) {
    const std::string name = mark.substr(mark.find_last_of('/') + 1);
    if (name.starts_with("keep-") && number_of(name.substr(5)) < then.keep_from) old.push_back(mark);
    if (name.starts_with("fence-") && number_of(name.substr(6)) < then.fence_below) old.push_back(mark);
    if (name.starts_with("base-") && number_of(name.substr(5)) <= then.keep_from) old.push_back(mark);
    if (name.starts_with("repair-") && number_of(name.substr(7)) < then.repairs) old.push_back(mark);
  }
  if (!old.empty()) blob.backend().remove_all(old);
}

std::uint64_t total_bytes(const Backend& backend, const std::vector<std::string>& keys) {
  std::uint64_t total = 0;
  for (const std::string& key : keys) {
    try {
      total += backend.size_bytes(key);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::not_found) throw;
    }
  }
  return total;
}

/// The oldest version that the options keep. If clocks contradict the order of the versions, it keeps more.
std::uint64_t oldest_to_keep(BlobState& blob, const GcOptions& options, std::uint64_t kept_from, std::uint64_t newest) {
  const std::uint64_t keep = std::max<std::uint64_t>(options.keep_last, 1);
  const std::uint64_t by_number = std::max(kept_from, newest >= keep ? newest - keep + 1 : 0);
  if (options.keep_for.count() == 0) return by_number;
  const std::int64_t begin_ns = begin_of(options.keep_for);
  std::uint64_t version = kept_from;
  while (version < by_number && blob.record(version + 1).time_ns < begin_ns) ++version;
  return version;
}

void collect_once(BlobState& blob, const GcOptions& options, GcReport& report) {
  Backend& backend = blob.backend();
  std::uint64_t newest = blob.latest();
  const BlobState::Marks then = blob.marks();
  const std::uint64_t kept_from = then.keep_from;
  const std::uint64_t keep_from = oldest_to_keep(blob, options, kept_from, newest);

  // Data that no version needs belongs to collected versions, or to writers that died or are not done. Data of such
  // writers goes only after a fence, which makes records with it void.
  const std::vector<std::string> stored = backend.list(blob.key("data"));
  const std::set<std::string> committed = committed_objects(blob, kept_from, keep_from);
  // After a loss of power an index or a mark must not be there without its version and the objects of that version.
  backend.settle();
  if (keep_from > 0) blob.put_index(keep_from);
  // That of a tag may have been damaged, and removed by a repair.
  for (const std::uint64_t version : tagged_versions(blob)) {
    if (version >= kept_from && version < keep_from) blob.put_index(version);
  }
  backend.settle();
  if (keep_from > kept_from) put_mark(blob, "keep-", keep_from);
  // Look for tags after the keep mark: a process that tags an older version from now on sees the mark and fails.
  std::set<std::string> needed = needed_objects(blob, keep_from, newest);
  const std::int64_t deadline_ns = begin_of(options.lease);
  std::uint64_t fence_below = 0;
  for (const std::string& key : stored) {
    if (needed.contains(key) || committed.contains(key)) continue;
    const DataName name = parse(key);
    if (name.time_ns <= deadline_ns) fence_below = std::max(fence_below, name.base + 1);
  }
  if (fence_below > 0) {
    put_mark(blob, "fence-", fence_below);
    // Without a number there is no fence: another collector has freed the one that was next.
    if (!blob.map_at(newest)->fences(fence_below - 1) && !blob.commit(RecordKind::fence, {}, fence_below)) {
      throw Error(ErrorCode::not_found, blob.title() + ": another gc was faster");
    }
    newest = blob.latest();
    needed = needed_objects(blob, keep_from, newest);
  }

  std::vector<std::string> records;
  std::vector<std::string> indexes;
  if (keep_from > 0) {
    const std::set<std::uint64_t> tagged = tagged_versions(blob);
    for (const std::string& key : backend.list(blob.key("delta"))) {
      if (number_of(key) < keep_from) indexes.push_back(key);
    }
    for (const char* folder : {"index", "compact", "confirmed"}) {
      for (const std::string& key : backend.list(blob.key(folder))) {
        if (number_of(key) < keep_from && !tagged.contains(number_of(key))) indexes.push_back(key);
      }
    }
    for (const std::string& key : backend.list(blob.key("versions"))) {
      if (number_of(key) < keep_from) records.push_back(key);
    }
  }
  std::vector<std::string> objects;
  for (const std::string& key : stored) {
    if (needed.contains(key)) continue;
    if (committed.contains(key) || parse(key).base < fence_below) objects.push_back(key);
  }
  // What makes these objects unnecessary may come from non-durable writers: it must be durable before they go.
  if (!indexes.empty() || !records.empty() || !objects.empty()) backend.settle();
  for (const auto* keys : {&indexes, &records, &objects}) report.bytes_freed += total_bytes(backend, *keys);
  backend.remove_all(indexes);
  report.versions_removed += backend.remove_all(records);
  report.objects_removed += backend.remove_all(objects);
  remove_old_marks(blob, then);
}

}  // namespace

std::string mark_key(const BlobState& blob, const char* kind, std::uint64_t number) {
  const std::string name = numbered_key(blob.key("gc"), number);
  const std::size_t slash = name.find_last_of('/');
  return name.substr(0, slash + 1) + kind + name.substr(slash + 1);
}

bool put_mark(BlobState& blob, const char* kind, std::uint64_t number) {
  return blob.backend().put_if_absent(mark_key(blob, kind, number), {});
}

GcReport remove_folder(Backend& backend, const std::string& folder) {
  const std::string marks = folder + "/gc/";
  backend.put_if_absent(marks + std::string(kGone), {});
  // A clone puts this mark after its versions. It goes only with all of them, so it must be there before the listing.
  const bool is_named = backend.exists(marks + std::string(kNamed));
  std::vector<std::string> keys = backend.list(folder);
  for (const std::string_view mark : {kAlive, kGone, kUnfinished}) std::erase(keys, marks + std::string(mark));
  if (!is_named) std::erase(keys, marks + std::string(kNamed));
  GcReport report;
  report.bytes_freed = total_bytes(backend, keys);
  report.objects_removed = backend.remove_all(keys);
  return report;
}

void erase_folder(Backend& backend, const std::string& folder) {
  const std::string marks = folder + "/gc/";
  const bool has_witness = folder.starts_with(std::string(kFolders) + '/');
  // The order matters, and each removal is durable before the next. A process that wakes late sees by the missing
  // witness that the blob was removed. A creator sees by gc/unfinished that its blob was given up.
  if (has_witness) {
    backend.remove(marks + std::string(kAlive));
    backend.remove(marks + std::string(kGone));
  }
  backend.remove(marks + std::string(kUnfinished));
  if (has_witness) backend.prune(folder);
}

std::set<std::string> list_folders(const Backend& backend) {
  std::set<std::string> folders;
  const auto add = [&](std::string_view root) {
    for (const std::string& part : backend.list_parts(root)) folders.insert(std::string(root) + '/' + part);
  };
  add(kFolders);
  for (const std::string_view root : kFormerFolders) add(root);
  return folders;
}

void collect_folders(const std::shared_ptr<Backend>& backend, const std::set<std::string>& folders,
                     const std::set<std::string>& in_use, std::chrono::seconds lease, GcReport& report) {
  const std::int64_t deadline_ns = begin_of(lease);
  std::vector<std::string> removed;
  for (const std::string& folder : folders) {
    std::int64_t made_ns = 0;
    std::from_chars(folder.data() + folder.find('/') + 1, folder.data() + folder.size(), made_ns);
    if (in_use.contains(folder) || made_ns > deadline_ns) continue;
    if (BlobState::removal_time_ns(*backend, folder) > deadline_ns) continue;
    if (backend->list(folder).empty()) {
      backend->prune(folder);
      continue;
    }
    if (!backend->exists(folder + "/gc/" + std::string(kGone))) {
      backend->put_if_absent(folder + "/gc/" + std::string(kUnfinished), {});
    }
    removed.push_back(folder);
  }
  // A creator that puts its entry from now on sees gc/unfinished. This listing shows earlier entries.
  if (removed.empty()) return;
  const std::set<std::string> named = BlobState::named_folders(backend);
  std::erase_if(removed, [&](const std::string& folder) { return named.contains(folder); });
  for (const std::string& folder : removed) {
    const GcReport freed = remove_folder(*backend, folder);
    report.bytes_freed += freed.bytes_freed;
    report.objects_removed += freed.objects_removed;
    erase_folder(*backend, folder);
  }
}

void collect_blob(BlobState& blob, const GcOptions& options, GcReport& report) {
  for (;;) {
    const std::uint64_t kept_from = blob.marks().keep_from;
    try {
      collect_once(blob, options, report);
      return;
    } catch (const Error& error) {
      // Another collector removed what this one read. Start again with what is left.
      if (error.code() != ErrorCode::not_found || blob.marks().keep_from == kept_from) throw;
    }
  }
}

}  // namespace penstock::store
