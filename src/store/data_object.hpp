// The object with the data of one write: the bytes of all regions, one after another, then a table with a checksum per
// chunk. So a write is one sequential stream.
//
// A chunk has at most kChunkBytes and does not span regions. Exception: small regions share a chunk until it holds
// kLeastChunkBytes. So the table is small compared to the data, and a read verifies little more than it asked for.
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
};

/// What a writer stores after its data, and what it puts into the record.
struct DataObject {
  ObjectReference reference;
  std::vector<std::byte> tail;  ///< follows the data: table and footer
};

/// Size of the tail of an object with this many chunks.
std::uint64_t tail_bytes(std::uint64_t chunk_count);

/// Divides the data into chunks and hashes them. Copies and stores nothing.
DataObject lay_out(std::string key, std::span<const ConstBytes> data);

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
    Checksum sum;
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
