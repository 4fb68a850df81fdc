#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "penstock/error.hpp"
#include "store/collect.hpp"
#include "store/delta_check.hpp"
#include "store/encoding.hpp"
#include "store/scattered_read.hpp"

namespace penstock::store {

namespace {

/// Verifies an object chunk by chunk, so that a check needs no more memory than the largest chunk.
void check_object(const Backend& backend, const Source& source, CheckReport& report) {
  const ObjectReference& object = source.object();
  std::vector<std::byte> buffer;
  std::uint64_t chunk_bytes = 0;
  for (const Source::Chunk& chunk : source.chunks(backend)) {
    buffer.resize(chunk.size_bytes);
    try {
      ScatteredRead one(backend);
      one.add(source, chunk.offset_bytes, buffer);
      one.run();
    } catch (const Error& error) {
      report.problems.push_back(error.what());
    }
    chunk_bytes += chunk.size_bytes;
  }
  ++report.objects;
  report.bytes += chunk_bytes;
  const std::uint64_t expected_bytes = object.tail_at() + tail_bytes(object);
  if (const std::uint64_t found_bytes = backend.size_bytes(object.key); found_bytes != expected_bytes) {
    report.problems.push_back(backend.url() + ": object " + object.key + " has " + std::to_string(found_bytes) +
                              " bytes; expected " + std::to_string(expected_bytes));
  }
}

bool has_all_objects(const Backend& backend, const VersionMap& map) {
  const auto& sources = map.sources();
  return std::all_of(sources.begin(), sources.end(),
                     [&](const auto& source) { return !source->is_object() || backend.exists(source->object().key); });
}

}  // namespace

void verify_object(const Backend& backend, const Source& source) {
  CheckReport report;
  check_object(backend, source, report);
  if (!report.problems.empty()) throw Error(ErrorCode::corrupt, report.problems.front());
}

void check_blob(BlobState& blob, CheckReport& report) {
  const Backend& backend = blob.backend();
  const auto guarded = [&](const auto& action) {
    try {
      action();
      return true;
    } catch (const Error& error) {
      report.problems.push_back(error.what());
      return false;
    }
  };
  ++report.blobs;
  if (blob.has_witness()) {
    guarded([&] {
      if (BlobState::read_witness(backend, blob.folder()).name == blob.name()) return;
      throw Error(ErrorCode::corrupt, backend.url() + ": object " + blob.alive_key() + " is of another blob");
    });
  }
  const std::uint64_t newest = blob.latest();
  const BlobState::Marks marks = blob.marks();
  const std::uint64_t keep_from = marks.keep_from;
  std::map<std::string, std::shared_ptr<const Source>> reachable;
  const auto reach = [&](const VersionMap& map) {
    for (const auto& source : map.sources()) {
      if (source->is_object()) reachable.emplace(source->object().key, source);
    }
  };

  // Replay all records, and compare each index with the map that they give.
  VersionMap map = blob.empty_map();
  const bool based = keep_from == 0 || guarded([&] { map = blob.read_index(keep_from); });
  if (keep_from > 0 && based) ++report.versions;
  reach(map);
  std::set<std::uint64_t> confirmed;
  std::set<std::uint64_t> copied;
  for (const std::string& mark : backend.list(blob.key("confirmed"))) confirmed.insert(number_of(mark));
  for (const std::string& key : backend.list(blob.key("compact"))) {
    guarded([&] {
      const auto compacted = blob.read_compacted(number_of(key));
      // A compaction that died leaves a map to a copy that a gc may have given up. Nobody needs it.
      if (!compacted || !(confirmed.contains(compacted->version()) || has_all_objects(backend, *compacted))) return;
      copied.insert(compacted->version());
      reach(*compacted);
    });
  }
  guarded([&] {
    for (const auto& [tag, version] : blob.tags()) {
      if (version >= keep_from || (copied.contains(version) && confirmed.contains(version))) continue;
      guarded([&] {
        const VersionMap tagged = blob.read_index(version);
        // Penstock 0.1 made no marks, and its gc freed what had been copied.
        if (!copied.contains(version) || has_all_objects(backend, tagged)) reach(tagged);
      });
    }
  });
  std::set<std::uint64_t> indexes;
  for (const std::string& index : backend.list(blob.key("index"))) indexes.insert(number_of(index));
  DeltaCheck deltas(blob, newest, [&](std::uint64_t version, const std::string& why) {
    const std::string delta = backend.url() + ": object " + blob.delta_key(version);
    // Readers pass it over. Nothing of what it says is lost.
    report.problems.push_back(delta + " cannot be used: " + why + "; 'penstock store repair' removes it");
  });
  if (based) deltas.base(map);
  // Whether `map` is that of the version before. It is not after damage. The next index makes it known again.
  bool is_known = based;
  for (std::uint64_t version = keep_from + 1; version <= newest; ++version) {
    Record record;
    if (guarded([&] { record = blob.record(version); })) {
      // After damage it is unknown which records are void, so check the objects of all of them.
      const bool counts = !is_known || map.apply(record);
      deltas.next(version, &record);
      if (stands_for_lost(record)) ++report.lost_versions;
      if (is_known) ++report.versions;
      for (const Part& part : record.parts) {
        if (!counts || part.object.key.empty()) continue;
        reachable.emplace(part.object.key, std::make_shared<const Source>(part.object));
      }
    } else {
      is_known = false;
      deltas.next(version, nullptr);
    }
    const bool decides = std::ranges::binary_search(marks.bases, version);
    const bool was_known = std::exchange(is_known, is_known && !decides);
    if (decides || indexes.contains(version))
      guarded([&] {
        VersionMap index = blob.read_index(version);
        if (is_known && !index.agrees_with(map)) {
          throw Error(ErrorCode::corrupt, backend.url() + ": object " + blob.index_key(version) +
                                              " differs from what the records say; see 'penstock store repair'");
        }
        if (!was_known) ++report.versions;
        reach(index);
        map = std::move(index);
        is_known = true;
      });
    if (is_known) deltas.base(map);
  }
  guarded([&] {
    for (const std::string& object : blob.beyond_newest()) {
      report.problems.push_back(backend.url() + ": object " + object +
                                " belongs to no version, since the record of version " + std::to_string(newest + 1) +
                                " is missing; see 'penstock store repair'");
    }
  });
  for (const auto& [key, source] : reachable) {
    guarded([&] { check_object(backend, *source, report); });
  }
  for (const std::string& key : backend.list(blob.key("data"))) {
    if (reachable.contains(key)) continue;
    ++report.garbage_objects;
    guarded([&] { report.garbage_bytes += backend.size_bytes(key); });
  }
}

}  // namespace penstock::store
