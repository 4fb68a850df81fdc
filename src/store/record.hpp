// The record of one version: what it changes against its predecessor, whatever that is. It is small, sealed, and never
// depends on the version number that it gets, so that a writer that loses the race for a number takes the next one.
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

struct Extent {
  std::uint64_t offset_bytes;
  std::uint64_t size_bytes;
  friend bool operator==(const Extent&, const Extent&) = default;
};

/// One process's share of a version. The bytes of the extents follow one another in the object, or in `inlined`.
struct Part {
  std::uint64_t base = 0;  ///< the newest version known before the first byte of the data was stored
  ObjectReference object;  ///< no key: the data is inlined
  std::vector<std::byte> inlined;
  std::vector<Extent> extents;
};

enum class RecordKind : std::uint16_t {
  write = 1,   ///< the parts, in order; where they overlap the later one wins
  append = 2,  ///< as write, with offsets relative to the end of the predecessor
  resize = 3,  ///< the blob has `number` bytes
  fence = 4,   ///< every later record with a base below `number` is void
};

struct Record {
  RecordKind kind = RecordKind::write;
  std::uint64_t blob_id = 0;
  std::int64_t time_ns = 0;
  std::string writer;
  std::uint64_t identity = 0;  ///< of this attempt to make a version, never used twice; not 0
  std::uint64_t base = 0;      ///< the least of all parts
  std::uint64_t number = 0;    ///< for write and append: of an index that the writer knew, or 0
  std::vector<Part> parts;
};

/// What repair puts in the place of a record that nobody can read: a fence that fences nothing. Penstock 0.1 reads it
/// as that, too.
inline bool stands_for_lost(const Record& record) { return record.kind == RecordKind::fence && record.number == 0; }

std::vector<std::byte> encode(const Record& record);
/// Throws corrupt that names `source`; unsupported for a newer format.
Record decode_record(ConstBytes sealed, const std::string& source);

std::vector<std::byte> encode(const Part& part);
Part decode_part(ConstBytes sealed, const std::string& source);

void encode_reference(Encoder& encoder, const ObjectReference& reference);
ObjectReference decode_reference(Decoder& decoder);
/// The start of every small object: a magic number and the format version.
inline constexpr std::uint16_t kFormat = 1;
void encode_head(Encoder& encoder, std::uint32_t magic, std::uint16_t format = kFormat);
/// Returns the format; throws unsupported for one beyond `newest`.
std::uint16_t decode_head(Decoder& decoder, std::uint32_t magic, const std::string& source,
                          std::uint16_t newest = kFormat);

}  // namespace penstock::store
