#include "store/version_map.hpp"

#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "penstock/error.hpp"
#include "store/encoding.hpp"

namespace penstock::store {

namespace {

constexpr std::uint32_t kIndexMagic = 0x58495350;    // "PSIX"
constexpr std::uint32_t kCompactMagic = 0x4d435350;  // "PSCM"
constexpr std::size_t kIdentities = 1024;
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
      if (record.number < size_bytes_) clear(record.number, size_bytes_ - record.number);
      size_bytes_ = record.number;
      return true;
    case RecordKind::write:
    case RecordKind::append: break;
  }
  place_parts(record.parts, record.kind == RecordKind::append ? size_bytes_ : 0);
  return true;
}

void VersionMap::place_parts(const std::vector<Part>& parts, std::uint64_t start) {
  for (const Part& part : parts) {
    const auto source = part.object.key.empty() ? std::make_shared<const Source>(part.inlined)
                                                : std::make_shared<const Source>(part.object);
    std::uint64_t source_offset = 0;
    for (const Extent& extent : part.extents) {
      place(start + extent.offset_bytes, {extent.size_bytes, source, source_offset});
      source_offset += extent.size_bytes;
      size_bytes_ = std::max(size_bytes_, start + extent.offset_bytes + extent.size_bytes);
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

void VersionMap::clear(std::uint64_t offset, std::uint64_t size) {
  const std::uint64_t end = offset + size;
  auto at = fragments_.lower_bound(offset);
  if (at != fragments_.begin()) {
    const auto before = std::prev(at);
    const std::uint64_t before_end = before->first + before->second.size_bytes;
    if (before_end > offset) {
      Fragment rest = before->second;
      before->second.size_bytes = offset - before->first;
      if (before_end > end) {
        rest.source_offset_bytes += end - before->first;
        rest.size_bytes = before_end - end;
        fragments_.emplace_hint(at, end, std::move(rest));
        return;
      }
    }
  }
  while (at != fragments_.end() && at->first < end) {
    const std::uint64_t at_end = at->first + at->second.size_bytes;
    if (at_end > end) {
      Fragment rest = std::move(at->second);
      rest.source_offset_bytes += end - at->first;
      rest.size_bytes = at_end - end;
      fragments_.emplace_hint(fragments_.erase(at), end, std::move(rest));
      return;
    }
    at = fragments_.erase(at);
  }
}

void VersionMap::place(std::uint64_t offset, Fragment fragment) {
  if (fragment.size_bytes == 0) return;
  clear(offset, fragment.size_bytes);
  const auto next = fragments_.lower_bound(offset);
  if (next != fragments_.begin()) {
    const auto before = std::prev(next);
    Fragment& left = before->second;
    if (left.source == fragment.source && before->first + left.size_bytes == offset &&
        left.source_offset_bytes + left.size_bytes == fragment.source_offset_bytes) {
      left.size_bytes += fragment.size_bytes;
      return;
    }
  }
  fragments_.emplace_hint(next, offset, std::move(fragment));
}

void VersionMap::visit(
    std::uint64_t offset, std::uint64_t size,
    const std::function<void(std::uint64_t, std::uint64_t, const Fragment*, std::uint64_t)>& visitor) const {
  const std::uint64_t end = offset + size;
  auto at = fragments_.upper_bound(offset);
  if (at != fragments_.begin()) {
    const auto before = std::prev(at);
    if (before->first + before->second.size_bytes > offset) at = before;
  }
  while (offset < end) {
    if (at == fragments_.end() || at->first >= end) {
      visitor(offset, end - offset, nullptr, 0);
      return;
    }
    if (at->first > offset) {
      visitor(offset, at->first - offset, nullptr, 0);
      offset = at->first;
    }
    const std::uint64_t step = std::min(end, at->first + at->second.size_bytes) - offset;
    visitor(offset, step, &at->second, offset - at->first);
    offset += step;
    ++at;
  }
}

std::vector<std::shared_ptr<const Source>> VersionMap::sources() const {
  std::unordered_map<const Source*, std::shared_ptr<const Source>> unique;
  for (const auto& [offset, fragment] : fragments_) unique.emplace(fragment.source.get(), fragment.source);
  std::vector<std::shared_ptr<const Source>> all;
  all.reserve(unique.size());
  for (auto& [pointer, source] : unique) all.push_back(std::move(source));
  return all;
}

std::vector<std::byte> VersionMap::encode() const {
  std::unordered_map<const Source*, std::uint32_t> numbers;
  std::vector<const Source*> sources;
  for (const auto& [offset, fragment] : fragments_) {
    if (numbers.emplace(fragment.source.get(), static_cast<std::uint32_t>(sources.size())).second) {
      sources.push_back(fragment.source.get());
    }
  }
  Encoder encoder;
  encode_head(encoder, compacted_ ? kCompactMagic : kIndexMagic);
  for (const std::uint64_t value : {blob_id_, version_, size_bytes_, fence_below_, std::uint64_t{sources.size()}}) {
    encoder.number(value);
  }
  for (const Source* source : sources) {
    encode_reference(encoder, source->object());
    encoder.number(std::uint64_t{source->inlined().size()});
    encoder.raw(source->inlined());
  }
  encoder.number(std::uint64_t{identities_.size()});
  for (const std::uint64_t identity : identities_) encoder.number(identity);
  encoder.number(std::uint64_t{fragments_.size()});
  for (const auto& [offset, fragment] : fragments_) {
    encoder.number(offset);
    encoder.number(fragment.size_bytes);
    encoder.number(fragment.source_offset_bytes);
    encoder.number(numbers.at(fragment.source.get()));
  }
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
  std::vector<std::shared_ptr<const Source>> sources(decoder.count(44));
  for (auto& source : sources) {
    ObjectReference object = decode_reference(decoder);
    const ConstBytes inlined = decoder.raw(decoder.count(1));
    source = object.key.empty() ? std::make_shared<const Source>(std::vector<std::byte>(inlined.begin(), inlined.end()))
                                : std::make_shared<const Source>(std::move(object));
  }
  map.identities_.resize(decoder.count(8));
  for (std::uint64_t& identity : map.identities_) identity = decoder.number<std::uint64_t>();
  const std::uint64_t fragments = decoder.count(28);
  for (std::uint64_t i = 0; i < fragments; ++i) {
    const auto offset = decoder.number<std::uint64_t>();
    Fragment fragment;
    fragment.size_bytes = decoder.number<std::uint64_t>();
    fragment.source_offset_bytes = decoder.number<std::uint64_t>();
    const auto number = decoder.number<std::uint32_t>();
    if (number >= sources.size()) decoder.fail("refers to a source that it does not list");
    fragment.source = sources[number];
    map.fragments_.emplace_hint(map.fragments_.end(), offset, std::move(fragment));
  }
  decoder.end();
  return map;
}

}  // namespace penstock::store
