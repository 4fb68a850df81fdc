#include <algorithm>

#include "penstock/error.hpp"
#include "penstock/store.hpp"
#include "store/blob_state.hpp"

namespace penstock {

namespace {

std::string kind_text(const store::Record& record) {
  if (stands_for_lost(record)) return "lost";
  switch (record.kind) {
    case store::RecordKind::write: return "write";
    case store::RecordKind::append: return "append";
    case store::RecordKind::resize: return "resize";
    case store::RecordKind::fence: return "fence";
  }
  return "";
}

void check_grows(const store::BlobState& blob, const char* what) {
  if (blob.grows()) return;
  throw Error(ErrorCode::invalid_argument,
              blob.title() + " does not grow, so " + what + " is not possible; create it with grows=true");
}

std::vector<store::Part> parts_of(const store::BlobState& blob, std::span<const StagedWrite> staged) {
  std::vector<store::Part> parts;
  parts.reserve(staged.size());
  for (const StagedWrite& one : staged) {
    for (store::Part& part : store::decode_staged(one.encoded, "a staged write for " + blob.title())) {
      parts.push_back(std::move(part));
    }
  }
  return parts;
}

void drop(const store::BlobState& blob, const store::Part& part) noexcept {
  try {
    if (!part.object.key.empty()) blob.backend().remove(part.object.key);
  } catch (const Error&) {
    // The data stays until gc frees it, as if this process had died.
  }
}

/// What is compressed lies in memory until it is stored.
constexpr std::uint64_t kCompressedAtOnce = 32 << 20;

/// Stores the data of a write: in one part, or in several if it is compressed.
std::vector<store::Part> stage_all(store::BlobState& blob, std::span<const WriteRegion> regions) {
  if (!blob.compresses()) return {blob.stage(regions)};
  std::vector<store::Part> parts;
  std::vector<WriteRegion> some;
  std::uint64_t some_bytes = 0;
  const auto stage_some = [&] {
    parts.push_back(blob.stage(some));
    some.clear();
    some_bytes = 0;
  };
  try {
    for (const WriteRegion& region : regions) {
      for (std::uint64_t done = 0; done < region.data.size();) {
        const std::uint64_t step = std::min(kCompressedAtOnce - some_bytes, region.data.size() - done);
        some.push_back({region.offset_bytes + done, region.data.subspan(done, step)});
        some_bytes += step;
        done += step;
        if (some_bytes == kCompressedAtOnce) stage_some();
      }
    }
    if (!some.empty() || parts.empty()) stage_some();
  } catch (...) {
    for (const store::Part& part : parts) drop(blob, part);
    throw;
  }
  return parts;
}

}  // namespace

Snapshot::Snapshot(std::shared_ptr<store::BlobState> blob, std::shared_ptr<const store::VersionMap> map,
                   std::string damage)
    : blob_(std::move(blob)), map_(std::move(map)), damage_(std::move(damage)) {}

std::uint64_t Snapshot::version() const { return map_->version(); }

std::uint64_t Snapshot::size_bytes() const { return map_->size_bytes(); }

void Snapshot::read(std::span<const ReadRegion> regions) const { blob_->read(*map_, regions); }

const std::string& Blob::name() const { return state_->name(); }

std::uint64_t Blob::latest() const { return state_->latest(); }

std::uint64_t Blob::size_bytes() const { return state_->readable_at(kLatest).map->size_bytes(); }

bool Blob::grows() const { return state_->grows(); }

std::uint64_t Blob::write(std::span<const WriteRegion> regions) {
  state_->check_regions(regions);
  for (;;) {
    // If the write takes longer than the lease, a gc may give up its data. Then store the data again.
    if (const auto version = state_->commit(store::RecordKind::write, stage_all(*state_, regions))) return *version;
  }
}

std::uint64_t Blob::write_if(std::uint64_t parent, std::span<const WriteRegion> regions) {
  state_->check_regions(regions);
  for (;;) {
    const std::vector<store::Part> parts = stage_all(*state_, regions);
    try {
      if (const auto version = state_->commit_if(parent, parts)) return *version;
    } catch (const Error& error) {
      if (error.code() == ErrorCode::exists || error.code() == ErrorCode::invalid_argument) {
        for (const store::Part& part : parts) drop(*state_, part);
      }
      throw;
    }
  }
}

Blob::Appended Blob::append(std::span<const ConstBytes> pieces) {
  check_grows(*state_, "append");
  std::vector<WriteRegion> regions;
  std::uint64_t total_bytes = 0;
  for (const ConstBytes piece : pieces) {
    regions.push_back({total_bytes, piece});
    total_bytes += piece.size();
  }
  if (const std::uint64_t end_bytes = size_bytes(); end_bytes + total_bytes > store::kMostBlobBytes) {
    throw Error(ErrorCode::invalid_argument, state_->title() + ": append of " + std::to_string(total_bytes) +
                                                 " bytes behind " + std::to_string(end_bytes) +
                                                 ", at most 2^63 are possible");
  }
  for (;;) {
    const auto version = state_->commit(store::RecordKind::append, stage_all(*state_, regions));
    if (version) return {*version, state_->lookup_map_at(*version)->size_bytes() - total_bytes};
  }
}

std::uint64_t Blob::resize(std::uint64_t size_bytes) {
  check_grows(*state_, "resize");
  if (size_bytes > store::kMostBlobBytes) {
    throw Error(ErrorCode::invalid_argument, state_->title() + ": a size of " + std::to_string(size_bytes) +
                                                 " bytes was given, at most 2^63 is possible");
  }
  for (;;) {
    if (const auto version = state_->commit(store::RecordKind::resize, {}, size_bytes)) return *version;
  }
}

StagedWrite Blob::stage(std::span<const WriteRegion> regions) {
  state_->check_regions(regions);
  return {store::encode(stage_all(*state_, regions))};
}

std::optional<std::uint64_t> Blob::commit(std::span<const StagedWrite> staged) {
  return state_->commit(store::RecordKind::write, parts_of(*state_, staged));
}

std::optional<std::uint64_t> Blob::commit_if(std::uint64_t parent, std::span<const StagedWrite> staged) {
  return state_->commit_if(parent, parts_of(*state_, staged));
}

void Blob::discard(const StagedWrite& staged) noexcept {
  try {
    for (const store::Part& part : parts_of(*state_, std::span(&staged, 1))) drop(*state_, part);
  } catch (const Error&) {
    // It names no data.
  }
}

Snapshot Blob::snapshot(std::uint64_t version) const {
  store::BlobState::Readable found = state_->readable_at(version);
  return {state_, std::move(found.map), std::move(found.damage)};
}

void Blob::read(std::span<const ReadRegion> regions, std::uint64_t version) const {
  state_->read(*state_->readable_at(version).map, regions);
}

bool Blob::wait(std::uint64_t version, std::chrono::nanoseconds timeout) const {
  return state_->wait(version, timeout);
}

void Blob::tag(std::string_view tag, std::uint64_t version) { state_->tag(tag, version); }

void Blob::untag(std::string_view tag) { state_->untag(tag); }

std::vector<Tag> Blob::tags() const {
  std::vector<Tag> all;
  for (auto& [name, version] : state_->tags()) all.push_back({name, version});
  return all;
}

std::uint64_t Blob::tagged(std::string_view tag) const {
  for (const auto& [name, version] : state_->tags()) {
    if (name == tag) return version;
  }
  throw Error(ErrorCode::not_found, state_->title() + " has no tag '" + std::string(tag) + "'");
}

std::vector<Range> Blob::diff(std::uint64_t from, std::uint64_t to) const {
  const auto newer = state_->map_at(to);
  std::vector<Range> ranges;
  for (const store::Extent& extent : newer->changes_since(*state_->map_at(from))) {
    ranges.push_back({extent.offset_bytes, extent.size_bytes});
  }
  return ranges;
}

void Blob::compact(std::uint64_t version) { state_->compact(version); }

std::vector<LogEntry> Blob::log(std::uint64_t first) const {
  std::vector<LogEntry> entries;
  const std::uint64_t newest = state_->latest();
  first = std::max({first, std::uint64_t{1}, state_->marks().keep_from});
  // Fences decide whether a later version is void. After an unreadable record the fences are unknown.
  std::optional<store::VersionMap> map;
  const auto unless_damaged = [](const auto& action) {
    try {
      action();
      return true;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::corrupt) throw;
      return false;
    }
  };
  if (first <= newest) {
    unless_damaged([&] { map = *state_->lookup_map_at(std::max(first - 1, state_->marks().keep_from)); });
  }
  for (std::uint64_t version = first; version <= newest; ++version) {
    store::Record record;
    if (!unless_damaged([&] { record = state_->record(version); })) {
      entries.push_back({version, 0, "", "unreadable", 0, 0});
      map.reset();
      continue;
    }
    LogEntry entry{version, record.time_ns, record.writer, kind_text(record), 0, 0};
    for (const store::Part& part : record.parts) {
      entry.regions += part.extents.size();
      for (const store::Extent& extent : part.extents) entry.bytes += extent.size_bytes;
    }
    if (map && map->version() < version && !map->apply(record)) entry.kind = "void";
    entries.push_back(std::move(entry));
  }
  return entries;
}

}  // namespace penstock
