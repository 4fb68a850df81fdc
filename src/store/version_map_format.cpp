// Encodes and decodes maps: indexes, and maps of compacted versions. Format 2 stores differences in as few bytes as
// they need; format 1, which is still read, has numbers of fixed sizes and full names. A version of 64 KiB takes 40
// bytes in an index instead of 180. Large maps have format 3, which can be read in parts. Maps with compressed data
// have formats 4 and 5, which are 2 and 3 with more forms of sources.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "penstock/error.hpp"
#include "store/encoding.hpp"
#include "store/map_coders.hpp"
#include "store/map_parts.hpp"
#include "store/version_map.hpp"

namespace penstock::store {

namespace {

constexpr std::uint32_t kCompactMagic = 0x4d435350;  // "PSCM"
constexpr std::uint16_t kWholeFormat = 2;
constexpr std::uint16_t kCompressedWholeFormat = 4;
/// Maps with more fragments are stored in parts. Older versions of Penstock read the others.
constexpr std::size_t kMostWhole = 4096;
/// The size of a fragment in format 1: three numbers and the number of its source.
constexpr std::uint64_t kFragmentEntryBytes = 28;
static_assert(offsetof(Fragment, source) == 3 * sizeof(std::uint64_t));

std::vector<std::shared_ptr<const Source>> read_sources_of_format_1(Decoder& decoder) {
  std::vector<std::shared_ptr<const Source>> sources(decoder.count(44));
  for (auto& source : sources) {
    ObjectReference object = decode_reference(decoder);
    const ConstBytes inlined = decoder.raw(decoder.count(1));
    source = object.key.empty() ? std::make_shared<const Source>(std::vector<std::byte>(inlined.begin(), inlined.end()))
                                : std::make_shared<const Source>(std::move(object));
  }
  return sources;
}

std::vector<Fragment> read_fragments_of_format_1(Decoder& decoder, std::size_t sources) {
  std::vector<Fragment> fragments(decoder.count(kFragmentEntryBytes));
  const ConstBytes entries = decoder.raw(fragments.size() * kFragmentEntryBytes);
  const std::byte* from = entries.data();
  std::uint64_t end = 0;
  for (Fragment& fragment : fragments) {
    std::memcpy(static_cast<void*>(&fragment), from, 3 * sizeof(std::uint64_t));
    std::memcpy(&fragment.source, from + 3 * sizeof(std::uint64_t), sizeof(std::uint32_t));
    from += kFragmentEntryBytes;
    if (fragment.source >= sources) decoder.fail("refers to a source that it does not list");
    if (fragment.offset_bytes < end || fragment.size_bytes == 0 || fragment.end_bytes() < fragment.offset_bytes) {
      decoder.fail("has places that overlap, are empty, or out of order");
    }
    end = fragment.end_bytes();
  }
  return fragments;
}

}  // namespace

std::vector<std::byte> VersionMap::encode() const {
  return fragments_.count() > kMostWhole ? encode_parts() : encode_whole();
}

std::vector<std::byte> VersionMap::encode_parts() const {
  need_whole();
  return encode_fragments(compacted_ ? kCompactMagic : kIndexMagic, head());
}

std::vector<std::byte> VersionMap::encode_delta() const {
  if (!stored_) throw Error(ErrorCode::internal, "a delta needs a map to lie on; report this");
  // Only whole maps are asked who made a version.
  MapHead of_delta = head();
  of_delta.identities.clear();
  of_delta.base = stored_->head().version;
  of_delta.replayed = replayed_since(of_delta.base);
  return encode_fragments(kDeltaMagic, of_delta);
}

std::vector<std::byte> VersionMap::encode_fragments(std::uint32_t magic, const MapHead& head) const {
  std::vector<std::uint32_t> numbers(sources_.size());
  Sources used;
  for (const std::uint32_t number : used_sources()) {
    numbers[number] = static_cast<std::uint32_t>(used.size());
    used.push_back(sources_[number]);
  }
  return encode_in_parts(magic, head, used, fragments_, numbers);
}

std::vector<std::byte> VersionMap::encode_whole() const {
  need_whole();
  const std::vector<std::uint32_t> used = used_sources();
  std::vector<std::uint32_t> numbers(sources_.size());
  Encoder encoder;
  const bool compressed = std::any_of(used.begin(), used.end(), [&](std::uint32_t number) {
    return sources_[number]->is_object() && sources_[number]->object().compressed();
  });
  encode_head(encoder, compacted_ ? kCompactMagic : kIndexMagic, compressed ? kCompressedWholeFormat : kWholeFormat);
  for (const std::uint64_t value : {blob_id_, version_, size_bytes_, fence_below_}) encoder.number(value);
  std::string folder;
  for (const std::uint32_t number : used) {
    if (const auto key = DataKey::of(sources_[number]->object().key)) {
      folder = key->folder;
      break;
    }
  }
  encoder.text(folder);
  encoder.compact(used.size());
  KeyCoder keys;
  for (std::uint32_t i = 0; i < used.size(); ++i) {
    numbers[used[i]] = i;
    write_source(encoder, keys, folder, sources_[used[i]].get());
  }
  IdentityCoder::write(encoder, identities_);
  encoder.compact(fragments_.count());
  PlaceCoder places(used.size());
  fragments_.for_each([&](const Fragment& fragment) { places.write(encoder, fragment, numbers[fragment.source]); });
  return encoder.seal();
}

VersionMap VersionMap::decode(ConstBytes sealed, const std::string& name) {
  const ConstBytes content = unseal(sealed, name);
  const bool compacted = Decoder(content, name).number<std::uint32_t>() == kCompactMagic;
  Decoder decoder(content, name);
  const std::uint16_t format =
      decode_head(decoder, compacted ? kCompactMagic : kIndexMagic, name, kCompressedPartsFormat);
  if (is_in_parts(format)) {
    WholeMap whole = decode_parts(content, name);
    if (std::ranges::find(whole.sources, nullptr) != whole.sources.end()) {
      decoder.fail("has a source of unknown form");
    }
    VersionMap map(whole.head.blob_id, whole.head.size_bytes);
    map.version_ = whole.head.version;
    map.fence_below_ = whole.head.fence_below;
    map.identities_ = std::move(whole.head.identities);
    map.compacted_ = compacted;
    map.sources_ = std::move(whole.sources);
    map.sources_in_use_ = map.sources_.size();
    map.fragments_.place(whole.fragments);
    return map;
  }
  const auto blob_id = decoder.number<std::uint64_t>();
  const auto version = decoder.number<std::uint64_t>();
  VersionMap map(blob_id, decoder.number<std::uint64_t>());
  map.version_ = version;
  map.compacted_ = compacted;
  map.fence_below_ = decoder.number<std::uint64_t>();
  std::vector<Fragment> fragments;
  if (format == 1) {
    map.sources_ = read_sources_of_format_1(decoder);
    map.identities_.resize(decoder.count(8));
    for (std::uint64_t& identity : map.identities_) identity = decoder.number<std::uint64_t>();
    fragments = read_fragments_of_format_1(decoder, map.sources_.size());
  } else {
    const std::string folder = decoder.text();
    map.sources_.resize(decoder.compact_count(2));
    KeyCoder keys;
    for (auto& source : map.sources_) {
      source = read_source(decoder, keys, folder);
      if (!source) decoder.fail("has a source of unknown form");
    }
    map.identities_ = IdentityCoder::read(decoder);
    fragments.resize(decoder.compact_count(4));
    PlaceCoder places(map.sources_.size());
    for (Fragment& fragment : fragments) fragment = places.read(decoder);
  }
  decoder.end();
  map.sources_in_use_ = map.sources_.size();
  map.fragments_.place(fragments);
  return map;
}

}  // namespace penstock::store
