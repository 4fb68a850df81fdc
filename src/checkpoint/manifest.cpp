#include "checkpoint/manifest.hpp"

#include <locale>
#include <sstream>

#include "base/json.hpp"
#include "penstock/error.hpp"

namespace penstock::checkpoint {

namespace {

// Format 1, of Penstock 0.1, knew no jobs: it has "attempt" in place of "generation" and "sequence".
// Format 3 lists each layout once, and leaves out the offsets, which follow from the layouts. It is for many arrays on
// many ranks; what has at most kListedOffsets keeps format 2.
constexpr std::uint64_t kFormat = 2;
constexpr std::uint64_t kLargeFormat = 3;
constexpr std::size_t kListedOffsets = 65536;
constexpr std::string_view kChecksumField = ",\n\"checksum\": \"";
constexpr std::string_view kEnd = "\"}\n";
constexpr std::size_t kDigestDigits = 2 * sizeof(Digest);

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorCode::corrupt, "manifest: " + message); }

template <class Item, class Write>
std::string list(const std::vector<Item>& items, const char* separator, Write write) {
  std::string text = "[";
  for (std::size_t i = 0; i < items.size(); ++i) text += (i == 0 ? "" : separator) + write(items[i], i);
  return text + "]";
}

/// As text, which reads the same in any locale and gives the same number again.
std::string to_text(double value) {
  std::ostringstream text;
  text.imbue(std::locale::classic());
  text.precision(17);
  text << value;
  return text.str();
}

double from_text(const std::string& text) {
  std::istringstream in(text);
  in.imbue(std::locale::classic());
  double value = 0;
  if (!(in >> value) || !in.eof()) refuse("a metric is '" + text + "'; expected a number");
  return value;
}

[[noreturn]] void refuse_place(const ArraySpec& array, std::size_t rank) {
  refuse("array '" + array.name + "' lies outside the object of rank " + std::to_string(rank));
}

std::uint64_t aligned(std::uint64_t offset_bytes) {
  return (offset_bytes + kArrayAlignment - 1) / kArrayAlignment * kArrayAlignment;
}

/// The offsets that follow from the layouts, by array and rank. Goes through the arrays once: there may be many, on
/// many ranks. Calls `misfit(array, rank)` for one that ends behind data_bytes(rank).
template <class DataBytes, class Misfit>
std::vector<std::vector<std::uint64_t>> offsets_of(const std::vector<ArraySpec>& arrays, std::size_t ranks,
                                                   const DataBytes& data_bytes, const Misfit& misfit) {
  std::vector<std::vector<std::uint64_t>> offsets(arrays.size());
  std::vector<std::uint64_t> end(ranks);
  for (std::size_t a = 0; a < arrays.size(); ++a) {
    offsets[a].resize(ranks);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const std::uint64_t size_bytes = local_bytes(arrays[a], static_cast<int>(rank));
      if (size_bytes == 0) continue;
      const std::uint64_t begin = aligned(end[rank]);
      const std::uint64_t most = data_bytes(rank);
      if (begin > most || size_bytes > most - begin) misfit(arrays[a], rank);
      offsets[a][rank] = begin;
      end[rank] = begin + size_bytes;
    }
  }
  return offsets;
}

/// Whether the offsets of a manifest follow from its layouts.
bool has_derived_offsets(const Manifest& manifest) {
  const auto any = [](std::size_t) { return ~std::uint64_t{0}; };
  return manifest.offsets_bytes ==
         offsets_of(manifest.arrays, manifest.objects.size(), any, [](const ArraySpec&, std::size_t) {});
}

/// Of a format that lists no offsets.
void derive_offsets(Manifest& manifest) {
  const auto data_bytes = [&](std::size_t rank) { return manifest.objects[rank].data_bytes; };
  manifest.offsets_bytes = offsets_of(manifest.arrays, manifest.objects.size(), data_bytes, refuse_place);
}

void check_ranks(const Manifest& manifest) {
  for (const ArraySpec& array : manifest.arrays) {
    if (array.layout.ranks() > manifest.ranks()) refuse("array '" + array.name + "' lies on more ranks than saved it");
  }
}

void check_offsets(const Manifest& manifest) {
  for (std::size_t a = 0; a < manifest.arrays.size(); ++a) {
    const ArraySpec& array = manifest.arrays[a];
    const std::vector<std::uint64_t>& offsets = manifest.offsets_bytes[a];
    if (offsets.size() != manifest.objects.size()) {
      refuse("array '" + array.name + "' has " + std::to_string(offsets.size()) + " offsets for " +
             std::to_string(manifest.objects.size()) + " ranks");
    }
    for (std::size_t rank = 0; rank < offsets.size(); ++rank) {
      const std::uint64_t size_bytes = local_bytes(array, static_cast<int>(rank));
      const std::uint64_t data_bytes = manifest.objects[rank].data_bytes;
      const std::uint64_t offset_bytes = offsets[rank];
      if (offset_bytes % kArrayAlignment != 0 || offset_bytes > data_bytes || size_bytes > data_bytes - offset_bytes) {
        refuse_place(array, rank);
      }
    }
  }
}

}  // namespace

std::uint64_t local_bytes(const ArraySpec& array, int rank) {
  return static_cast<std::uint64_t>(array.layout.local_size_elems(rank)) * size_bytes(array.dtype);
}

std::vector<std::uint64_t> object_offsets(const std::vector<ArraySpec>& arrays, int rank) {
  std::vector<std::uint64_t> offsets;
  std::uint64_t end = 0;
  for (const ArraySpec& array : arrays) {
    offsets.push_back(aligned(end));
    const std::uint64_t size_bytes = local_bytes(array, rank);
    // An empty array must not extend the object's data to its offset.
    if (size_bytes == 0) {
      offsets.back() = 0;
    } else {
      end = offsets.back() + size_bytes;
    }
  }
  offsets.push_back(end);
  return offsets;
}

std::string Manifest::serialize() const {
  const bool large = arrays.size() * objects.size() > kListedOffsets && has_derived_offsets(*this);
  std::string text =
      "{\"penstock\": \"checkpoint\", \"format\": " + std::to_string(large ? kLargeFormat : kFormat) +
      ", \"step\": " + std::to_string(version.step) + ", \"generation\": " + std::to_string(version.generation) +
      ", \"sequence\": " + std::to_string(version.sequence) + ", \"ranks\": " + std::to_string(objects.size()) +
      ", \"chunk_bytes\": " + std::to_string(chunk_bytes);
  std::vector<std::string> layouts;
  std::map<std::string, std::size_t> known;
  const std::string of_arrays = list(arrays, ",\n", [&](const ArraySpec& array, std::size_t i) {
    const std::string layout = array.layout.serialize();
    std::string head =
        "{\"name\": " + json::quoted_exactly(array.name) + ", \"dtype\": " + json::quoted(name(array.dtype));
    if (large) {
      const auto [at, is_new] = known.emplace(layout, layouts.size());
      if (is_new) layouts.push_back(layout);
      return head + ", \"layout\": " + std::to_string(at->second) + "}";
    }
    return head + ", \"layout\": " + json::quoted(layout) + ", \"offsets_bytes\": " +
           list(offsets_bytes[i], ", ", [](std::uint64_t offset, std::size_t) { return std::to_string(offset); }) + "}";
  });
  if (large) {
    text += ",\n\"layouts\": " +
            list(layouts, ",\n", [](const std::string& layout, std::size_t) { return json::quoted(layout); });
  }
  text += ",\n\"arrays\": " + of_arrays;
  text += ",\n\"objects\": " + list(objects, ",\n", [](const ObjectInfo& object, std::size_t) {
            return "{\"size_bytes\": " + std::to_string(object.size_bytes) +
                   ", \"data_bytes\": " + std::to_string(object.data_bytes) +
                   ", \"table\": " + json::quoted(to_hex(object.table)) +
                   (object.place_bytes == 0 ? "" : ", \"place_bytes\": " + std::to_string(object.place_bytes)) + "}";
          });
  if (saved_at_us != 0) text += ",\n\"saved_at_us\": " + std::to_string(saved_at_us);
  if (!metrics.empty()) {
    std::string members;
    for (const auto& [metric, value] : metrics) {
      members += (members.empty() ? "" : ", ") + std::string("[") + json::quoted_exactly(metric) + ", " +
                 json::quoted(to_text(value)) + "]";
    }
    text += ",\n\"metrics\": [" + members + "]";
  }
  text += ",\n\"metadata\": " + json::quoted_exactly(metadata);
  const std::string checksum = to_hex(digest(text));
  return text + std::string(kChecksumField) + checksum + std::string(kEnd);
}

Manifest Manifest::parse(std::string_view text) {
  const std::size_t tail_bytes = kChecksumField.size() + kDigestDigits + kEnd.size();
  if (text.size() < tail_bytes || !text.ends_with(kEnd) ||
      text.substr(text.size() - tail_bytes, kChecksumField.size()) != kChecksumField) {
    refuse("it does not end in a checksum: truncated, or no manifest");
  }
  const Digest expected = digest_from_hex(text.substr(text.size() - kEnd.size() - kDigestDigits, kDigestDigits));
  const Digest found = digest(text.substr(0, text.size() - tail_bytes));
  if (found != expected) refuse("checksum " + to_hex(found) + "; expected " + to_hex(expected));

  const json::Value parsed = json::Value::parse(text);
  if (parsed.at("penstock").text() != "checkpoint") refuse("it does not describe a checkpoint");
  const std::uint64_t format = parsed.at("format").number();
  if (format == 0 || format > kLargeFormat) {
    throw Error(ErrorCode::unsupported, "manifest: format " + std::to_string(format) +
                                            ", this Penstock reads formats 1 to " + std::to_string(kLargeFormat) +
                                            "; use a newer Penstock");
  }
  Manifest manifest;
  manifest.version.step = parsed.at("step").number();
  if (format > 1) manifest.version.generation = parsed.at("generation").number();
  manifest.version.sequence = parsed.at(format > 1 ? "sequence" : "attempt").number();
  manifest.chunk_bytes = parsed.at("chunk_bytes").number();
  manifest.metadata = parsed.at("metadata").text();
  if (parsed.has("saved_at_us")) manifest.saved_at_us = parsed.at("saved_at_us").number();
  if (parsed.has("metrics")) {
    for (const json::Value& metric : parsed.at("metrics").items()) {
      if (metric.items().size() != 2) refuse("a metric is not a name and a number");
      manifest.metrics[metric.items()[0].text()] = from_text(metric.items()[1].text());
    }
  }
  for (const json::Value& object : parsed.at("objects").items()) {
    manifest.objects.push_back({object.at("size_bytes").number(), object.at("data_bytes").number(),
                                digest_from_hex(object.at("table").text()),
                                object.has("place_bytes") ? object.at("place_bytes").number() : 0});
  }
  if (parsed.at("ranks").number() != manifest.objects.size())
    refuse("it has " + std::to_string(manifest.objects.size()) + " objects for " +
           std::to_string(parsed.at("ranks").number()) + " ranks");
  std::vector<Layout> layouts;
  const auto layout_of = [&](const json::Value& value) {
    if (format < kLargeFormat) return Layout::parse(value.text());
    if (value.number() >= layouts.size()) refuse("layout " + std::to_string(value.number()) + " is not listed");
    return layouts[value.number()];
  };
  try {
    if (format >= kLargeFormat) {
      for (const json::Value& layout : parsed.at("layouts").items()) layouts.push_back(Layout::parse(layout.text()));
    }
  } catch (const Error& error) {
    refuse("layout " + std::to_string(layouts.size()) + ": " + error.message());
  }
  for (const json::Value& array : parsed.at("arrays").items()) {
    try {
      manifest.arrays.push_back(
          {array.at("name").text(), dtype_from_name(array.at("dtype").text()), layout_of(array.at("layout"))});
    } catch (const Error& error) {
      refuse("array " + std::to_string(manifest.arrays.size()) + ": " + error.message());
    }
    if (format >= kLargeFormat) continue;
    std::vector<std::uint64_t>& offsets = manifest.offsets_bytes.emplace_back();
    for (const json::Value& offset : array.at("offsets_bytes").items()) offsets.push_back(offset.number());
  }
  if (manifest.chunk_bytes == 0 || manifest.chunk_bytes % kArrayAlignment != 0) {
    refuse("chunk_bytes is " + std::to_string(manifest.chunk_bytes) + "; expected a multiple of 64");
  }
  check_ranks(manifest);
  if (format >= kLargeFormat) {
    derive_offsets(manifest);
  } else {
    check_offsets(manifest);
  }
  return manifest;
}

}  // namespace penstock::checkpoint
