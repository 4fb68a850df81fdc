// The object that holds the data of one write: the bytes of all regions one after another, so that a write is one
// sequential stream, then a table with a checksum per chunk.
//
// Chunks have at most kChunkBytes and do not span regions, except that small regions share a chunk until it holds
// kLeastChunkBytes. So the table stays small against the data, and a read never verifies much more than it asked for.
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

/// How records refer to a data object.
struct ObjectReference {
  std::string key;
  std::uint64_t data_bytes = 0;
  std::uint64_t chunk_count = 0;
  Checksum table_sum;
};

struct DataObject {
  ObjectReference reference;
  std::vector<std::byte> tail;  ///< what follows the data: table and footer
};

/// Size of the tail of an object with this many chunks.
std::uint64_t tail_bytes(std::uint64_t chunk_count);

DataObject lay_out(std::string key, std::span<const ConstBytes> data);

/// Where fragments of a snapshot get their bytes: a data object, or bytes that lie in a record. Thread-safe.
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
  /// Chunks by offset, without gaps. Read and verified once, then kept.
  const std::vector<Chunk>& chunks(const Backend& backend) const;

 private:
  ObjectReference object_;
  std::vector<std::byte> inlined_;
  mutable std::mutex mutex_;
  mutable std::vector<Chunk> chunks_;
  mutable bool loaded_ = false;
};

}  // namespace penstock::store
