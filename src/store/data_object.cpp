#include "store/data_object.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "penstock/error.hpp"
#include "store/compression.hpp"
#include "store/encoding.hpp"
#include "store/in_parallel.hpp"

namespace penstock::store {

namespace {

constexpr std::uint32_t kDataMagic = 0x4f445350;  // "PSDO"
constexpr std::uint16_t kPlainFormat = 1;
constexpr std::uint16_t kCompressedFormat = 2;
constexpr std::uint64_t kChunkEntryBytes = 4 + 16;
constexpr std::uint64_t kCompressedEntryBytes = 4 + 4 + 16;
constexpr std::uint64_t kFooterBytes = 4 + 2 + 2 + 8 + 8 + 16;
/// A chunk that would shrink by less than one part in so many stays as it is: reading it is faster.
constexpr std::uint64_t kLeastSaving = 16;
constexpr std::size_t kChunksOfAThread = 16;
constexpr std::uint64_t kLargeTable = 1 << 20;

/// Divides a stream of regions into chunks.
template <class Chunk>
class Chunker {
 public:
  /// `chunk` gets the pieces of each chunk, and their size.
  explicit Chunker(Chunk chunk) : chunk_(std::move(chunk)) {}

  void add(ConstBytes region) {
    while (!region.empty()) {
      const std::size_t step = std::min<std::size_t>(region.size(), kChunkBytes - size_bytes_);
      pieces_.push_back(region.first(step));
      size_bytes_ += step;
      region = region.subspan(step);
      if (size_bytes_ == kChunkBytes) close();
    }
    if (size_bytes_ >= kLeastChunkBytes) close();
  }

  void close() {
    if (size_bytes_ == 0) return;
    chunk_(pieces_, size_bytes_);
    pieces_.clear();
    size_bytes_ = 0;
  }

 private:
  Chunk chunk_;
  std::vector<ConstBytes> pieces_;
  std::uint64_t size_bytes_ = 0;
};

/// Appends the footer to the table, and completes the reference.
void finish(DataObject& object, Encoder& tail, std::uint16_t format) {
  tail.number(kDataMagic);
  tail.number(format);
  tail.number(std::uint16_t{0});
  tail.number(object.reference.chunk_count);
  tail.number(object.reference.data_bytes);
  object.reference.table_sum = checksum(ConstBytes(tail.bytes()));
  object.tail = tail.seal();
}

}  // namespace

std::uint64_t tail_bytes(const ObjectReference& object) {
  return object.chunk_count * (object.compressed() ? kCompressedEntryBytes : kChunkEntryBytes) + kFooterBytes;
}

DataObject lay_out(std::string key, std::span<const ConstBytes> data) {
  DataObject object;
  object.reference.key = std::move(key);
  Encoder tail;
  Chunker chunker([&](const std::vector<ConstBytes>& pieces, std::uint64_t size_bytes) {
    tail.number(static_cast<std::uint32_t>(size_bytes));
    tail.sum(checksum(pieces));
    object.reference.data_bytes += size_bytes;
    ++object.reference.chunk_count;
  });
  for (const ConstBytes region : data) chunker.add(region);
  chunker.close();
  finish(object, tail, kPlainFormat);
  return object;
}

DataObject lay_out_compressed(std::string key, std::span<const ConstBytes> data, int level) {
  struct Laid {
    std::vector<ConstBytes> pieces;
    std::uint64_t offset_bytes = 0;
    std::uint64_t size_bytes = 0;
    std::uint64_t stored_bytes = 0;
    Checksum sum;
  };
  std::vector<Laid> chunks;
  std::uint64_t data_bytes = 0;
  Chunker chunker([&](const std::vector<ConstBytes>& pieces, std::uint64_t size_bytes) {
    chunks.push_back({pieces, data_bytes, size_bytes, size_bytes, {}});
    data_bytes += size_bytes;
  });
  for (const ConstBytes region : data) chunker.add(region);
  chunker.close();

  DataObject object;
  // Each chunk has its own place, so what is never written takes no memory.
  auto* memory = static_cast<std::byte*>(
      ::mmap(nullptr, data_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (memory == MAP_FAILED) {
    throw Error(ErrorCode::no_space, "no memory to compress " + std::to_string(data_bytes) + " bytes");
  }
  object.memory = {memory, [data_bytes](std::byte* mapped) { ::munmap(mapped, data_bytes); }};
  const std::size_t threads = std::min<std::size_t>(usable_cores(), chunks.size() / kChunksOfAThread + 1);
  std::vector<std::unique_ptr<Compressor>> compressors(threads);
  std::vector<std::vector<std::byte>> gathered(threads);
  in_parallel(chunks.size(), threads, [&](std::size_t i, std::size_t thread) {
    Laid& chunk = chunks[i];
    if (!compressors[thread]) compressors[thread] = std::make_unique<Compressor>(level);
    ConstBytes whole = chunk.pieces.front();
    if (chunk.pieces.size() > 1) {
      gathered[thread].clear();
      for (const ConstBytes piece : chunk.pieces) {
        gathered[thread].insert(gathered[thread].end(), piece.begin(), piece.end());
      }
      whole = gathered[thread];
    }
    chunk.sum = checksum(whole);
    const Bytes to(memory + chunk.offset_bytes, chunk.size_bytes - chunk.size_bytes / kLeastSaving);
    if (const std::uint64_t stored_bytes = compressors[thread]->compress(whole, to)) chunk.stored_bytes = stored_bytes;
  });
  const bool smaller = std::any_of(chunks.begin(), chunks.end(),
                                   [](const Laid& chunk) { return chunk.stored_bytes < chunk.size_bytes; });
  if (!smaller) return lay_out(std::move(key), data);
  object.reference.key = std::move(key);
  object.reference.data_bytes = data_bytes;
  object.reference.chunk_count = chunks.size();
  Encoder tail;
  for (const Laid& chunk : chunks) {
    tail.number(static_cast<std::uint32_t>(chunk.size_bytes));
    tail.number(static_cast<std::uint32_t>(chunk.stored_bytes));
    tail.sum(chunk.sum);
    object.reference.stored_bytes += chunk.stored_bytes;
    if (chunk.stored_bytes == chunk.size_bytes) {
      object.stored.insert(object.stored.end(), chunk.pieces.begin(), chunk.pieces.end());
    } else {
      object.stored.emplace_back(memory + chunk.offset_bytes, chunk.stored_bytes);
    }
  }
  finish(object, tail, kCompressedFormat);
  return object;
}

const std::vector<Source::Chunk>& Source::chunks(const Backend& backend) const {
  const std::lock_guard lock(mutex_);
  if (loaded_) return chunks_;
  if (object_.chunk_count > object_.tail_at()) {
    throw Error(ErrorCode::corrupt, backend.url() + ": a record says that object " + object_.key + " has " +
                                        std::to_string(object_.chunk_count) + " chunks in " +
                                        std::to_string(object_.tail_at()) + " bytes");
  }
  // Before memory is taken for it: the record may have been made to lie.
  const std::uint64_t table_bytes = tail_bytes(object_);
  if (const std::uint64_t found_bytes = table_bytes > kLargeTable ? backend.size_bytes(object_.key) : ~std::uint64_t{0};
      found_bytes < table_bytes) {
    throw Error(ErrorCode::corrupt, backend.url() + ": object " + object_.key + " has " + std::to_string(found_bytes) +
                                        " bytes; its checksum table alone should have " + std::to_string(table_bytes));
  }
  std::vector<std::byte> tail(table_bytes);
  backend.read(object_.key, object_.tail_at(), tail);
  const std::string name = backend.url() + ": object " + object_.key + ", checksum table at offset " +
                           std::to_string(object_.tail_at()) + ",";
  const ConstBytes content = unseal(tail, name);
  if (const Checksum found = checksum(content); found != object_.table_sum) {
    throw Error(ErrorCode::corrupt, name + " is not the one of this write: checksum " + to_string(found) +
                                        "; expected " + to_string(object_.table_sum));
  }
  Decoder decoder(content, name);
  std::vector<Chunk> chunks;
  chunks.reserve(object_.chunk_count);
  std::uint64_t offset_bytes = 0;
  std::uint64_t stored_at = 0;
  for (std::uint64_t i = 0; i < object_.chunk_count; ++i) {
    const std::uint64_t size = decoder.number<std::uint32_t>();
    const std::uint64_t stored = object_.compressed() ? decoder.number<std::uint32_t>() : size;
    if (object_.compressed() && (stored == 0 || stored > size || size > kChunkBytes)) {
      decoder.fail("has a chunk of " + std::to_string(size) + " bytes that takes " + std::to_string(stored));
    }
    chunks.push_back({offset_bytes, size, decoder.sum(), stored_at, stored});
    offset_bytes += size;
    stored_at += stored;
  }
  if (decoder.number<std::uint32_t>() != kDataMagic) decoder.fail("has no footer");
  if (decoder.number<std::uint16_t>() > kCompressedFormat) decoder.fail("is of a newer format; use a newer Penstock");
  if (offset_bytes != object_.data_bytes || stored_at != object_.tail_at()) decoder.fail("does not cover the data");
  chunks_ = std::move(chunks);
  loaded_ = true;
  return chunks_;
}

}  // namespace penstock::store
