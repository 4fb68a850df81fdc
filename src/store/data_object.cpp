#include "store/data_object.hpp"

#include <algorithm>

#include "penstock/error.hpp"
#include "store/encoding.hpp"

namespace penstock::store {

namespace {

constexpr std::uint32_t kDataMagic = 0x4f445350;  // "PSDO"
constexpr std::uint16_t kDataFormat = 1;
constexpr std::uint64_t kChunkEntryBytes = 4 + 16;
constexpr std::uint64_t kFooterBytes = 4 + 2 + 2 + 8 + 8 + 16;

/// Divides a stream of regions into chunks, and writes their sizes and checksums to the table.
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

std::uint64_t tail_bytes(std::uint64_t chunk_count) { return chunk_count * kChunkEntryBytes + kFooterBytes; }

DataObject lay_out(std::string key, std::span<const ConstBytes> data) {
  DataObject object;
  Encoder tail;
  Chunker chunker(tail);
  for (const ConstBytes region : data) {
    chunker.add(region);
    object.reference.data_bytes += region.size();
  }
  chunker.close();
  tail.number(kDataMagic);
  tail.number(kDataFormat);
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
                                        "; expected " + to_string(object_.table_sum));
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
  if (decoder.number<std::uint32_t>() != kDataMagic) decoder.fail("has no footer");
  if (decoder.number<std::uint16_t>() > kDataFormat) decoder.fail("is of a newer format; use a newer Penstock");
  if (offset_bytes != object_.data_bytes) decoder.fail("does not cover the data");
  chunks_ = std::move(chunks);
  loaded_ = true;
  return chunks_;
}

}  // namespace penstock::store
