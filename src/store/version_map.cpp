#include "store/version_map.hpp"

#include <algorithm>
#include <utility>

#include "penstock/error.hpp"
#include "store/map_parts.hpp"

namespace penstock::store {

namespace {

constexpr std::size_t kIdentities = 1024;
/// As many steps of a replay are remembered.
constexpr std::size_t kSteps = 1024;
constexpr std::size_t kUnusedSources = 64;
/// About what a fragment and a source take in an index.
constexpr std::uint64_t kFragmentBytes = 6;
constexpr std::uint64_t kSourceBytes = 40;
/// Opening and reading a record takes as long as placing this many regions.
constexpr std::uint64_t kRecordCost = 24;
/// An index may take as many bytes as the records since the last one, at this estimate for each, or a fixed part of the
/// size of their data.
constexpr std::uint64_t kRecordBytes = 240;
constexpr std::uint64_t kDataBytesPerIndexByte = 256;

}  // namespace

VersionMap::VersionMap(std::shared_ptr<const StoredMap> stored)
    : blob_id_(stored->head().blob_id),
      version_(stored->head().version),
      size_bytes_(stored->head().size_bytes),
      fence_below_(stored->head().fence_below),
      stored_(std::move(stored)),
      identities_(stored_->head().identities),
      stored_fragments_(stored_->head().fragment_count),
      stored_bytes_(stored_->size_bytes()) {}

VersionMap VersionMap::over(VersionMap below, const OpenedDelta& delta) {
  const std::uint64_t fragments = below.fragment_count();
  const std::uint64_t bytes = below.estimated_index_bytes();
  std::deque<Step> replayed = std::move(below.replayed_);
  VersionMap map(delta.over(std::move(below)));
  map.stored_fragments_ += fragments;
  map.stored_bytes_ += bytes;
  map.replayed_ = std::move(replayed);
  map.remember(delta.head.replayed);
  return map;
}

void VersionMap::remember(const Replayed& replayed) {
  replayed_.push_back({version_, replayed});
  if (replayed_.size() > kSteps) replayed_.pop_front();
}

std::uint64_t VersionMap::estimated_index_bytes() const {
  return stored_bytes_ + fragments_.count() * kFragmentBytes + sources_.size() * kSourceBytes;
}

MapHead VersionMap::head() const {
  return {.blob_id = blob_id_,
          .version = version_,
          .size_bytes = size_bytes_,
          .fence_below = fence_below_,
          .identities = identities_,
          .base = 0,
          .replayed = {},
          .source_count = 0,
          .fragment_count = 0};
}

void VersionMap::need_whole() const {
  if (!stored_) return;
  throw Error(ErrorCode::internal, "a map that is read in parts was used as a whole one; report this");
}

bool VersionMap::apply(const Record& record) {
  ++version_;
  const bool is_void = fences(record.base) && record.kind != RecordKind::fence;
  identities_.push_back(is_void ? 0 : record.identity);
  Replayed replayed{kRecordCost, kRecordBytes};
  std::uint64_t data_bytes = 0;
  for (const Part& part : record.parts) {
    replayed.cost += part.extents.size();
    replayed.index_bytes += part.extents.size() * sizeof(Extent);
    data_bytes += part.object.data_bytes;
  }
  replayed.index_bytes = std::max(replayed.index_bytes, data_bytes / kDataBytesPerIndexByte);
  remember(replayed);
  if (identities_.size() > kIdentities) identities_.pop_front();
  if (is_void) return false;
  switch (record.kind) {
    case RecordKind::fence: fence_below_ = std::max(fence_below_, record.number); return true;
    case RecordKind::resize:
      if (record.number < size_bytes_) clear_from(record.number);
      size_bytes_ = record.number;
      return true;
    case RecordKind::write:
    case RecordKind::append: break;
  }
  place_parts(record.parts, record.kind == RecordKind::append ? size_bytes_ : 0);
  return true;
}

void VersionMap::clear_from(std::uint64_t offset) {
  if (!stored_) return fragments_.clear(offset, size_bytes_ - offset);
  // The stored map goes on behind the new end, and the blob may grow again.
  const Fragment zeros{offset, size_bytes_ - offset, 0, add_source(nullptr)};
  fragments_.place(std::span(&zeros, 1));
}

std::uint32_t VersionMap::add_source(std::shared_ptr<const Source> source) {
  if (sources_.size() >= 2 * sources_in_use_ + kUnusedSources) drop_unused_sources();
  sources_.push_back(std::move(source));
  return static_cast<std::uint32_t>(sources_.size() - 1);
}

std::vector<std::uint32_t> VersionMap::used_sources() const {
  std::vector<bool> seen(sources_.size());
  std::vector<std::uint32_t> used;
  fragments_.for_each([&](const Fragment& fragment) {
    if (seen[fragment.source]) return;
    seen[fragment.source] = true;
    used.push_back(fragment.source);
  });
  return used;
}

void VersionMap::drop_unused_sources() {
  std::vector<std::uint32_t> numbers(sources_.size());
  std::vector<std::shared_ptr<const Source>> kept;
  for (const std::uint32_t number : used_sources()) {
    numbers[number] = static_cast<std::uint32_t>(kept.size());
    kept.push_back(std::move(sources_[number]));
  }
  fragments_.renumber(numbers);
  sources_ = std::move(kept);
  sources_in_use_ = sources_.size();
}

void VersionMap::place_parts(const std::vector<Part>& parts, std::uint64_t start) {
  std::vector<Fragment> run;
  for (const Part& part : parts) {
    const std::uint32_t source = add_source(part.object.key.empty() ? std::make_shared<const Source>(part.inlined)
                                                                    : std::make_shared<const Source>(part.object));
    run.clear();
    std::uint64_t source_offset = 0;
    for (const Extent& extent : part.extents) {
      if (extent.size_bytes > 0) run.push_back({start + extent.offset_bytes, extent.size_bytes, source_offset, source});
      source_offset += extent.size_bytes;
      size_bytes_ = std::max(size_bytes_, start + extent.offset_bytes + extent.size_bytes);
    }
    const auto by_offset = [](const Fragment& a, const Fragment& b) { return a.offset_bytes < b.offset_bytes; };
    if (!std::is_sorted(run.begin(), run.end(), by_offset)) std::sort(run.begin(), run.end(), by_offset);
    const auto overlap = [](const Fragment& a, const Fragment& b) { return b.offset_bytes < a.end_bytes(); };
    if (std::adjacent_find(run.begin(), run.end(), overlap) == run.end()) {
      fragments_.place(run);
    } else {
      for (const Fragment& fragment : run) fragments_.place(std::span(&fragment, 1));
    }
  }
}

Replayed VersionMap::replayed_since(std::uint64_t version) const {
  Replayed sum;
  std::uint64_t known_from = version_;
  for (auto step = replayed_.rbegin(); step != replayed_.rend() && step->version > version; ++step) {
    sum.cost += step->replayed.cost;
    sum.index_bytes += step->replayed.index_bytes;
    known_from = step->version;
  }
  // Assumes that older versions cost as much as the known ones.
  if (replayed_.size() == kSteps && known_from == replayed_.front().version && known_from > version + 1) {
    const std::uint64_t known = version_ - known_from + 1;
    sum.cost = sum.cost / known * (version_ - version);
    sum.index_bytes = sum.index_bytes / known * (version_ - version);
  }
  return sum;
}

std::optional<bool> VersionMap::made(std::uint64_t identity, std::uint64_t version) const {
  if (version > version_ || version_ - version >= identities_.size()) return std::nullopt;
  return identities_[identities_.size() - 1 - (version_ - version)] == identity;
}

void VersionMap::visit(
    std::uint64_t offset, std::uint64_t size,
    const std::function<void(std::uint64_t, std::uint64_t, const Source*, std::uint64_t)>& visitor) const {
  const std::uint64_t end = offset + size;
  const auto visit_gap = [&](std::uint64_t gap_end) {
    if (stored_) {
      stored_->visit(offset, gap_end - offset, visitor);
    } else {
      visitor(offset, gap_end - offset, nullptr, 0);
    }
  };
  fragments_.for_each_in(offset, end, [&](const Fragment& fragment) {
    if (fragment.offset_bytes > offset) {
      visit_gap(fragment.offset_bytes);
      offset = fragment.offset_bytes;
    }
    const std::uint64_t step = std::min(end, fragment.end_bytes()) - offset;
    visitor(offset, step, sources_[fragment.source].get(),
            fragment.source_offset_bytes + offset - fragment.offset_bytes);
    offset += step;
  });
  if (offset < end) visit_gap(end);
}

std::vector<std::shared_ptr<const Source>> VersionMap::sources() const {
  need_whole();
  std::vector<std::shared_ptr<const Source>> all;
  for (const std::uint32_t number : used_sources()) all.push_back(sources_[number]);
  return all;
}

}  // namespace penstock::store
