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

Content content_of(ConstBytes data, std::uint64_t chunk_bytes, std::uint64_t place_bytes) {
  Content content;
  content.chunk_bytes = chunk_bytes;
  content.info.data_bytes = data.size();
  if (data.empty()) return content;
  content.digests.reserve(chunks_of(data.size(), chunk_bytes));
  for (std::uint64_t at = 0; at < data.size(); at += chunk_bytes) {
    content.digests.push_back(digest(data.subspan(at, std::min<std::uint64_t>(chunk_bytes, data.size() - at))));
  }
  const ConstBytes table = std::as_bytes(std::span(content.digests));
  content.info.table = digest(table);
  content.info.size_bytes = data.size() + table.size();
  content.info.place_bytes = place_bytes;
  content.load = [data, chunk_bytes](std::uint64_t first, std::uint64_t count) {
    const std::uint64_t begin = first * chunk_bytes;
    return data.subspan(begin, std::min<std::uint64_t>(count * chunk_bytes, data.size() - begin));
  };
  return content;
}

Content content_in(const Tier& from, const Version& version, int rank, const ObjectInfo& info,
                   std::uint64_t chunk_bytes, Staging& memory) {
  Content content;
  content.info = info;
  content.chunk_bytes = chunk_bytes;
  if (info.size_bytes == 0) return content;
  content.digests = read_digests(from, version, rank, info, chunk_bytes);
  memory.reserve(info.data_bytes);
  content.load = [&from, version, rank, info, chunk_bytes, digests = content.digests,
                  to = memory.first(info.data_bytes)](std::uint64_t first, std::uint64_t count) -> ConstBytes {
    const std::uint64_t begin = first * chunk_bytes;
    const std::uint64_t end = std::min(begin + count * chunk_bytes, info.data_bytes);
    for (std::uint64_t at = begin; at < end; at += chunk_bytes) {
      const Bytes chunk = to.subspan(at, std::min(chunk_bytes, end - at));
      from.read(version, rank, info, at, chunk);
      verify(from.name_of(version, rank), at, chunk, digests[at / chunk_bytes]);
    }
    return to.subspan(begin, end - begin);
  };
  return content;
}

ObjectReader::ObjectReader(Source source, const ObjectInfo& info, std::uint64_t chunk_bytes,
                           std::function<void(const std::string&)> warn)
    : source_(std::move(source)), info_(info), chunk_bytes_(chunk_bytes), warn_(std::move(warn)) {}

std::uint64_t ObjectReader::chunk_count() const { return chunks_of(info_.data_bytes, chunk_bytes_); }

void ObjectReader::first_intact(const std::function<void(const Tier&)>& read) {
  std::optional<Error> damage;
  std::optional<Error> absence;
  for (std::size_t tried = 0; tried < source_.tiers.size(); ++tried) {
    const std::size_t tier = (tier_ + tried) % source_.tiers.size();
    try {
      read(*source_.tiers[tier]);
      tier_ = tier;
      // A missing object in the burst buffer is normal, since it may have been removed; a damaged one is not.
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

ConstBytes ObjectReader::chunk(std::uint64_t index) {
  if (digests_.empty()) {
    first_intact(
        [&](const Tier& tier) { digests_ = read_digests(tier, source_.version, source_.rank, info_, chunk_bytes_); });
    buffer_.resize(std::min(chunk_bytes_, info_.data_bytes));
  }
  const std::uint64_t offset_bytes = index * chunk_bytes_;
  const Bytes to = Bytes(buffer_).first(std::min(chunk_bytes_, info_.data_bytes - offset_bytes));
  first_intact([&](const Tier& tier) {
    tier.read(source_.version, source_.rank, info_, offset_bytes, to);
    verify(tier.name_of(source_.version, source_.rank), offset_bytes, to, digests_[index]);
  });
  return to;
}

}  // namespace penstock::checkpoint
