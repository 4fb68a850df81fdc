#include "store/rados_entry.hpp"

#include <cstdio>

#include "store/checksum.hpp"
#include "store/encoding.hpp"

namespace penstock::store {

namespace {

constexpr std::uint8_t kInline = 1;
constexpr std::uint8_t kStriped = 2;

std::size_t group_end(std::string_view key) {
  const std::size_t slash = key.find('/');
  return slash == std::string_view::npos ? slash : key.find('/', slash + 1);
}

}  // namespace

std::string encode(const RadosEntry& entry, std::span<const ConstBytes> pieces) {
  Encoder encoder;
  encoder.number(entry.stripe_bytes == 0 ? kInline : kStriped);
  encoder.text(entry.id);
  encoder.number(entry.size_bytes);
  encoder.number(entry.stripe_bytes);
  if (entry.stripe_bytes == 0) {
    for (const ConstBytes piece : pieces) encoder.raw(piece);
  }
  const std::vector<std::byte> bytes = encoder.take();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

RadosEntry decode_rados_entry(const std::string& value, const std::string& name) {
  Decoder decoder(std::as_bytes(std::span(value)), name);
  RadosEntry entry;
  const auto kind = decoder.number<std::uint8_t>();
  entry.id = decoder.text();
  entry.size_bytes = decoder.number<std::uint64_t>();
  entry.stripe_bytes = decoder.number<std::uint64_t>();
  if ((kind != kInline && kind != kStriped) || (kind == kStriped) != (entry.stripe_bytes > 0)) {
    decoder.fail("is not an entry of an object");
  }
  if (kind == kInline) {
    const ConstBytes data = decoder.raw(entry.size_bytes);
    entry.data.assign(data.begin(), data.end());
  }
  decoder.end();
  return entry;
}

std::string stripe_name(std::string_view key, std::string_view id, std::uint64_t number) {
  return std::string(key) + '@' + std::string(id) + '@' + std::to_string(number);
}

std::string grave(std::string_view id) { return '!' + std::string(id); }

std::string shard_object(std::uint64_t shard) {
  char name[16];
  std::snprintf(name, sizeof name, "index@%02u", static_cast<unsigned>(shard));
  return name;
}

std::string shard_of(std::string_view key) {
  const std::string_view group = key.substr(0, group_end(key));
  return shard_object(checksum(std::as_bytes(std::span(group))).low % kRadosShards);
}

}  // namespace penstock::store
