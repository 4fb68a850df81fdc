// Builds the maps of versions from a blob's log, and reads by them.
#include <algorithm>

#include "penstock/error.hpp"
#include "penstock/trace.hpp"
#include "store/blob_state.hpp"
#include "store/map_parts.hpp"
#include "store/scattered_read.hpp"

namespace penstock::store {

namespace {

constexpr std::size_t kRecentMaps = 4;
/// Looks for an index before it replays more records than this.
constexpr std::uint64_t kReplayUnasked = 8;
/// A map in parts is opened anew rather than replaying more records than this.
constexpr std::uint64_t kReplayAlways = 64;
/// An index at most this many versions older is used without a search for a nearer one.
constexpr std::uint64_t kNear = 24;
constexpr std::size_t kRecordsAtOnce = 16;
/// In units of Replayed::cost. An index is worth its space if replaying costs more than reading it, and at
/// least this much.
constexpr std::uint64_t kLeastReplayCost = 240;

}  // namespace

std::string region_text(std::uint64_t offset_bytes, std::uint64_t size_bytes) {
  return "[" + std::to_string(offset_bytes) + ", " + std::to_string(offset_bytes) + " + " + std::to_string(size_bytes) +
         ")";
}

VersionMap BlobState::read_index(std::uint64_t version, Loading loading) const {
  const std::string name = index_key(version);
  std::shared_ptr<const StoredMap> stored;
  if (loading == Loading::parts) stored = StoredMap::open(backend_, name, kIndexMagic);
  VersionMap map = stored ? VersionMap(std::move(stored))
                          : VersionMap::decode(read_all(*backend_, name), backend_->url() + ": object " + name);
  if (map.blob_id() != blob_id_ || map.version() != version) {
    throw Error(ErrorCode::corrupt, backend_->url() + ": object " + name + " belongs to another version or blob");
  }
  return map;
}

std::uint64_t BlobState::list_indexes(std::uint64_t version) {
  std::uint64_t newest = 0;
  for (const std::string& index : backend_->list(key("index"))) {
    if (const std::uint64_t number = number_of(index); number <= version) newest = std::max(newest, number);
  }
  if (newest > known_index_.load()) known_index_ = newest;
  return newest;
}

std::uint64_t BlobState::index_near(std::uint64_t version, std::optional<Record>& newest) {
  // The record cannot name the version's own index, which is put after it.
  if (version % kIndexConsideredForFew == 0 && backend_->exists(index_key(version))) return version;
  try {
    newest = record(version);
    if (newest->kind == RecordKind::write || newest->kind == RecordKind::append) return newest->number;
  } catch (const Error& error) {
    // If the replay needs this record, it reports the error.
    if (error.code() != ErrorCode::corrupt && error.code() != ErrorCode::not_found) throw;
  }
  return 0;
}

VersionMap BlobState::nearest_index(std::uint64_t version, const Marks& found, std::optional<Record>& newest) {
  const std::uint64_t base = found.base_of(version);
  const auto is_near = [&](std::uint64_t index) {
    return index >= std::max<std::uint64_t>(base, 1) && index <= version && version - index <= kNear;
  };
  std::uint64_t near = known_index_.load();
  if (!is_near(near)) near = index_near(version, newest);
  if (is_near(near)) {
    try {
      VersionMap map = read_index(near);
      if (near > known_index_.load()) known_index_ = near;
      return map;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::corrupt && error.code() != ErrorCode::not_found) throw;
    }
  }
  std::vector<std::string> indexes = backend_->list(key("index"));
  for (auto index = indexes.rbegin(); index != indexes.rend(); ++index) {
    const std::uint64_t number = number_of(*index);
    if (number > version) continue;
    if (number < base) break;
    try {
      return read_index(number);
    } catch (const Error& error) {
      // An older index and more records give the same map, unless those records are collected or lost.
      if (error.code() != ErrorCode::corrupt || number <= base) throw;
    }
  }
  if (base > 0) fail_without_index(base);
  return empty_map();
}

void BlobState::fail_without_index(std::uint64_t version) const {
  throw Error(ErrorCode::not_found,
              title() + ": the object " + index_key(version) + " is missing; restore it from a copy");
}

BlobState::Rebuilt BlobState::replayed(std::uint64_t version, const Marks& found) {
  std::optional<Record> newest;
  VersionMap map = nearest_index(version, found, newest);
  const std::uint64_t from = map.version();
  if (newest && from < version) {
    replay(map, version - 1);
    map.apply(*newest);
  } else {
    replay(map, version);
  }
  return {std::move(map), from};
}

VersionMap BlobState::rebuild(std::uint64_t version, Loading loading) {
  for (;;) {
    const Marks then = marks();
    if (version < then.keep_from) return read_kept(version, then.keep_from, loading);
    try {
      Rebuilt made = loading == Loading::parts ? layered(version, then) : replayed(version, then);
      // A number is free again once its record is collected, and a writer that slept may have taken it. A collector
      // puts its keep mark before it frees a number, so the marks show it. So does a repair before it gives up a write
      // that an index has.
      const Marks now = marks();
      if (now.base_of(version) <= made.from && now.repairs == then.repairs) return std::move(made.map);
    } catch (const Error& error) {
      // A concurrent gc or repair removed what we read. If so it has put a newer mark and an index there: start anew
      // from that.
      if (error.code() != ErrorCode::not_found) throw;
      const Marks now = marks();
      if (now.keep_from == then.keep_from && now.repairs == then.repairs)
        throw Error(ErrorCode::corrupt, error.message(), -1, error.cause());
    }
  }
}

void BlobState::replay(VersionMap& map, std::uint64_t version) {
  std::vector<std::string> keys;
  while (map.version() < version) {
    keys.clear();
    while (keys.size() < kRecordsAtOnce && map.version() + keys.size() < version) {
      keys.push_back(record_key(map.version() + keys.size() + 1));
    }
    for (const std::vector<std::byte>& sealed : backend_->contents_of(keys)) {
      const std::uint64_t next = map.version() + 1;
      map.apply(sealed.empty() ? record(next) : decode_of(next, sealed));
    }
  }
}

VersionMap BlobState::read_kept(std::uint64_t version, std::uint64_t keep_from, Loading loading) const {
  try {
    return read_index(version, loading);  // a tag may keep it
  } catch (const Error& error) {
    if (error.code() != ErrorCode::not_found) throw;
    fail_collected(version, keep_from);
  }
}

std::optional<VersionMap> BlobState::read_compacted(std::uint64_t version) const {
  const std::string name = compacted_key(version);
  if (!backend_->exists(name)) return std::nullopt;
  VersionMap map = VersionMap::decode(read_all(*backend_, name), backend_->url() + ": object " + name);
  if (map.blob_id() != blob_id_ || map.version() != version) {
    throw Error(ErrorCode::corrupt, backend_->url() + ": object " + name + " belongs to another version or blob");
  }
  return map;
}

std::shared_ptr<const VersionMap> BlobState::newest_map(const MapAt& map_at) {
  for (;;) {
    const std::uint64_t newest = latest();
    try {
      return map_at(newest);
    } catch (const Error& error) {
      // A collector may remove what was the newest version a moment ago. Then there is a newer one.
      if (error.code() != ErrorCode::not_found || marks().keep_from <= newest) throw;
    }
  }
}

std::shared_ptr<const VersionMap> BlobState::readable_map_at(std::uint64_t version, Loading loading) {
  if (version == kLatest) return newest_map([&](std::uint64_t newest) { return readable_map_at(newest, loading); });
  if (version > known_.load()) latest();
  {
    const std::lock_guard lock(mutex_);
    forget_if_repaired();
    if (compacted_ && compacted_->version() == version) return compacted_;
    if (tip_ && tip_->version() == version) return tip_;
  }
  if (version <= known_.load()) {
    try {
      if (std::optional<VersionMap> map = read_compacted(version)) {
        const std::lock_guard lock(mutex_);
        return compacted_ = std::make_shared<const VersionMap>(std::move(*map));
      }
    } catch (const Error& error) {
      // A compacted map only saves time: it may be damaged, and a concurrent gc may remove it.
      if (error.code() != ErrorCode::corrupt && error.code() != ErrorCode::not_found) throw;
    }
  }
  return loading == Loading::parts ? lookup_map_at(version) : map_at(version);
}

BlobState::Readable BlobState::readable_at(std::uint64_t version, Loading loading) {
  try {
    return {readable_map_at(version, loading), {}};
  } catch (const Error& error) {
    if (version != kLatest || error.code() != ErrorCode::corrupt) throw;
    auto map = std::make_shared<const VersionMap>(map_before_damage());
    std::string damage = title() + ": version " + std::to_string(map->version()) + " is read in place of the newest, " +
                         "which is damaged ('penstock store repair " + backend_->url() +
                         "' shows what can be mended): " + error.what();
    return {std::move(map), std::move(damage)};
  }
}

VersionMap BlobState::map_before_damage() {
  // If the index that later versions are built on cannot be read, those before it may be.
  std::uint64_t most = kLatest;
  for (;;) {
    const Marks then = marks();
    const std::uint64_t newest = std::min(most, latest());
    const std::uint64_t base = then.base_of(newest);
    try {
      std::optional<Record> ignored;
      VersionMap map = nearest_index(newest, then, ignored);
      const std::uint64_t from = map.version();
      try {
        replay(map, newest);
      } catch (const Error& error) {
        if (error.code() != ErrorCode::corrupt) throw;
      }
      const Marks now = marks();
      if (now.base_of(map.version()) <= from && now.repairs == then.repairs) return map;
    } catch (const Error& error) {
      // See rebuild().
      if (error.code() != ErrorCode::not_found && error.code() != ErrorCode::corrupt) throw;
      const Marks now = marks();
      if (now.keep_from != then.keep_from || now.repairs != then.repairs) continue;
      if (base == then.keep_from) throw Error(ErrorCode::corrupt, error.message(), -1, error.cause());
      most = base - 1;
    }
  }
}

bool BlobState::is_shorter_from_index(std::uint64_t from, std::uint64_t version) const {
  if (version - from <= kReplayUnasked) return false;
  const std::vector<std::string> indexes = backend_->list(key("index"));
  return std::any_of(indexes.rbegin(), indexes.rend(), [&](const std::string& index) {
    const std::uint64_t number = number_of(index);
    return number > from && number <= version;
  });
}

void BlobState::check_exists(std::uint64_t version) {
  if (version <= known_.load()) return;
  if (const std::uint64_t newest = latest(); version > newest)
    throw Error(ErrorCode::not_found, title() + ": version " + std::to_string(version) +
                                          " does not exist, the newest is " + std::to_string(newest));
}

std::shared_ptr<const VersionMap> BlobState::held_map(std::uint64_t version) const {
  for (const auto& map : recent_) {
    if (map->version() == version) return map;
  }
  return tip_ && tip_->version() == version ? tip_ : nullptr;
}

std::shared_ptr<const VersionMap> BlobState::hold(VersionMap made) {
  auto map = std::make_shared<const VersionMap>(std::move(made));
  if (!tip_ || tip_->version() <= map->version()) return tip_ = std::move(map);
  recent_.push_front(std::move(map));
  if (recent_.size() > kRecentMaps) recent_.pop_back();
  return recent_.front();
}

void BlobState::forget_if_repaired() {
  const std::uint64_t repairs = seen_repairs_.load();
  if (repairs == repairs_of_maps_) return;
  repairs_of_maps_ = repairs;
  tip_ = partial_ = compacted_ = nullptr;
  recent_.clear();
}

std::optional<VersionMap> BlobState::advanced(const VersionMap& from, std::uint64_t version) {
  try {
    VersionMap map = from;
    replay(map, version);
    const Marks found = marks();  // see rebuild()
    if (from.version() < found.base_of(version) || found.repairs != repairs_of_maps_) return std::nullopt;
    return map;
  } catch (const Error& error) {
    // An index behind what is damaged may say the same.
    if (error.code() != ErrorCode::not_found && error.code() != ErrorCode::corrupt) throw;
    return std::nullopt;
  }
}

std::shared_ptr<const VersionMap> BlobState::map_at(std::uint64_t version) {
  if (version == kLatest) return newest_map([&](std::uint64_t newest) { return map_at(newest); });
  check_exists(version);
  const std::lock_guard lock(mutex_);
  forget_if_repaired();
  if (auto map = held_map(version)) return map;
  if (tip_ && tip_->version() < version && !is_shorter_from_index(tip_->version(), version)) {
    // Without the tip, an error leaves no map behind that the log may contradict.
    const auto from = std::exchange(tip_, nullptr);
    if (auto map = advanced(*from, version)) return hold(*std::move(map));
  }
  return hold(rebuild(version, Loading::whole));
}

std::shared_ptr<const VersionMap> BlobState::lookup_map_at(std::uint64_t version) {
  if (version == kLatest) return newest_map([&](std::uint64_t newest) { return lookup_map_at(newest); });
  check_exists(version);
  {
    const std::lock_guard lock(mutex_);
    forget_if_repaired();
    if (auto map = held_map(version)) return map;
    if (partial_ && partial_->version() == version) return partial_;
    // A process that has the whole map of an older version keeps it up to date.
    if (!tip_ || tip_->version() > version) {
      std::optional<VersionMap> map;
      if (const auto from = std::exchange(partial_, nullptr);
          from && from->version() < version && version - from->version() <= kReplayAlways) {
        map = advanced(*from, version);
      }
      if (!map) map = rebuild(version, Loading::parts);
      if (!map->is_partial()) return hold(*std::move(map));
      return partial_ = std::make_shared<const VersionMap>(*std::move(map));
    }
  }
  return map_at(version);
}

void BlobState::put_index(std::uint64_t version) {
  if (backend_->exists(index_key(version))) return;
  const std::uint64_t repairs = seen_repairs_.load();
  const auto encoded = [&] { return map_at(version)->encode(); };
  put_map(index_key(version), repairs, encoded(), encoded);
}

void BlobState::put_map(const std::string& object, std::uint64_t repairs, std::vector<std::byte> sealed,
                        const std::function<std::vector<std::byte>()>& again) {
  ConstBytes piece(sealed);
  if (!backend_->put_if_absent(object, std::span(&piece, 1))) return;
  // A repair lists the maps after it has changed something and has said so. So either it sees ours, or we see its mark.
  for (std::uint64_t now; (now = marks().repairs) != repairs; repairs = now) {
    sealed = again();
    piece = sealed;
    backend_->replace(object, std::span(&piece, 1));
  }
}

bool BlobState::put_index_if_due(std::uint64_t version) {
  const std::uint64_t repairs = seen_repairs_.load();
  auto map = lookup_map_at(version);
  const std::uint64_t worth = std::max<std::uint64_t>(map->fragment_count(), kLeastReplayCost);
  // Other writers put indexes, too. Lists them only if one is due after the newest that this process knows.
  if (map->replayed_since(known_index_.load()).cost < worth) return false;
  const Replayed since = map->replayed_since(list_indexes(version));
  if (since.cost < worth) return false;
  if (map->is_partial()) {
    if (map->estimated_index_bytes() > since.index_bytes) return false;
    map = map_at(version);
  }
  std::vector<std::byte> sealed = map->encode();
  if (sealed.size() > since.index_bytes) return false;
  put_map(index_key(version), repairs, std::move(sealed), [&] { return map_at(version)->encode(); });
  known_index_ = version;
  return true;
}

void BlobState::read(const VersionMap& map, std::span<const ReadRegion> regions) {
  std::uint64_t total_bytes = 0;
  for (const ReadRegion& region : regions) {
    if (region.offset_bytes > map.size_bytes() || region.data.size() > map.size_bytes() - region.offset_bytes) {
      throw Error(ErrorCode::invalid_argument, title() + ": read of " +
                                                   region_text(region.offset_bytes, region.data.size()) +
                                                   "; expected it within the " + std::to_string(map.size_bytes()) +
                                                   " bytes of version " + std::to_string(map.version()));
    }
    total_bytes += region.data.size();
  }
  const trace::Span span("store read", "store", total_bytes);
  try {
    return read_by(map, regions);
  } catch (const Error& error) {
    const bool missing = error.code() == ErrorCode::not_found;
    const bool has_other_way = map.compacted() || map.is_partial();
    if (!missing && (error.code() != ErrorCode::corrupt || !has_other_way)) throw;
    if (map.is_partial()) {
      // A block of the index is damaged, or a collector has removed the index, or the data is damaged or missing. The
      // log tells which.
      return read(*map_at(map.version()), regions);
    }
    const Marks found = marks();
    if (map.compacted()) {
      // The contiguous copy was given up or is damaged. The map from the log names other places: read those, or
      // report why they cannot be read.
      const auto plain = map_at(map.version());
      return read(*plain, regions);
    }
    if (map.version() < found.keep_from) {
      if (read_by_copy(map.version(), regions)) return;
      fail_collected(map.version(), found.keep_from);
    }
    throw Error(ErrorCode::corrupt,
                title() + ": version " + std::to_string(map.version()) +
                    " refers to an object that is missing; restore it from a copy",
                -1, error.message());
  }
}

/// Reads a version that may have been compacted after its map was read. Returns whether it could.
bool BlobState::read_by_copy(std::uint64_t version, std::span<const ReadRegion> regions) {
  try {
    auto copy = read_compacted(version);
    if (!copy) return false;
    read_by(*copy, regions);
    const std::lock_guard lock(mutex_);
    compacted_ = std::make_shared<const VersionMap>(*std::move(copy));
    return true;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::not_found && error.code() != ErrorCode::corrupt) throw;
    return false;
  }
}

void BlobState::read_by(const VersionMap& map, std::span<const ReadRegion> regions) const {
  ScatteredRead scattered(*backend_);
  for (const ReadRegion& region : regions) {
    map.visit(region.offset_bytes, region.data.size(),
              [&](std::uint64_t offset, std::uint64_t size, const Source* source, std::uint64_t skip) {
                const Bytes to = region.data.subspan(offset - region.offset_bytes, size);
                if (source == nullptr) {
                  std::fill(to.begin(), to.end(), std::byte{0});
                } else {
                  scattered.add(*source, skip, to);
                }
              });
  }
  scattered.run();
}

}  // namespace penstock::store
