// Makes versions: see "Writing" in docs/design/store.md.
#include <algorithm>
#include <cstdio>

#include "penstock/error.hpp"
#include "penstock/trace.hpp"
#include "store/blob_state.hpp"

namespace penstock::store {

namespace {

constexpr std::size_t kFewRegions = 64;
/// The record of so many regions is read in place of a delta at most once in kDeltaConsidered versions.
constexpr std::size_t kSomeRegions = 1024;
constexpr std::uint64_t kDeltaConsidered = 4;
constexpr std::size_t kManyRegions = 8192;

bool considers_index(std::uint64_t version, std::size_t regions) {
  return version % (regions <= kFewRegions ? kIndexConsideredForFew : kIndexConsidered) == 0;
}

bool considers_delta(std::uint64_t version, std::size_t regions) {
  return version % delta_rule.interval == 0 || (regions >= kSomeRegions && version % kDeltaConsidered == 0) ||
         regions >= kManyRegions;
}

}  // namespace

void BlobState::check_regions(std::span<const WriteRegion> regions) const {
  std::vector<Extent> extents;
  extents.reserve(regions.size());
  for (const WriteRegion& region : regions) {
    const std::uint64_t size = region.data.size();
    const std::uint64_t most = grows_ ? kMostBlobBytes : size_bytes_;
    if (region.offset_bytes > most || size > most - region.offset_bytes) {
      throw Error(ErrorCode::invalid_argument,
                  title() + ": write of " + region_text(region.offset_bytes, size) + "; expected it within [0, " +
                      (grows_ ? std::string("2^63)") : std::to_string(most) + "), since the blob does not grow"));
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
  check_log();
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
                static_cast<unsigned long long>(now_ns()), static_cast<unsigned long long>(writer()),
                static_cast<unsigned long long>(counter_.fetch_add(1)));
  const int level = compress_level_;
  DataObject object =
      level == 0 ? lay_out(key("data") + name, pieces) : lay_out_compressed(key("data") + name, pieces, level);
  std::vector<ConstBytes>& stored = object.stored.empty() ? pieces : object.stored;
  stored.push_back(object.tail);
  backend_->put_unannounced(object.reference.key, stored, read_soon_);
  part.object = std::move(object.reference);
  return part;
}

std::optional<std::uint64_t> BlobState::commit(RecordKind kind, std::vector<Part> parts, std::uint64_t number) {
  return commit_record(kind, std::move(parts), number, std::nullopt);
}

std::optional<std::uint64_t> BlobState::commit_if(std::uint64_t parent, std::vector<Part> parts) {
  return commit_record(RecordKind::write, std::move(parts), 0, parent);
}

std::optional<std::uint64_t> BlobState::resize_if(std::uint64_t parent, std::uint64_t size_bytes) {
  return commit_record(RecordKind::resize, {}, size_bytes, parent);
}

std::optional<std::uint64_t> BlobState::commit_record(RecordKind kind, std::vector<Part> parts, std::uint64_t number,
                                                      std::optional<std::uint64_t> parent) {
  check_log();
  Record record;
  record.kind = kind;
  record.blob_id = blob_id_;
  record.time_ns = now_ns();
  record.writer = writer_name();
  record.identity = std::max<std::uint64_t>(1, writer() + counter_.fetch_add(1));
  const bool stores = kind == RecordKind::write || kind == RecordKind::append;
  record.number = stores ? known_index_.load() : number;
  const bool staged = !parts.empty();
  std::uint64_t newest = staged ? known_.load() : latest();
  record.base = newest;
  for (const Part& part : parts) record.base = std::min(record.base, part.base);
  record.parts = std::move(parts);
  std::size_t regions = 0;
  for (const Part& part : record.parts) regions += part.extents.size();
  const std::vector<std::byte> sealed = encode(record);
  const ConstBytes piece(sealed);
  std::uint64_t version = 0;
  try {
    // stage() has looked for the newest version, so a second look is not needed.
    std::optional<std::uint64_t> behind;
    if (parent) {
      behind = append_on(*parent, piece);
    } else if (staged && newest > 0) {
      behind = backend_->append_behind(key("versions"), newest, std::span(&piece, 1));
    }
    if (staged && !behind) newest = latest();
    version = behind ? *behind : backend_->append(key("versions"), newest + 1, std::span(&piece, 1));
  } catch (const Error& error) {
    if (error.code() == ErrorCode::no_space) remove_if_uncommitted(record, newest + 1);
    throw;
  }
  if (given_up(record, version)) return std::nullopt;
  settle(version);
  learn(version);
  try {
    const bool has_index = considers_index(version, regions) && put_index_if_due(version);
    if (!has_index && considers_delta(version, regions)) put_delta_if_due(version);
  } catch (const Error&) {
    // Indexes and deltas only save time; the version is complete without them.
  }
  return version;
}

std::uint64_t BlobState::append_on(std::uint64_t parent, ConstBytes record_bytes) {
  const std::string task = title() + ": cannot write on top of version " + std::to_string(parent);
  for (std::uint64_t version = parent;;) {
    const std::uint64_t newest = latest();
    if (parent > newest) {
      throw Error(ErrorCode::invalid_argument,
                  task + ", which does not exist; the newest is " + std::to_string(newest));
    }
    for (; version < newest; ++version) {
      if (const std::string change = change_of(version + 1); !change.empty()) {
        throw Error(ErrorCode::exists, task + ": " + change + " after it. Read version " + std::to_string(newest) +
                                           " and write on top of that");
      }
    }
    // A collector that slept may have put a fence under a number that another one has freed.
    if (newest > parent && marks().keep_from > parent + 1) {
      throw Error(ErrorCode::exists, task + ": versions after it were collected. Read version " +
                                         std::to_string(newest) + " and write on top of that");
    }
    // Exclusive: if another process takes the number first, it decides.
    if (backend_->put_if_absent(record_key(version + 1), std::span(&record_bytes, 1))) return version + 1;
  }
}

std::string BlobState::change_of(std::uint64_t version) {
  const std::string number = std::to_string(version);
  try {
    const Record other = record(version);
    if (stands_for_lost(other)) return "version " + number + " was written and lost";
    if (other.kind == RecordKind::fence || lookup_map_at(version)->fences(other.base)) return {};
    return "version " + number + " was made by " + other.writer;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::not_found || marks().keep_from <= version) throw;
    return "version " + number + " was made and collected";
  }
}

/// Whether a gc has made the record void. A gc whose mark is not there by now comes after this version. A gc whose mark
/// is there may have come before it.
bool BlobState::given_up(const Record& record, std::uint64_t version) {
  std::string cause;
  try {
    Marks found = marks();
    if (version >= found.keep_from) {
      return record.base < found.fence_below && record.kind != RecordKind::fence &&
             lookup_map_at(version)->fences(record.base);
    }
    // The version is below the keep mark. Either it was committed and then collected, or its number was free again
    // since an earlier version with it was collected. The index at the keep mark has the identities of older versions.
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
    cause = "all versions below " + std::to_string(found.keep_from) + " were collected in the meantime";
    backend_->remove(record_key(version));
  } catch (const Error& error) {
    if (error.code() == ErrorCode::not_found && is_removed()) throw;
    cause = error.what();
  }
  throw Error(ErrorCode::io,
              title() + ": the outcome of the write of version " + std::to_string(version) +
                  " is unknown; read the blob to find out before you repeat it",
              -1, cause);
}

/// Removes the data of a write that failed on a full device, if the log surely has no record of it.
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
    // The caller gets the error of the write. gc frees the data later.
  }
}

}  // namespace penstock::store
