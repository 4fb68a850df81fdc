// Encodes what maps consist of as differences, in as few bytes as they need: keys of data objects, identities of
// attempts, places. Each of these coders has a state, so both sides begin with a new one.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "store/data_object.hpp"
#include "store/encoding.hpp"
#include "store/fragments.hpp"

namespace penstock::store {

inline constexpr std::uint64_t kMostIdentities = 1 << 20;

/// Forms of a source.
inline constexpr std::uint8_t kInlinedSource = 0, kNamedSource = 1, kNumberedSource = 2, kZeros = 3;
/// Added to kNamedSource or kNumberedSource, in formats that know compressed data.
inline constexpr std::uint8_t kCompressedSource = 4;

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

/// Whether a map with these sources, of which some may be null, needs a format that knows compressed data.
inline bool any_compressed(const std::vector<std::shared_ptr<const Source>>& sources) {
  return std::any_of(sources.begin(), sources.end(),
                     [](const auto& source) { return source && source->is_object() && source->object().compressed(); });
}

/// Null stands for zeros.
inline void write_source(Encoder& encoder, KeyCoder& keys, const std::string& folder, const Source* of) {
  if (of == nullptr) {
    encoder.number(kZeros);
    return;
  }
  const Source& source = *of;
  if (!source.is_object()) {
    encoder.number(kInlinedSource);
    encoder.compact(source.inlined().size());
    encoder.raw(source.inlined());
    return;
  }
  const ObjectReference& object = source.object();
  const auto key = DataKey::of(object.key);
  const std::uint8_t compressed = object.compressed() ? kCompressedSource : 0;
  if (key && key->folder == folder) {
    encoder.number(static_cast<std::uint8_t>(kNumberedSource + compressed));
    keys.write(encoder, *key);
  } else {
    encoder.number(static_cast<std::uint8_t>(kNamedSource + compressed));
    encoder.text(object.key);
  }
  if (object.compressed()) encoder.compact(object.stored_bytes);
  encoder.compact(object.data_bytes);
  encoder.compact(object.chunk_count);
  encoder.sum(object.table_sum);
}

inline std::shared_ptr<const Source> read_source(Decoder& decoder, KeyCoder& keys, const std::string& folder) {
  const auto form = decoder.number<std::uint8_t>();
  if (form == kInlinedSource) {
    const ConstBytes inlined = decoder.raw(decoder.compact());
    return std::make_shared<const Source>(std::vector<std::byte>(inlined.begin(), inlined.end()));
  }
  if (form == kZeros) return nullptr;
  const auto plain = static_cast<std::uint8_t>(form & ~kCompressedSource);
  if (plain != kNamedSource && plain != kNumberedSource) decoder.fail("has a source of unknown form");
  ObjectReference object;
  object.key = plain == kNumberedSource ? keys.read(decoder, folder).text() : decoder.text();
  if (form != plain) object.stored_bytes = decoder.compact();
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

}  // namespace penstock::store
