#include "store/record.hpp"

#include <algorithm>

#include "penstock/error.hpp"
#include "store/encoding.hpp"

namespace penstock::store {

namespace {

constexpr std::uint32_t kRecordMagic = 0x52565350;  // "PSVR"
constexpr std::uint32_t kPartsMagic = 0x54505350;   // "PSPT"

/// Of records and parts with compressed data. Those without have kFormat, so older versions of Penstock read them.
constexpr std::uint16_t kCompressed = 2;

void encode_part(Encoder& encoder, const Part& part, std::uint16_t format) {
  encoder.number(part.base);
  encode_reference(encoder, part.object);
  if (format == kCompressed) encoder.number(part.object.stored_bytes);
  encoder.number(std::uint64_t{part.inlined.size()});
  encoder.raw(part.inlined);
  encoder.number(std::uint64_t{part.extents.size()});
  encoder.raw(std::as_bytes(std::span(part.extents)));
}

Part decode_part(Decoder& decoder, std::uint16_t format) {
  Part part;
  part.base = decoder.number<std::uint64_t>();
  part.object = decode_reference(decoder);
  if (format == kCompressed) part.object.stored_bytes = decoder.number<std::uint64_t>();
  const ConstBytes inlined = decoder.raw(decoder.count(1));
  part.inlined.assign(inlined.begin(), inlined.end());
  const std::uint64_t extents = decoder.count(sizeof(Extent));
  part.extents.resize(extents);
  const ConstBytes raw = decoder.raw(extents * sizeof(Extent));
  if (extents > 0) std::memcpy(part.extents.data(), raw.data(), raw.size());
  const std::uint64_t data_bytes = part.object.key.empty() ? part.inlined.size() : part.object.data_bytes;
  std::uint64_t total_bytes = 0;
  for (const Extent& extent : part.extents) {
    if (extent.size_bytes > data_bytes - total_bytes) decoder.fail("refers to more data than there is");
    if (extent.offset_bytes > UINT64_MAX - extent.size_bytes) decoder.fail("has a region beyond 2^64");
    total_bytes += extent.size_bytes;
  }
  return part;
}

std::uint16_t format_of(std::span<const Part> parts) {
  const bool compressed =
      std::any_of(parts.begin(), parts.end(), [](const Part& part) { return part.object.compressed(); });
  return compressed ? kCompressed : kFormat;
}

void encode_parts(Encoder& encoder, std::span<const Part> parts, std::uint16_t format) {
  encoder.number(std::uint64_t{parts.size()});
  for (const Part& part : parts) encode_part(encoder, part, format);
}

std::vector<Part> decode_parts(Decoder& decoder, std::uint16_t format) {
  const std::uint64_t count = decoder.count(60);
  std::vector<Part> parts;
  parts.reserve(count);
  for (std::uint64_t i = 0; i < count; ++i) parts.push_back(decode_part(decoder, format));
  return parts;
}

}  // namespace

void encode_head(Encoder& encoder, std::uint32_t magic, std::uint16_t format) {
  encoder.number(magic);
  encoder.number(format);
}

std::uint16_t decode_head(Decoder& decoder, std::uint32_t magic, const std::string& source, std::uint16_t newest) {
  if (decoder.number<std::uint32_t>() != magic) decoder.fail("is of another kind: its magic number is wrong");
  const auto format = decoder.number<std::uint16_t>();
  if (format > newest) {
    throw Error(ErrorCode::unsupported, source + " is of format " + std::to_string(format) +
                                            ", this Penstock reads formats up to " + std::to_string(newest) +
                                            "; use a newer Penstock");
  }
  return format;
}

void encode_reference(Encoder& encoder, const ObjectReference& reference) {
  encoder.text(reference.key);
  encoder.number(reference.data_bytes);
  encoder.number(reference.chunk_count);
  encoder.sum(reference.table_sum);
}

ObjectReference decode_reference(Decoder& decoder) {
  ObjectReference reference;
  reference.key = decoder.text();
  reference.data_bytes = decoder.number<std::uint64_t>();
  reference.chunk_count = decoder.number<std::uint64_t>();
  reference.table_sum = decoder.sum();
  return reference;
}

std::vector<std::byte> encode(const Record& record) {
  Encoder encoder;
  const std::uint16_t format = format_of(record.parts);
  encode_head(encoder, kRecordMagic, format);
  encoder.number(static_cast<std::uint16_t>(record.kind));
  encoder.number(record.blob_id);
  encoder.number(record.time_ns);
  encoder.text(record.writer);
  encoder.number(record.identity);
  encoder.number(record.base);
  encoder.number(record.number);
  encode_parts(encoder, record.parts, format);
  return encoder.seal();
}

Record decode_record(ConstBytes sealed, const std::string& source) {
  Decoder decoder(unseal(sealed, source), source);
  const std::uint16_t format = decode_head(decoder, kRecordMagic, source, kCompressed);
  Record record;
  const auto kind = decoder.number<std::uint16_t>();
  if (kind < 1 || kind > 4) decoder.fail("is of unknown kind " + std::to_string(kind));
  record.kind = static_cast<RecordKind>(kind);
  record.blob_id = decoder.number<std::uint64_t>();
  record.time_ns = decoder.number<std::int64_t>();
  record.writer = decoder.text();
  record.identity = decoder.number<std::uint64_t>();
  record.base = decoder.number<std::uint64_t>();
  record.number = decoder.number<std::uint64_t>();
  record.parts = decode_parts(decoder, format);
  decoder.end();
  return record;
}

std::vector<std::byte> encode(std::span<const Part> parts) {
  Encoder encoder;
  const std::uint16_t format = format_of(parts);
  encode_head(encoder, kPartsMagic, format);
  encode_parts(encoder, parts, format);
  return encoder.seal();
}

std::vector<Part> decode_staged(ConstBytes sealed, const std::string& source) {
  Decoder decoder(unseal(sealed, source), source);
  std::vector<Part> parts = decode_parts(decoder, decode_head(decoder, kPartsMagic, source, kCompressed));
  decoder.end();
  return parts;
}

}  // namespace penstock::store
