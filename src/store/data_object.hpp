// The object with the data of one write: the bytes of all regions, one after another, then a table with a checksum per
// chunk. So a write is one sequential stream.
//
// A chunk has at most kChunkBytes and does not span regions. Exception: small regions share a chunk until it holds
// kLeastChunkBytes. So the table is small compared to the data, and a read verifies little more than it asked for.
//
// With compression, each chunk is compressed alone, or stored as it is if that saves too little, and the table also has
// what it takes in the object. Checksums are of the data itself.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "penstock/types.hpp"
#include "store/backend.hpp"
#include "store/checksum.hpp"

namespace penstock::store {

inline constexpr std::uint64_t kChunkBytes = 64 << 10;
inline constexpr std::uint64_t kLeastChunkBytes = 4 << 10;

/// A record's reference to a data object. An empty key refers to none.
struct ObjectReference {
  std::string key;
  std::uint64_t data_bytes = 0;
  std::uint64_t chunk_count = 0;
  Checksum table_sum;
  std::uint64_t stored_bytes = 0;  ///< what the data takes in the object; 0: data_bytes, since no chunk is compressed

  bool compressed() const { return stored_bytes != 0; }
  /// Where the table begins.
  std::uint64_t tail_at() const { return compressed() ? stored_bytes : data_bytes; }
};

/// What a writer stores after its data, and what it puts into the record.
struct DataObject {
  ObjectReference reference;
  std::vector<std::byte> tail;     ///< follows the data: table and footer
  std::vector<ConstBytes> stored;  ///< in place of the data if some of it is compressed; refers to that, and to memory
  std::shared_ptr<std::byte> memory;
};

/// Size of the tail of an object.
std::uint64_t tail_bytes(const ObjectReference& object);

/// Divides the data into chunks and hashes them. Copies and stores nothing.
DataObject lay_out(std::string key, std::span<const ConstBytes> data);

/// Also compresses the chunks that it makes smaller, on several cores. Takes memory for the compressed data, and
/// address space for all of it.
DataObject lay_out_compressed(std::string key, std::span<const ConstBytes> data, int level);

/// A place that fragments of a version read from: a data object, or bytes inlined in a record. Thread-safe.
class Source {
 public:
  explicit Source(ObjectReference object) : object_(std::move(object)) {}
  explicit Source(std::vector<std::byte> inlined) : inlined_(std::move(inlined)) {}

  bool is_object() const { return !object_.key.empty(); }
  const ObjectReference& object() const { return object_; }
  ConstBytes inlined() const { return inlined_; }
  std::uint64_t size_bytes() const { return is_object() ? object_.data_bytes : inlined_.size(); }

  struct Chunk {
    std::uint64_t offset_bytes;
    std::uint64_t size_bytes;
    Checksum sum;  ///< of the data
    std::uint64_t stored_at;
    std::uint64_t stored_bytes;  ///< less than size_bytes: compressed
  };
  /// The chunks of a data object, sorted by offset, without gaps. The first call reads and verifies the table; the
  /// source keeps it.
  const std::vector<Chunk>& chunks(const Backend& backend) const;

 private:
  ObjectReference object_;
  std::vector<std::byte> inlined_;
  mutable std::mutex mutex_;
  mutable std::vector<Chunk> chunks_;
  mutable bool loaded_ = false;
};

}  // namespace penstock::store
