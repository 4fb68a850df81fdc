#include "store/data_object.hpp"

#include <algorithm>

#include "penstock/error.hpp"
#include "store/encoding.hpp"

namespace penstock::store {

namespace {

constexpr std::uint32_t kMagic = 0x4f445350;  // "PSDO"
constexpr std::uint16_t kFormat = 1;
constexpr std::uint64_t kEntryBytes = 4 + 16;
constexpr std::uint64_t kFooterBytes = 4 + 2 + 2 + 8 + 8 + 16;

/// Closes chunks as data comes along.
class Chunker {
 public:
  explicit Chunker(Encoder& table) : table_(table) {}

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
    table_.number(static_cast<std::uint32_t>(size_bytes_));
    table_.sum(checksum(pieces_));
    pieces_.clear();
    size_bytes_ = 0;
    ++count_;
  }

  std::uint64_t count() const { return count_; }

 private:
  Encoder& table_;
  std::vector<ConstBytes> pieces_;
  std::uint64_t size_bytes_ = 0;
  std::uint64_t count_ = 0;
};

}  // namespace

std::uint64_t tail_bytes(std::uint64_t chunk_count) { return chunk_count * kEntryBytes + kFooterBytes; }

DataObject lay_out(std::string key, std::span<const ConstBytes> data) {
  DataObject object;
  Encoder tail;
  Chunker chunker(tail);
  for (const ConstBytes region : data) {
    chunker.add(region);
    object.reference.data_bytes += region.size();
  }
  chunker.close();
  tail.number(kMagic);
  tail.number(kFormat);
  tail.number(std::uint16_t{0});
  tail.number(chunker.count());
  tail.number(object.reference.data_bytes);
  object.reference.key = std::move(key);
  object.reference.chunk_count = chunker.count();
  object.reference.table_sum = checksum(ConstBytes(tail.bytes()));
  object.tail = tail.seal();
  return object;
}

const std::vector<Source::Chunk>& Source::chunks(const Backend& backend) const {
  const std::lock_guard lock(mutex_);
  if (loaded_) return chunks_;
  if (object_.chunk_count > object_.data_bytes) {
    throw Error(ErrorCode::corrupt, backend.url() + ": a record says that object " + object_.key + " has " +
                                        std::to_string(object_.chunk_count) + " chunks in " +
                                        std::to_string(object_.data_bytes) + " bytes");
  }
  std::vector<std::byte> tail(tail_bytes(object_.chunk_count));
  backend.read(object_.key, object_.data_bytes, tail);
  const std::string name = backend.url() + ": object " + object_.key + ", checksum table at offset " +
                           std::to_string(object_.data_bytes) + ",";
  const ConstBytes content = unseal(tail, name);
  if (const Checksum found = checksum(content); found != object_.table_sum) {
    throw Error(ErrorCode::corrupt, name + " is not the one of this write: checksum " + to_string(found) +
                                        ", expected " + to_string(object_.table_sum));
  }
  Decoder decoder(content, name);
  std::vector<Chunk> chunks;
  chunks.reserve(object_.chunk_count);
  std::uint64_t offset_bytes = 0;
  for (std::uint64_t i = 0; i < object_.chunk_count; ++i) {
    const std::uint64_t size = decoder.number<std::uint32_t>();
    chunks.push_back({offset_bytes, size, decoder.sum()});
    offset_bytes += size;
  }
  if (decoder.number<std::uint32_t>() != kMagic) decoder.fail("has no footer");
  if (decoder.number<std::uint16_t>() > kFormat) decoder.fail("is of a newer format; use a newer Penstock");
  if (offset_bytes != object_.data_bytes) decoder.fail("does not cover the data");
  chunks_ = std::move(chunks);
  loaded_ = true;
  return chunks_;
}

void ChunkReader::verify(const Source& source, const Source::Chunk& chunk, ConstBytes found) const {
  const Checksum sum = checksum(found);
  if (sum == chunk.sum) return;
  throw Error(ErrorCode::corrupt, backend_.url() + ": object " + source.object().key + " is damaged at offset " +
                                      std::to_string(chunk.offset_bytes) + " (" + std::to_string(chunk.size_bytes) +
                                      " bytes): expected checksum " + to_string(chunk.sum) + ", found " +
                                      to_string(sum));
}

ConstBytes ChunkReader::whole_chunk(const Source& source, const Source::Chunk& chunk) {
  if (buffered_source_ != &source || buffered_offset_ != chunk.offset_bytes) {
    buffered_source_ = nullptr;
    buffer_.resize(chunk.size_bytes);
    backend_.read(source.object().key, chunk.offset_bytes, buffer_);
    verify(source, chunk, buffer_);
    buffered_source_ = &source;
    buffered_offset_ = chunk.offset_bytes;
  }
  return buffer_;
}

void ChunkReader::read(const Source& source, std::uint64_t offset_bytes, Bytes to) {
  if (to.empty()) return;
  if (offset_bytes > source.size_bytes() || to.size() > source.size_bytes() - offset_bytes) {
    throw Error(ErrorCode::corrupt, backend_.url() + ": a record refers beyond the end of object " +
                                        (source.is_object() ? source.object().key : std::string("(inlined)")));
  }
  if (!source.is_object()) {
    std::copy_n(source.inlined().data() + offset_bytes, to.size(), to.data());
    return;
  }
  const std::vector<Source::Chunk>& chunks = source.chunks(backend_);
  auto chunk = std::upper_bound(chunks.begin(), chunks.end(), offset_bytes,
                                [](std::uint64_t offset, const Source::Chunk& c) { return offset < c.offset_bytes; }) -
               1;
  while (!to.empty()) {
    const std::uint64_t skip = offset_bytes - chunk->offset_bytes;
    if (skip > 0 || to.size() < chunk->size_bytes) {
      const std::size_t step = std::min<std::size_t>(to.size(), chunk->size_bytes - skip);
      std::copy_n(whole_chunk(source, *chunk).data() + skip, step, to.data());
      to = to.subspan(step);
      offset_bytes += step;
      ++chunk;
      continue;
    }
    // Whole chunks go straight to where they are wanted, as many as a cache holds until they are verified.
    constexpr std::size_t kRun = 16;
    std::size_t run_bytes = 0;
    auto end = chunk;
    while (end != chunks.end() && end - chunk < static_cast<std::ptrdiff_t>(kRun) &&
           run_bytes + end->size_bytes <= to.size()) {
      run_bytes += (end++)->size_bytes;
    }
    backend_.read(source.object().key, offset_bytes, to.first(run_bytes));
    for (; chunk != end; ++chunk) {
      verify(source, *chunk, to.first(chunk->size_bytes));
      to = to.subspan(chunk->size_bytes);
      offset_bytes += chunk->size_bytes;
    }
  }
}

}  // namespace penstock::store
