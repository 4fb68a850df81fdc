#include "store/blob_state.hpp"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <thread>

#include "penstock/error.hpp"
#include "penstock/trace.hpp"
#include "store/encoding.hpp"

namespace penstock::store {

namespace {

constexpr std::uint32_t kHeaderMagic = 0x4c425350;  // "PSBL"
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 63;
constexpr std::size_t kRecentMaps = 4;

std::uint64_t random_number() {
  std::random_device random;
  return (std::uint64_t{random()} << 32) | random();
}

std::string this_process() {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  return std::string(host) + ':' + std::to_string(getpid());
}

std::string region_text(std::uint64_t offset, std::uint64_t size) {
  return "[" + std::to_string(offset) + ", " + std::to_string(offset) + " + " + std::to_string(size) + ")";
}

}  // namespace

std::int64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

BlobState::BlobState(std::shared_ptr<Backend> backend, std::string_view name)
    : backend_(std::move(backend)), name_(name), writer_(random_number()), writer_name_(this_process()) {
  check_key(name_);
  if (name_.find('/') != std::string::npos) {
    throw Error(ErrorCode::invalid_argument, "'" + name_ + "' is no name for a blob: '/' is not allowed");
  }
}

std::string BlobState::title() const { return backend_->url() + ", blob '" + name_ + "'"; }

std::shared_ptr<BlobState> BlobState::create(std::shared_ptr<Backend> backend, std::string_view name,
                                             const BlobOptions& options) {
  std::shared_ptr<BlobState> blob(new BlobState(std::move(backend), name));
  if (options.size_bytes > kMostBytes) {
    throw Error(ErrorCode::invalid_argument, blob->title() + ": a size of " + std::to_string(options.size_bytes) +
                                                 " bytes was given, at most 2^63 is possible");
  }
  blob->blob_id_ = random_number();
  blob->size_bytes_ = options.size_bytes;
  blob->grows_ = options.grows;
  Encoder encoder;
  encode_head(encoder, kHeaderMagic);
  encoder.number(std::uint16_t{options.grows ? std::uint16_t{1} : std::uint16_t{0}});
  encoder.number(blob->blob_id_);
  encoder.number(blob->size_bytes_);
  encoder.number(now_ns());
  const std::vector<std::byte> header = encoder.seal();
  const ConstBytes piece(header);
  if (!blob->backend_->put_if_absent("catalog/" + blob->name_, std::span(&piece, 1))) {
    throw Error(ErrorCode::exists, blob->title() + " exists already; open it, or choose another name");
  }
  return blob;
}

std::shared_ptr<BlobState> BlobState::open(std::shared_ptr<Backend> backend, std::string_view name) {
  std::shared_ptr<BlobState> blob(new BlobState(std::move(backend), name));
  const std::string header_key = "catalog/" + blob->name_;
  if (!blob->backend_->exists(header_key)) {
    throw Error(ErrorCode::not_found, blob->title() + " does not exist; create it first, or list the store's blobs");
  }
  const std::vector<std::byte> header = read_all(*blob->backend_, header_key);
  const std::string source = blob->backend_->url() + ": object " + header_key;
  Decoder decoder(unseal(header, source), source);
  decode_head(decoder, kHeaderMagic, source);
  blob->grows_ = (decoder.number<std::uint16_t>() & 1) != 0;
  blob->blob_id_ = decoder.number<std::uint64_t>();
  blob->size_bytes_ = decoder.number<std::uint64_t>();
  return blob;
}

BlobState::Marks BlobState::marks() const {
  Marks marks;
  for (const std::string& mark : backend_->list(key("gc"))) {
    const std::string_view name = std::string_view(mark).substr(mark.find_last_of('/') + 1);
    const std::size_t dash = name.find('-');
    if (dash == std::string_view::npos) continue;
    const std::uint64_t number = number_of(name.substr(dash + 1));
    if (name.starts_with("keep-")) marks.keep_from = std::max(marks.keep_from, number);
    if (name.starts_with("fence-")) marks.fence_below = std::max(marks.fence_below, number);
  }
  return marks;
}

void BlobState::learn(std::uint64_t version) {
  std::uint64_t known = known_.load();
  while (known < version && !known_.compare_exchange_weak(known, version)) continue;
}

std::uint64_t BlobState::latest() {
  std::uint64_t low = known_.load();
  if (low == 0) {
    for (const std::string& index : backend_->list(key("index"))) low = std::max(low, number_of(index));
  }
  for (;;) {
    std::uint64_t step = 1;
    while (backend_->exists(record_key(low + step))) {
      low += step;
      step *= 2;
    }
    for (step /= 2; step > 0; step /= 2) {
      if (backend_->exists(record_key(low + step))) low += step;
    }
    // A version that is not there may have been collected. That is announced before, so one look afterwards tells.
    const std::uint64_t keep_from = marks().keep_from;
    if (keep_from <= low) break;
    low = keep_from;
  }
  learn(low);
  return low;
}

bool BlobState::wait(std::uint64_t version, std::chrono::nanoseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  auto pause = std::chrono::microseconds(50);
  for (;;) {
    if (version <= known_.load() || version <= latest()) return true;
    const auto now = std::chrono::steady_clock::now();
    if (now >= deadline) return false;
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(pause, deadline - now));
    pause = std::min(pause * 2, std::chrono::microseconds(10'000));
  }
}

void BlobState::fail_collected(std::uint64_t version, std::uint64_t keep_from) const {
  throw Error(ErrorCode::not_found, title() + ": version " + std::to_string(version) +
                                        " was collected; the oldest that is kept is " + std::to_string(keep_from));
}

Record BlobState::record(std::uint64_t version) {
  const std::string record_name = record_key(version);
  try {
    Record record = decode_record(read_all(*backend_, record_name), backend_->url() + ": object " + record_name);
    if (record.blob_id != blob_id_) {
      throw Error(ErrorCode::corrupt, backend_->url() + ": object " + record_name + " belongs to another blob");
    }
    return record;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::not_found) throw;
    const Marks found = marks();
    if (version < found.keep_from) fail_collected(version, found.keep_from);
    throw Error(ErrorCode::corrupt, title() + ": the record of version " + std::to_string(version) +
                                        " is missing (object " + record_name + "); restore it from a copy");
  }
}

VersionMap BlobState::read_index(std::uint64_t version) const {
  const std::string name = index_key(version);
  VersionMap map = VersionMap::decode(read_all(*backend_, name), backend_->url() + ": object " + name);
  if (map.blob_id() != blob_id_ || map.version() != version) {
    throw Error(ErrorCode::corrupt, backend_->url() + ": object " + name + " belongs to another version or blob");
  }
  return map;
}

VersionMap BlobState::nearest_index(std::uint64_t version, std::uint64_t keep_from) {
  std::vector<std::string> indexes = backend_->list(key("index"));
  for (auto index = indexes.rbegin(); index != indexes.rend(); ++index) {
    const std::uint64_t number = number_of(*index);
    if (number > version) continue;
    try {
      return read_index(number);
    } catch (const Error& error) {
      // An older index and more records give the same map, as long as they are kept.
      if (error.code() != ErrorCode::corrupt || number <= keep_from) throw;
    }
  }
  if (keep_from > 0) {
    throw Error(ErrorCode::not_found,
                title() + ": the object " + index_key(keep_from) + " is missing; restore it from a copy");
  }
  return empty_map();
}

VersionMap BlobState::rebuild(std::uint64_t version) {
  for (;;) {
    const std::uint64_t keep_from = marks().keep_from;
    if (version < keep_from) fail_collected(version, keep_from);
    try {
      VersionMap map = nearest_index(version, keep_from);
      const std::uint64_t from = map.version();
      replay(map, version);
      // The place of a collected record may hold that of a writer that slept. It is announced before it gets free.
      if (marks().keep_from <= from) return map;
    } catch (const Error& error) {
      // A gc that runs at this moment took away what we built on; there is something newer to build on then.
      if (error.code() != ErrorCode::not_found) throw;
      if (marks().keep_from == keep_from) throw Error(ErrorCode::corrupt, error.message(), -1, error.cause());
    }
  }
}

void BlobState::replay(VersionMap& map, std::uint64_t version) {
  while (map.version() < version) map.apply(record(map.version() + 1));
}

std::shared_ptr<const VersionMap> BlobState::map_at(std::uint64_t version) {
  if (version == kLatest) {
    version = latest();
  } else if (version > known_.load()) {
    if (const std::uint64_t newest = latest(); version > newest) {
      throw Error(ErrorCode::not_found, title() + ": version " + std::to_string(version) +
                                            " does not exist, the newest is " + std::to_string(newest));
    }
  }
  const std::lock_guard lock(mutex_);
  for (const auto& map : recent_) {
    if (map->version() == version) return map;
  }
  if (tip_ && tip_->map.version() < version && version - tip_->map.version() <= 2 * kIndexEvery) {
    if (tip_->holders.load(std::memory_order_acquire) > 0) tip_ = std::make_shared<Tip>(tip_->map);
    try {
      const std::uint64_t from = tip_->map.version();
      replay(tip_->map, version);
      if (from < marks().keep_from) tip_.reset();  // see rebuild()
    } catch (const Error& error) {
      tip_.reset();
      if (error.code() != ErrorCode::not_found) throw;
    }
  }
  if (!tip_ || tip_->map.version() != version) {
    VersionMap map = rebuild(version);
    if (tip_ && tip_->map.version() > version) {
      recent_.push_front(std::make_shared<const VersionMap>(std::move(map)));
      if (recent_.size() > kRecentMaps) recent_.pop_back();
      return recent_.front();
    }
    tip_ = std::make_shared<Tip>(std::move(map));
  }
  tip_->holders.fetch_add(1, std::memory_order_relaxed);
  const auto release = [tip = tip_](const VersionMap*) { tip->holders.fetch_sub(1, std::memory_order_release); };
  return {&tip_->map, release};
}

void BlobState::read(const VersionMap& map, std::span<const ReadRegion> regions) {
  std::uint64_t total_bytes = 0;
  for (const ReadRegion& region : regions) {
    if (region.offset_bytes > map.size_bytes() || region.data.size() > map.size_bytes() - region.offset_bytes) {
      throw Error(ErrorCode::invalid_argument, title() + ": read of " +
                                                   region_text(region.offset_bytes, region.data.size()) +
                                                   ", expected it within the " + std::to_string(map.size_bytes()) +
                                                   " bytes of version " + std::to_string(map.version()));
    }
    total_bytes += region.data.size();
  }
  const trace::Span span("store read", "store", total_bytes);
  ChunkReader reader(*backend_);
  try {
    for (const ReadRegion& region : regions) {
      map.visit(region.offset_bytes, region.data.size(),
                [&](std::uint64_t offset, std::uint64_t size, const Fragment* fragment, std::uint64_t skip) {
                  const Bytes to = region.data.subspan(offset - region.offset_bytes, size);
                  if (fragment == nullptr) {
                    std::fill(to.begin(), to.end(), std::byte{0});
                  } else {
                    reader.read(*fragment->source, fragment->source_offset_bytes + skip, to);
                  }
                });
    }
  } catch (const Error& error) {
    if (error.code() != ErrorCode::not_found) throw;
    const Marks found = marks();
    if (map.version() < found.keep_from) fail_collected(map.version(), found.keep_from);
    throw Error(ErrorCode::corrupt,
                title() + ": version " + std::to_string(map.version()) +
                    " refers to an object that is missing; restore it from a copy",
                -1, error.message());
  }
}

void BlobState::check_regions(std::span<const WriteRegion> regions) const {
  std::vector<Extent> extents;
  extents.reserve(regions.size());
  for (const WriteRegion& region : regions) {
    const std::uint64_t size = region.data.size();
    const std::uint64_t most = grows_ ? kMostBytes : size_bytes_;
    if (region.offset_bytes > most || size > most - region.offset_bytes) {
      throw Error(ErrorCode::invalid_argument,
                  title() + ": write of " + region_text(region.offset_bytes, size) + ", expected it within [0, " +
                      (grows_ ? std::string("2^63)") : std::to_string(most) + "), for the blob does not grow"));
    }
    if (size > 0) extents.push_back({region.offset_bytes, size});
  }
  const auto by_offset = [](const Extent& a, const Extent& b) { return a.offset_bytes < b.offset_bytes; };
  if (!std::is_sorted(extents.begin(), extents.end(), by_offset)) {
    std::sort(extents.begin(), extents.end(), by_offset);
  }
  for (std::size_t i = 1; i < extents.size(); ++i) {
    const Extent& left = extents[i - 1];
    if (left.offset_bytes + left.size_bytes > extents[i].offset_bytes) {
      throw Error(ErrorCode::invalid_argument, title() + ": the regions " +
                                                   region_text(left.offset_bytes, left.size_bytes) + " and " +
                                                   region_text(extents[i].offset_bytes, extents[i].size_bytes) +
                                                   " of one write overlap; make them disjoint, or use two writes");
    }
  }
}

Part BlobState::stage(std::span<const WriteRegion> regions) {
  Part part;
  std::vector<ConstBytes> pieces;
  std::uint64_t total_bytes = 0;
  pieces.reserve(regions.size() + 1);
  part.extents.reserve(regions.size());
  for (const WriteRegion& region : regions) {
    if (region.data.empty()) continue;
    pieces.push_back(region.data);
    part.extents.push_back({region.offset_bytes, region.data.size()});
    total_bytes += region.data.size();
  }
  part.base = latest();
  if (total_bytes <= kInlineBytes) {
    for (const ConstBytes piece : pieces) part.inlined.insert(part.inlined.end(), piece.begin(), piece.end());
    return part;
  }
  const trace::Span span("store write", "store", total_bytes);
  char name[80];
  std::snprintf(name, sizeof name, "/%020llu-%020llu-%016llx-%llu", static_cast<unsigned long long>(part.base),
                static_cast<unsigned long long>(now_ns()), static_cast<unsigned long long>(writer_),
                static_cast<unsigned long long>(counter_.fetch_add(1)));
  DataObject object = lay_out(key("data") + name, pieces);
  pieces.push_back(object.tail);
  backend_->put_unannounced(object.reference.key, pieces);
  part.object = std::move(object.reference);
  return part;
}

std::optional<std::uint64_t> BlobState::commit(RecordKind kind, std::vector<Part> parts, std::uint64_t number) {
  Record record;
  record.kind = kind;
  record.blob_id = blob_id_;
  record.time_ns = now_ns();
  record.writer = writer_name_;
  record.identity = std::max<std::uint64_t>(1, writer_ + counter_.fetch_add(1));
  record.number = number;
  const std::uint64_t newest = latest();
  record.base = newest;
  for (const Part& part : parts) record.base = std::min(record.base, part.base);
  record.parts = std::move(parts);
  const std::vector<std::byte> sealed = encode(record);
  const ConstBytes piece(sealed);
  std::uint64_t version = 0;
  try {
    version = backend_->append(key("versions"), newest + 1, std::span(&piece, 1));
  } catch (const Error& error) {
    if (error.code() == ErrorCode::no_space) remove_if_uncommitted(record, newest + 1);
    throw;
  }
  if (given_up(record, version)) return std::nullopt;
  learn(version);
  if (version % kIndexEvery == 0) {
    try {
      put_index(version);
    } catch (const Error&) {
      // An index only saves time; the version is complete without it.
    }
  }
  return version;
}

/// A gc that is not announced by now comes after this version; one that is announced may have come before.
bool BlobState::given_up(const Record& record, std::uint64_t version) {
  std::string cause;
  try {
    Marks found = marks();
    if (version >= found.keep_from) {
      return record.base < found.fence_below && record.kind != RecordKind::fence &&
             map_at(version)->fences(record.base);
    }
    // Collected so soon: either as it should be, or it took the place of one that was. The map that was kept knows.
    for (;;) {
      const std::uint64_t keep_from = found.keep_from;
      try {
        const std::optional<bool> made = read_index(keep_from).made(record.identity, version);
        if (made.has_value()) {
          if (!*made) backend_->remove(record_key(version));
          return !*made;
        }
        break;
      } catch (const Error& error) {
        found = marks();
        if (error.code() != ErrorCode::not_found || found.keep_from == keep_from) throw;
      }
    }
    cause = "all versions below " + std::to_string(found.keep_from) + " were collected meanwhile";
    backend_->remove(record_key(version));
  } catch (const Error& error) {
    cause = error.what();
  }
  throw Error(ErrorCode::io,
              title() + ": the outcome of the write of version " + std::to_string(version) +
                  " is unknown; read the blob to find out before you repeat it",
              -1, cause);
}

/// On a full device the data of a failed write must not stay. Only when the record surely does not exist.
void BlobState::remove_if_uncommitted(const Record& failed, std::uint64_t first) {
  try {
    const std::uint64_t newest = latest();
    for (std::uint64_t version = first; version <= newest; ++version) {
      const Record other = record(version);
      for (const Part& part : other.parts) {
        for (const Part& mine : failed.parts) {
          if (!part.object.key.empty() && part.object.key == mine.object.key) return;
        }
      }
    }
    for (const Part& part : failed.parts) {
      if (!part.object.key.empty()) backend_->remove(part.object.key);
    }
  } catch (const Error&) {
    // The error of the write matters to the caller; gc finds the data.
  }
}

void BlobState::put_index(std::uint64_t version) {
  const std::string name = index_key(version);
  if (backend_->exists(name)) return;
  const std::vector<std::byte> sealed = map_at(version)->encode();
  const ConstBytes piece(sealed);
  backend_->put_if_absent(name, std::span(&piece, 1));
}

}  // namespace penstock::store
