// Encodes and decodes maps: indexes, and maps of compacted versions. Format 2 stores differences in as few bytes as
// they need; format 1, which is still read, has numbers of fixed sizes and full names. A version of 64 KiB takes 40
// bytes in an index instead of 180.
#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>

#include "penstock/error.hpp"
#include "store/encoding.hpp"
#include "store/version_map.hpp"

namespace penstock::store {

namespace {

constexpr std::uint32_t kIndexMagic = 0x58495350;    // "PSIX"
constexpr std::uint32_t kCompactMagic = 0x4d435350;  // "PSCM"
constexpr std::uint16_t kMapFormat = 2;
constexpr std::uint64_t kMostIdentities = 1 << 20;
/// The size of a fragment in format 1: three numbers and the number of its source.
constexpr std::uint64_t kFragmentEntryBytes = 28;
static_assert(offsetof(Fragment, source) == 3 * sizeof(std::uint64_t));

/// Forms of a source.
constexpr std::uint8_t kInlined = 0, kNamed = 1, kNumbered = 2;

/// The parts of a data object's key, "<folder>/data/<base>-<time>-<writer>-<n>".
struct DataKey {
  std::string folder;
  std::uint64_t base = 0;
  std::uint64_t time_ns = 0;
  std::uint64_t writer = 0;
  std::uint64_t n = 0;

  std::string text() const {
    char name[80];
    std::snprintf(name, sizeof name, "/%020llu-%020llu-%016llx-%llu", static_cast<unsigned long long>(base),
                  static_cast<unsigned long long>(time_ns), static_cast<unsigned long long>(writer),
                  static_cast<unsigned long long>(n));
    return folder + name;
  }

  /// Nothing if the key is not what text() gives for its parts, for example with 1 instead of 01.
  static std::optional<DataKey> of(const std::string& key) {
    const std::size_t slash = key.find_last_of('/');
    if (slash == std::string::npos) return std::nullopt;
    DataKey found;
    found.folder = key.substr(0, slash);
    const char* at = key.data() + slash;
    const char* const end = key.data() + key.size();
    const std::pair<std::uint64_t*, int> numbers[] = {
        {&found.base, 10}, {&found.time_ns, 10}, {&found.writer, 16}, {&found.n, 10}};
    for (const auto& [number, radix] : numbers) {
      if (at == end) return std::nullopt;
      const auto parsed = std::from_chars(at + 1, end, *number, radix);
      if (parsed.ec != std::errc()) return std::nullopt;
      at = parsed.ptr;
    }
    if (found.text() != key) return std::nullopt;
    return found;
  }
};

/// Encodes each key of a data object as its difference from earlier keys. The result is short if the keys
/// have one folder and few writers, and are nearly in the order of time.
class KeyCoder {
 public:
  void write(Encoder& encoder, const DataKey& key) {
    const auto known = std::find(writers_.begin(), writers_.end(), key.writer);
    encoder.compact_signed(static_cast<std::int64_t>(key.base - before_.base));
    encoder.compact_signed(static_cast<std::int64_t>(key.time_ns - before_.time_ns));
    encoder.compact(static_cast<std::uint64_t>(known - writers_.begin()));
    if (known == writers_.end()) encoder.number(key.writer);
    learn(key, known == writers_.end());
    encoder.compact(key.n);
  }

  DataKey read(Decoder& decoder, const std::string& folder) {
    DataKey key;
    key.folder = folder;
    key.base = before_.base + static_cast<std::uint64_t>(decoder.compact_signed());
    key.time_ns = before_.time_ns + static_cast<std::uint64_t>(decoder.compact_signed());
    const std::uint64_t writer = decoder.compact();
    if (writer > writers_.size()) decoder.fail("refers to a writer that it does not list");
    const bool is_new = writer == writers_.size();
    key.writer = is_new ? decoder.number<std::uint64_t>() : writers_[writer];
    learn(key, is_new);
    key.n = decoder.compact();
    return key;
  }

 private:
  void learn(const DataKey& key, bool is_new) {
    before_.base = key.base;
    before_.time_ns = key.time_ns;
    if (is_new && writers_.size() < kWriters) writers_.push_back(key.writer);
  }

  static constexpr std::size_t kWriters = 64;
  DataKey before_;
  std::vector<std::uint64_t> writers_;
};

/// Encodes identities of attempts as differences. Those of one writer follow one another at small distances.
class IdentityCoder {
 public:
  static void write(Encoder& encoder, const std::deque<std::uint64_t>& identities) {
    IdentityCoder coder;
    encoder.compact(identities.size());
    std::uint64_t repeated = 0;
    std::uint64_t code_before = kRaw;
    const auto flush = [&] {
      if (repeated == 1) encoder.compact(code_before);
      if (repeated > 1) {
        encoder.compact(kRepeated);
        encoder.compact(repeated);
      }
      repeated = 0;
    };
    for (const std::uint64_t identity : identities) {
      const std::uint64_t code = coder.code_of(identity);
      if (code == code_before && code != kRaw) {
        ++repeated;
        continue;
      }
      flush();
      encoder.compact(code);
      if (code == kRaw) encoder.number(identity);
      code_before = code;
    }
    flush();
  }

  static std::deque<std::uint64_t> read(Decoder& decoder) {
    IdentityCoder coder;
    const std::uint64_t count = decoder.compact();
    if (count > kMostIdentities) decoder.fail("counts " + std::to_string(count) + " identities");
    std::deque<std::uint64_t> identities;
    std::uint64_t code_before = kRaw;
    while (identities.size() < count) {
      std::uint64_t code = decoder.compact();
      std::uint64_t times = 1;
      if (code == kRepeated) {
        code = code_before;
        times = decoder.compact();
        if (code == kRaw || times > count - identities.size())
          decoder.fail("has a run of identities that cannot be decoded");
      }
      for (; times > 0; --times) {
        identities.push_back(code == kRaw ? coder.learn(decoder.number<std::uint64_t>()) : coder.identity_of(code));
      }
      code_before = code;
    }
    return identities;
  }

 private:
  static constexpr std::uint64_t kVoid = 0, kRaw = 1, kRepeated = 2, kFirstStep = 3;
  static constexpr std::size_t kWriters = 64;
  static constexpr std::uint64_t kMostDistance = 1 << 12;

  std::uint64_t code_of(std::uint64_t identity) {
    if (identity == 0) return kVoid;
    for (std::size_t i = 0; i < kWriters; ++i) {
      const std::uint64_t distance = identity - newest_[i];
      if (distance > 0 && distance < kMostDistance) {
        newest_[i] = identity;
        return kFirstStep + distance * kWriters + i;
      }
    }
    learn(identity);
    return kRaw;
  }

  std::uint64_t identity_of(std::uint64_t code) {
    if (code == kVoid) return 0;
    const std::uint64_t step = code - kFirstStep;
    return newest_[step % kWriters] += step / kWriters;
  }

  std::uint64_t learn(std::uint64_t identity) {
    newest_[next_++ % kWriters] = identity;
    return identity;
  }

  std::array<std::uint64_t, kWriters> newest_{};
  std::size_t next_ = 0;
};

void write_source(Encoder& encoder, KeyCoder& keys, const std::string& folder, const Source& source) {
  if (!source.is_object()) {
    encoder.number(kInlined);
    encoder.compact(source.inlined().size());
    encoder.raw(source.inlined());
    return;
  }
  const ObjectReference& object = source.object();
  const auto key = DataKey::of(object.key);
  if (key && key->folder == folder) {
    encoder.number(kNumbered);
    keys.write(encoder, *key);
  } else {
    encoder.number(kNamed);
    encoder.text(object.key);
  }
  encoder.compact(object.data_bytes);
  encoder.compact(object.chunk_count);
  encoder.sum(object.table_sum);
}

std::shared_ptr<const Source> read_source(Decoder& decoder, KeyCoder& keys, const std::string& folder) {
  const auto form = decoder.number<std::uint8_t>();
  if (form == kInlined) {
    const ConstBytes inlined = decoder.raw(decoder.compact());
    return std::make_shared<const Source>(std::vector<std::byte>(inlined.begin(), inlined.end()));
  }
  if (form > kNumbered) decoder.fail("has a source of unknown form");
  ObjectReference object;
  object.key = form == kNumbered ? keys.read(decoder, folder).text() : decoder.text();
  object.data_bytes = decoder.compact();
  object.chunk_count = decoder.compact();
  object.table_sum = decoder.sum();
  return std::make_shared<const Source>(std::move(object));
}

/// Encodes a fragment by its distance from the fragment before, and from the last one of the same source.
class PlaceCoder {
 public:
  explicit PlaceCoder(std::size_t sources) : ends_(sources) {}

  void write(Encoder& encoder, const Fragment& fragment, std::uint32_t source) {
    encoder.compact(fragment.offset_bytes - end_);
    encoder.compact(fragment.size_bytes);
    encoder.compact_signed(std::int64_t{source} - std::int64_t{source_});
    encoder.compact_signed(static_cast<std::int64_t>(fragment.source_offset_bytes - ends_[source]));
    learn(fragment, source);
  }

  Fragment read(Decoder& decoder) {
    Fragment fragment;
    fragment.offset_bytes = end_ + decoder.compact();
    fragment.size_bytes = decoder.compact();
    const std::uint64_t source = source_ + static_cast<std::uint64_t>(decoder.compact_signed());
    if (source >= ends_.size()) decoder.fail("refers to a source that it does not list");
    fragment.source = static_cast<std::uint32_t>(source);
    fragment.source_offset_bytes = ends_[source] + static_cast<std::uint64_t>(decoder.compact_signed());
    if (fragment.offset_bytes < end_ || fragment.size_bytes == 0 || fragment.end_bytes() < fragment.offset_bytes) {
      decoder.fail("has places that overlap, are empty, or out of order");
    }
    learn(fragment, fragment.source);
    return fragment;
  }

 private:
  void learn(const Fragment& fragment, std::uint32_t source) {
    end_ = fragment.end_bytes();
    source_ = source;
    ends_[source] = fragment.source_offset_bytes + fragment.size_bytes;
  }

  std::uint64_t end_ = 0;
  std::uint32_t source_ = 0;
  std::vector<std::uint64_t> ends_;
};

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
  const std::vector<std::uint32_t> used = used_sources();
  std::vector<std::uint32_t> numbers(sources_.size());
  Encoder encoder;
  encode_head(encoder, compacted_ ? kCompactMagic : kIndexMagic, kMapFormat);
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
    write_source(encoder, keys, folder, *sources_[used[i]]);
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
  const std::uint16_t format = decode_head(decoder, compacted ? kCompactMagic : kIndexMagic, name, kMapFormat);
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
    for (auto& source : map.sources_) source = read_source(decoder, keys, folder);
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
