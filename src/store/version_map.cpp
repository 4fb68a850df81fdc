#include "store/version_map.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <utility>

#include "penstock/error.hpp"
#include "store/encoding.hpp"

namespace penstock::store {

namespace {

constexpr std::uint32_t kIndexMagic = 0x58495350;    // "PSIX"
constexpr std::uint32_t kCompactMagic = 0x4d435350;  // "PSCM"
constexpr std::size_t kIdentities = 1024;
constexpr std::size_t kUnusedSources = 64;
/// Of a fragment in an index: three numbers and that of its source.
constexpr std::uint64_t kEntryBytes = 28;
static_assert(offsetof(Fragment, source) == 3 * sizeof(std::uint64_t));
/// Opening and reading a record takes as long as placing this many regions.
constexpr std::uint64_t kRecordCost = 24;

}  // namespace

bool VersionMap::apply(const Record& record) {
  ++version_;
  const bool is_void = fences(record.base) && record.kind != RecordKind::fence;
  identities_.push_back(is_void ? 0 : record.identity);
  costs_.push_back(kRecordCost);
  for (const Part& part : record.parts) costs_.back() += part.extents.size();
  if (identities_.size() > kIdentities) identities_.pop_front();
  if (costs_.size() > kIdentities) costs_.pop_front();
  if (is_void) return false;
  switch (record.kind) {
    case RecordKind::fence: fence_below_ = std::max(fence_below_, record.number); return true;
    case RecordKind::resize:
      if (record.number < size_bytes_) fragments_.clear(record.number, size_bytes_ - record.number);
      size_bytes_ = record.number;
      return true;
    case RecordKind::write:
    case RecordKind::append: break;
  }
  place_parts(record.parts, record.kind == RecordKind::append ? size_bytes_ : 0);
  return true;
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

std::uint64_t VersionMap::cost_since(std::uint64_t version) const {
  const auto count =
      static_cast<std::ptrdiff_t>(std::min<std::uint64_t>(version_ > version ? version_ - version : 0, costs_.size()));
  return std::accumulate(costs_.end() - count, costs_.end(), std::uint64_t{0});
}

std::optional<bool> VersionMap::made(std::uint64_t identity, std::uint64_t version) const {
  if (version > version_ || version_ - version >= identities_.size()) return std::nullopt;
  return identities_[identities_.size() - 1 - (version_ - version)] == identity;
}

void VersionMap::visit(
    std::uint64_t offset, std::uint64_t size,
    const std::function<void(std::uint64_t, std::uint64_t, const Source*, std::uint64_t)>& visitor) const {
  const std::uint64_t end = offset + size;
  fragments_.for_each_in(offset, end, [&](const Fragment& fragment) {
    if (fragment.offset_bytes > offset) {
      visitor(offset, fragment.offset_bytes - offset, nullptr, 0);
      offset = fragment.offset_bytes;
    }
    const std::uint64_t step = std::min(end, fragment.end_bytes()) - offset;
    visitor(offset, step, sources_[fragment.source].get(),
            fragment.source_offset_bytes + offset - fragment.offset_bytes);
    offset += step;
  });
  if (offset < end) visitor(offset, end - offset, nullptr, 0);
}

std::vector<std::shared_ptr<const Source>> VersionMap::sources() const {
  std::vector<std::shared_ptr<const Source>> all;
  for (const std::uint32_t number : used_sources()) all.push_back(sources_[number]);
  return all;
}

std::vector<std::byte> VersionMap::encode() const {
  const std::vector<std::uint32_t> used = used_sources();
  std::vector<std::uint32_t> numbers(sources_.size());
  Encoder encoder;
  encode_head(encoder, compacted_ ? kCompactMagic : kIndexMagic);
  for (const std::uint64_t value : {blob_id_, version_, size_bytes_, fence_below_, std::uint64_t{used.size()}}) {
    encoder.number(value);
  }
  for (std::uint32_t i = 0; i < used.size(); ++i) {
    numbers[used[i]] = i;
    const Source& source = *sources_[used[i]];
    encode_reference(encoder, source.object());
    encoder.number(std::uint64_t{source.inlined().size()});
    encoder.raw(source.inlined());
  }
  encoder.number(std::uint64_t{identities_.size()});
  for (const std::uint64_t identity : identities_) encoder.number(identity);
  encoder.number(std::uint64_t{fragments_.count()});
  std::vector<std::byte> entries(fragments_.count() * kEntryBytes);
  std::byte* to = entries.data();
  fragments_.for_each([&](const Fragment& fragment) {
    std::memcpy(to, &fragment, 3 * sizeof(std::uint64_t));
    std::memcpy(to + 3 * sizeof(std::uint64_t), &numbers[fragment.source], sizeof(std::uint32_t));
    to += kEntryBytes;
  });
  encoder.raw(entries);
  return encoder.seal();
}

VersionMap VersionMap::decode(ConstBytes sealed, const std::string& name) {
  const ConstBytes content = unseal(sealed, name);
  const bool compacted = Decoder(content, name).number<std::uint32_t>() == kCompactMagic;
  Decoder decoder(content, name);
  decode_head(decoder, compacted ? kCompactMagic : kIndexMagic, name);
  const auto blob_id = decoder.number<std::uint64_t>();
  const auto version = decoder.number<std::uint64_t>();
  VersionMap map(blob_id, decoder.number<std::uint64_t>());
  map.version_ = version;
  map.compacted_ = compacted;
  map.fence_below_ = decoder.number<std::uint64_t>();
  map.sources_.resize(decoder.count(44));
  map.sources_in_use_ = map.sources_.size();
  for (auto& source : map.sources_) {
    ObjectReference object = decode_reference(decoder);
    const ConstBytes inlined = decoder.raw(decoder.count(1));
    source = object.key.empty() ? std::make_shared<const Source>(std::vector<std::byte>(inlined.begin(), inlined.end()))
                                : std::make_shared<const Source>(std::move(object));
  }
  map.identities_.resize(decoder.count(8));
  for (std::uint64_t& identity : map.identities_) identity = decoder.number<std::uint64_t>();
  std::vector<Fragment> fragments(decoder.count(kEntryBytes));
  const ConstBytes entries = decoder.raw(fragments.size() * kEntryBytes);
  const std::byte* from = entries.data();
  std::uint64_t end = 0;
  for (Fragment& fragment : fragments) {
    std::memcpy(static_cast<void*>(&fragment), from, 3 * sizeof(std::uint64_t));
    std::memcpy(&fragment.source, from + 3 * sizeof(std::uint64_t), sizeof(std::uint32_t));
    from += kEntryBytes;
    if (fragment.source >= map.sources_.size()) decoder.fail("refers to a source that it does not list");
    if (fragment.offset_bytes < end || fragment.size_bytes == 0 || fragment.end_bytes() < fragment.offset_bytes) {
      decoder.fail("has places that overlap, are empty, or out of order");
    }
    end = fragment.end_bytes();
  }
  decoder.end();
  map.fragments_.place(fragments);
  return map;
}

}  // namespace penstock::store
