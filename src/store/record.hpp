// The record of one version: what the version changes in its predecessor. A record is small and sealed. It does not
// depend on its version number or its predecessor, so a writer that loses the race for a number appends the same bytes
// under the next one.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "penstock/types.hpp"
#include "store/data_object.hpp"

namespace penstock::store {

class Decoder;
class Encoder;

/// The bytes [offset_bytes, offset_bytes + size_bytes) of a blob.
struct Extent {
  std::uint64_t offset_bytes;
  std::uint64_t size_bytes;
  friend bool operator==(const Extent&, const Extent&) = default;
};

/// What one process wrote of a version. The bytes of the extents follow one another in the object, or in `inlined`.
struct Part {
  std::uint64_t base = 0;  ///< the newest version that the writer knew before it stored the first byte
  ObjectReference object;  ///< no key: the data is inlined
  std::vector<std::byte> inlined;
  std::vector<Extent> extents;
};

enum class RecordKind : std::uint16_t {
  write = 1,   ///< places the parts in order; if they overlap, the later one wins
  append = 2,  ///< as write, with offsets relative to the end of the predecessor
  resize = 3,  ///< sets the size to `number` bytes
  fence = 4,   ///< makes every later record with a base below `number` void
};

struct Record {
  RecordKind kind = RecordKind::write;
  std::uint64_t blob_id = 0;
  std::int64_t time_ns = 0;
  std::string writer;
  std::uint64_t identity = 0;  ///< unique for each attempt to make a version; not 0
  std::uint64_t base = 0;      ///< the least base of the parts
  std::uint64_t number = 0;    ///< see RecordKind; for write and append: an index that the writer knew, or 0
  std::vector<Part> parts;
};

/// What records cost whoever replays them.
struct Replayed {
  std::uint64_t cost = 0;         ///< the unit is the placing of one region
  std::uint64_t index_bytes = 0;  ///< how large an index instead of the records may be, so that metadata stays small
};

/// Whether repair has put this record in place of a damaged one: a fence that fences nothing. Penstock 0.1 reads it as
/// such a fence, too.
inline bool stands_for_lost(const Record& record) { return record.kind == RecordKind::fence && record.number == 0; }

std::vector<std::byte> encode(const Record& record);
/// Throws Error(corrupt) that names `source`; Error(unsupported) for a newer format.
Record decode_record(ConstBytes sealed, const std::string& source);

/// The parts of one staged write.
std::vector<std::byte> encode(std::span<const Part> parts);
std::vector<Part> decode_staged(ConstBytes sealed, const std::string& source);

void encode_reference(Encoder& encoder, const ObjectReference& reference);
ObjectReference decode_reference(Decoder& decoder);
inline constexpr std::uint16_t kFormat = 1;
/// The start of every small object: a magic number and the format version.
void encode_head(Encoder& encoder, std::uint32_t magic, std::uint16_t format = kFormat);
/// Returns the format. Throws Error(corrupt) for another magic number, Error(unsupported) for a format above `newest`.
std::uint16_t decode_head(Decoder& decoder, std::uint32_t magic, const std::string& source,
                          std::uint16_t newest = kFormat);

}  // namespace penstock::store
