#include "checkpoint/object.hpp"

#include <algorithm>
#include <optional>

#include "penstock/error.hpp"

namespace penstock::checkpoint {

namespace {

std::uint64_t chunks_of(std::uint64_t data_bytes, std::uint64_t chunk_bytes) {
  return data_bytes / chunk_bytes + (data_bytes % chunk_bytes != 0);
}

void verify_size(const store::Backend& backend, const std::string& key, std::uint64_t expected_bytes) {
  const std::uint64_t found_bytes = backend.size_bytes(key);
  if (found_bytes == expected_bytes) return;
  throw Error(ErrorCode::corrupt, backend.url() + ": object " + key + " has " + std::to_string(found_bytes) +
                                      " bytes just after it was written; expected " + std::to_string(expected_bytes));
}

void verify(const store::Backend& backend, const std::string& key, std::uint64_t offset_bytes, ConstBytes data,
            const Digest& expected) {
  const Digest found = digest(data);
  if (found == expected) return;
  throw Error(ErrorCode::corrupt, backend.url() + ": object " + key + ", " + std::to_string(data.size()) +
                                      " bytes at offset " + std::to_string(offset_bytes) + ": checksum " +
                                      to_hex(found) + "; expected " + to_hex(expected));
}

[[noreturn]] void taken(const store::Backend& backend, const std::string& key) {
  throw Error(ErrorCode::exists,
              backend.url() + ": object " + key + " exists already; was it put there by another program?");
}

std::vector<Digest> read_digests(const store::Backend& backend, const std::string& key, const ObjectInfo& info,
                                 std::uint64_t chunk_bytes) {
  std::vector<Digest> digests(chunks_of(info.data_bytes, chunk_bytes));
  const Bytes table = std::as_writable_bytes(std::span(digests));
  if (info.size_bytes != info.data_bytes + table.size()) {
    throw Error(ErrorCode::corrupt, "object " + key + ": the manifest's sizes do not fit together");
  }
  backend.read(key, info.data_bytes, table);
  verify(backend, key, info.data_bytes, table, info.table);
  return digests;
}

}  // namespace

ObjectInfo write_object(store::Backend& backend, const std::string& key, ConstBytes data, std::uint64_t chunk_bytes) {
  ObjectInfo info;
  info.data_bytes = data.size();
  if (data.empty()) return info;
  std::vector<Digest> digests;
  digests.reserve(chunks_of(data.size(), chunk_bytes));
  for (std::uint64_t at = 0; at < data.size(); at += chunk_bytes) {
    digests.push_back(digest(data.subspan(at, std::min<std::uint64_t>(chunk_bytes, data.size() - at))));
  }
  const ConstBytes table = std::as_bytes(std::span(digests));
  info.table = digest(table);
  info.size_bytes = data.size() + table.size();
  const ConstBytes pieces[] = {data, table};
  if (!backend.put_if_absent(key, pieces)) taken(backend, key);
  verify_size(backend, key, info.size_bytes);
  return info;
}

ObjectReader::ObjectReader(Source source, const ObjectInfo& info, std::uint64_t chunk_bytes,
                           std::function<void(const std::string&)> warn)
    : source_(std::move(source)), info_(info), chunk_bytes_(chunk_bytes), warn_(std::move(warn)) {}

std::uint64_t ObjectReader::chunk_count() const { return chunks_of(info_.data_bytes, chunk_bytes_); }

void ObjectReader::first_intact(const std::function<void(const store::Backend&)>& read) {
  std::optional<Error> damage;
  std::optional<Error> absence;
  for (std::size_t tried = 0; tried < source_.tiers.size(); ++tried) {
    const std::size_t tier = (tier_ + tried) % source_.tiers.size();
    try {
      read(*source_.tiers[tier]);
      tier_ = tier;
      // A missing object in the burst buffer is normal, since it may have been removed; a damaged one is not.
      if (damage) warn_(damage->message() + "; read from " + source_.tiers[tier]->url() + " instead");
      return;
    } catch (const Error& error) {
      (error.code() == ErrorCode::not_found ? absence : damage) = error;
    }
  }
  if (damage) throw *damage;
  if (absence) throw *absence;
  throw Error(ErrorCode::internal, "object " + source_.key + " has no place to be read from");
}

ConstBytes ObjectReader::chunk(std::uint64_t index) {
  if (digests_.empty()) {
    first_intact([&](const store::Backend& tier) { digests_ = read_digests(tier, source_.key, info_, chunk_bytes_); });
    buffer_.resize(std::min(chunk_bytes_, info_.data_bytes));
  }
  const std::uint64_t offset_bytes = index * chunk_bytes_;
  const Bytes to = Bytes(buffer_).first(std::min(chunk_bytes_, info_.data_bytes - offset_bytes));
  first_intact([&](const store::Backend& tier) {
    tier.read(source_.key, offset_bytes, to);
    verify(tier, source_.key, offset_bytes, to, digests_[index]);
  });
  return to;
}

void copy_object(const store::Backend& from, store::Backend& to, const std::string& key, const ObjectInfo& info,
                 std::uint64_t chunk_bytes, Staging& memory) {
  if (info.size_bytes == 0) return;
  const std::vector<Digest> digests = read_digests(from, key, info, chunk_bytes);
  memory.reserve(info.data_bytes);
  const Bytes copy = memory.first(info.data_bytes);
  for (std::uint64_t at = 0; at < info.data_bytes; at += chunk_bytes) {
    const Bytes chunk = copy.subspan(at, std::min(chunk_bytes, info.data_bytes - at));
    from.read(key, at, chunk);
    verify(from, key, at, chunk, digests[at / chunk_bytes]);
  }
  const ConstBytes pieces[] = {copy, std::as_bytes(std::span(digests))};
  if (!to.put_if_absent(key, pieces)) taken(to, key);
  verify_size(to, key, info.size_bytes);
}

}  // namespace penstock::checkpoint
