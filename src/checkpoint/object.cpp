#include "checkpoint/object.hpp"

#include <algorithm>
#include <optional>

#include "penstock/error.hpp"

namespace penstock::checkpoint {

namespace {

void verify(const std::string& place, std::uint64_t offset_bytes, ConstBytes data, const Digest& expected) {
  const Digest found = digest(data);
  if (found == expected) return;
  throw Error(ErrorCode::corrupt, place + ", " + std::to_string(data.size()) + " bytes at offset " +
                                      std::to_string(offset_bytes) + ": checksum " + to_hex(found) + "; expected " +
                                      to_hex(expected));
}

/// Verifies the chunks in `data`, which begins at `offset_bytes` of the object.
void verify_chunks(const std::string& place, std::uint64_t offset_bytes, ConstBytes data, std::uint64_t chunk_bytes,
                   const std::vector<Digest>& digests) {
  for (std::uint64_t at = 0; at < data.size(); at += chunk_bytes) {
    const ConstBytes chunk = data.subspan(at, std::min<std::uint64_t>(chunk_bytes, data.size() - at));
    verify(place, offset_bytes + at, chunk, digests[(offset_bytes + at) / chunk_bytes]);
  }
}

/// What lies in memory needs no reading: each range is one piece.
class InMemory final : public ChunkStream {
 public:
  InMemory(ConstBytes data, const std::vector<ChunkRange>& ranges, std::uint64_t chunk_bytes)
      : data_(data), ranges_(ranges), chunk_bytes_(chunk_bytes) {}

  std::optional<Piece> next() override {
    if (next_ == ranges_.size()) return std::nullopt;
    const ChunkRange range = ranges_[next_++];
    const std::uint64_t begin = range.first * chunk_bytes_;
    return Piece{range.first,
                 data_.subspan(begin, std::min<std::uint64_t>(range.count * chunk_bytes_, data_.size() - begin))};
  }

 private:
  const ConstBytes data_;
  const std::vector<ChunkRange> ranges_;
  const std::uint64_t chunk_bytes_;
  std::size_t next_ = 0;
};

/// Hands pieces on at a limited rate.
class Limited final : public ChunkStream {
 public:
  Limited(std::unique_ptr<ChunkStream> pieces, RateLimit& limit) : pieces_(std::move(pieces)), limit_(limit) {}

  std::optional<Piece> next() override {
    auto piece = pieces_->next();
    if (piece) limit_.take(piece->data.size());
    return piece;
  }
  void release() override { pieces_->release(); }
  bool full() const override { return pieces_->full(); }

 private:
  const std::unique_ptr<ChunkStream> pieces_;
  RateLimit& limit_;
};

}  // namespace

std::uint64_t chunks_of(std::uint64_t data_bytes, std::uint64_t chunk_bytes) {
  return data_bytes / chunk_bytes + (data_bytes % chunk_bytes != 0);
}

std::vector<Digest> read_digests(const Tier& tier, const Version& version, int rank, const ObjectInfo& info,
                                 std::uint64_t chunk_bytes) {
  std::vector<Digest> digests(chunks_of(info.data_bytes, chunk_bytes));
  const Bytes table = std::as_writable_bytes(std::span(digests));
  if (info.size_bytes != info.data_bytes + table.size()) {
    throw Error(ErrorCode::corrupt, tier.name_of(version, rank) + ": the manifest's sizes do not fit together");
  }
  tier.read(version, rank, info, info.data_bytes, table);
  verify(tier.name_of(version, rank), info.data_bytes, table, info.table);
  return digests;
}

Content content_of(ConstBytes data, std::uint64_t chunk_bytes, std::uint64_t place_bytes,
                   const std::function<void()>& give_way) {
  Content content;
  content.give_way = give_way;
  content.chunk_bytes = chunk_bytes;
  content.info.data_bytes = data.size();
  if (data.empty()) return content;
  content.digests.reserve(chunks_of(data.size(), chunk_bytes));
  for (std::uint64_t at = 0; at < data.size(); at += chunk_bytes) {
    give_way();
    content.digests.push_back(digest(data.subspan(at, std::min<std::uint64_t>(chunk_bytes, data.size() - at))));
  }
  const ConstBytes table = std::as_bytes(std::span(content.digests));
  content.info.table = digest(table);
  content.info.size_bytes = data.size() + table.size();
  content.info.place_bytes = place_bytes;
  content.open = [data, chunk_bytes](const std::vector<ChunkRange>& ranges) {
    return std::make_unique<InMemory>(data, ranges, chunk_bytes);
  };
  return content;
}

Content content_in(const Tier& from, const Version& version, int rank, const ObjectInfo& info,
                   std::uint64_t chunk_bytes, DrainState& drain) {
  Content content;
  content.info = info;
  content.chunk_bytes = chunk_bytes;
  if (info.size_bytes == 0) return content;
  content.digests = read_digests(from, version, rank, info, chunk_bytes);
  content.open = [&from, version, rank, info, chunk_bytes, digests = content.digests,
                  &drain](const std::vector<ChunkRange>& ranges) -> std::unique_ptr<ChunkStream> {
    const StreamShape shape = StreamShape::of(info.data_bytes, chunk_bytes, drain.piece_bytes);
    drain.memory.reserve(shape.memory_bytes());
    const auto load = [&from, version, rank, info, chunk_bytes, digests, &drain](const ChunkRange& range, Bytes to) {
      drain.give_way();
      const std::uint64_t offset_bytes = range.first * chunk_bytes;
      from.read(version, rank, info, offset_bytes, to);
      verify_chunks(from.name_of(version, rank), offset_bytes, to, chunk_bytes, digests);
    };
    auto pieces = std::make_unique<ReadAhead>(load, ranges, chunk_bytes, info.data_bytes, shape,
                                              drain.memory.first(shape.memory_bytes()));
    return std::make_unique<Limited>(std::move(pieces), drain.limit);
  };
  return content;
}

ObjectReader::ObjectReader(Source source, const ObjectInfo& info, std::uint64_t chunk_bytes,
                           std::function<void(const std::string&)> warn)
    : source_(std::move(source)), info_(info), chunk_bytes_(chunk_bytes), warn_(std::move(warn)) {
  first_intact(
      [&](const Tier& tier) { digests_ = read_digests(tier, source_.version, source_.rank, info_, chunk_bytes_); });
}

std::uint64_t ObjectReader::size_bytes(const ChunkRange& range) const {
  const std::uint64_t begin = range.first * chunk_bytes_;
  return std::min(range.count * chunk_bytes_, info_.data_bytes - begin);
}

void ObjectReader::first_intact(const std::function<void(const Tier&)>& read) {
  std::optional<Error> damage;
  std::optional<Error> absence;
  const std::size_t preferred = tier_;
  for (std::size_t tried = 0; tried < source_.tiers.size(); ++tried) {
    const std::size_t tier = (preferred + tried) % source_.tiers.size();
    try {
      read(*source_.tiers[tier]);
      tier_ = tier;
      // A missing object in the burst buffer is normal, since it may have been removed; a damaged one is not.
      const std::lock_guard lock(warning_);
      if (damage) warn_(damage->message() + "; read from " + source_.tiers[tier]->title() + " instead");
      return;
    } catch (const Error& error) {
      (error.code() == ErrorCode::not_found ? absence : damage) = error;
    }
  }
  if (damage) throw *damage;
  if (absence) throw *absence;
  throw Error(ErrorCode::internal,
              "the object of rank " + std::to_string(source_.rank) + " has no place to be read from");
}

void ObjectReader::read(const ChunkRange& range, Bytes to) {
  const std::uint64_t begin = range.first * chunk_bytes_;
  const auto read_part = [&](const Tier& tier, std::uint64_t offset_bytes, Bytes part) {
    tier.read(source_.version, source_.rank, info_, offset_bytes, part);
    verify_chunks(tier.name_of(source_.version, source_.rank), offset_bytes, part, chunk_bytes_, digests_);
  };
  if (range.count > 1) {
    try {
      read_part(*source_.tiers[tier_], begin, to);
      return;
    } catch (const Error&) {
      // Below: the tier that is intact, chunk by chunk.
    }
  }
  for (std::uint64_t at = 0; at < to.size(); at += chunk_bytes_) {
    const Bytes chunk = to.subspan(at, std::min<std::uint64_t>(chunk_bytes_, to.size() - at));
    first_intact([&](const Tier& tier) { read_part(tier, begin + at, chunk); });
  }
}

}  // namespace penstock::checkpoint
