// The backend that keeps objects in a bucket of S3, or of a server with the same interface; docs/design/store-s3.md. An
// object of the store is an object of the bucket. Exclusive create is a PUT with `If-None-Match: *`.
#include <algorithm>

#include "penstock/error.hpp"
#include "store/backend.hpp"
#include "store/in_parallel.hpp"
#include "store/s3_bucket.hpp"
#include "store/store_format.hpp"

namespace penstock::store {

namespace {

class S3Backend final : public Backend {
 public:
  S3Backend(const S3Place& place, bool create) : bucket_(place) {
    const std::string name(kFormatObject);
    auto format = bucket_.contents(name);
    if (!format && !create) {
      throw Error(ErrorCode::not_found,
                  place.url + ": the bucket holds no such store; create it first or correct the URL");
    }
    if (!format) {
      const std::string text = store_format();
      const ConstBytes piece = std::as_bytes(std::span(text));
      bucket_.put(name, stream_of(std::span(&piece, 1)), true);
      format = bucket_.contents(name);
    }
    const std::vector<std::byte> found = format.value_or(std::vector<std::byte>());
    check_store_format({reinterpret_cast<const char*>(found.data()), found.size()}, place.url + ", object " + name,
                       place.url);
  }

  bool put_if_absent(std::string_view key, std::span<const ConstBytes> pieces) override {
    return put_stream_if_absent(key, stream_of(pieces));
  }

  bool put_stream_if_absent(std::string_view key, const Stream& stream) override {
    check_key(key);
    // Only saves the bytes if the object exists. The condition decides.
    if (stream.size_bytes > bucket_.place().part_bytes && exists(key)) return false;
    return stream.size_bytes > bucket_.place().put_bytes ? bucket_.put_in_parts_if_absent(std::string(key), stream)
                                                         : bucket_.put(std::string(key), stream, true);
  }

  /// Large objects go in parts, several at a time. No other process uses their names, so a look is enough.
  void put_unannounced(std::string_view key, std::span<const ConstBytes> pieces, bool read_soon) override {
    check_key(key);
    const Stream stream = stream_of(pieces);
    if (stream.size_bytes <= bucket_.place().part_bytes || exists(key)) {
      return Backend::put_unannounced(key, pieces, read_soon);
    }
    bucket_.put_in_parts(std::string(key), pieces);
  }

  std::uint64_t last_number(std::string_view prefix, std::uint64_t known) const override {
    check_key(prefix);
    const S3Bucket::Listing next =
        bucket_.list(std::string(prefix) + '/', false, numbered_key(prefix, known), /*one_page=*/true);
    for (const std::string& key : next.keys) {
      if (key != numbered_key(prefix, known + 1)) return known;
      ++known;
    }
    return next.is_complete ? known : Backend::last_number(prefix, known);
  }

  void read(std::string_view key, std::uint64_t offset_bytes, Bytes to) const override {
    check_key(key);
    if (!to.empty()) return bucket_.read(std::string(key), offset_bytes, to);
    if (offset_bytes > size_bytes(key)) {
      throw Error(ErrorCode::corrupt, url() + ": object " + std::string(key) + " has fewer than " +
                                          std::to_string(offset_bytes) + " bytes");
    }
  }

  /// Reads all in one request and copies: a request takes as long as copying megabytes.
  void read_scattered(std::string_view key, std::uint64_t offset_bytes, std::span<const Bytes> targets) const override {
    read_together(*this, key, offset_bytes, targets);
  }

  ReadShape read_shape() const override { return {bucket_.place().part_bytes, bucket_.place().in_flight, 0}; }

  std::uint64_t size_bytes(std::string_view key) const override {
    check_key(key);
    if (const auto size = bucket_.size_bytes(std::string(key))) return *size;
    throw not_found(key);
  }

  std::vector<std::byte> contents(std::string_view key) const override {
    check_key(key);
    if (auto found = bucket_.contents(std::string(key))) return std::move(*found);
    throw not_found(key);
  }

  std::vector<std::vector<std::byte>> contents_of(std::span<const std::string> keys, std::uint64_t) const override {
    std::vector<std::vector<std::byte>> all(keys.size());
    in_parallel(keys.size(), bucket_.place().in_flight, [&](std::size_t i, std::size_t) {
      check_key(keys[i]);
      if (auto found = bucket_.contents(keys[i])) all[i] = std::move(*found);
    });
    return all;
  }

  bool exists(std::string_view key) const override {
    check_key(key);
    return bucket_.size_bytes(std::string(key)).has_value();
  }

  std::vector<std::string> list(std::string_view prefix) const override {
    check_key(prefix);
    std::vector<std::string> keys = bucket_.list(std::string(prefix) + '/', false).keys;
    std::ranges::sort(keys);
    return keys;
  }

  std::vector<std::string> list_parts(std::string_view prefix) const override {
    check_key(prefix);
    S3Bucket::Listing found = bucket_.list(std::string(prefix) + '/', true);
    std::vector<std::string> parts = std::move(found.parts);
    parts.insert(parts.end(), found.keys.begin(), found.keys.end());
    for (std::string& part : parts) part.erase(0, prefix.size() + 1);
    std::ranges::sort(parts);
    parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
    return parts;
  }

  bool remove(std::string_view key) override {
    if (!exists(key)) return false;
    bucket_.remove(std::string(key));
    return true;
  }

  void copy_all(std::span<const std::pair<std::string, std::string>> keys) override {
    in_parallel(keys.size(), bucket_.place().in_flight, [&](std::size_t i, std::size_t) {
      const auto& [from, to] = keys[i];
      if (size_bytes(from) > bucket_.place().put_bytes) return Backend::copy_all(keys.subspan(i, 1));
      if (exists(to)) throw Error(ErrorCode::exists, url() + ": object " + to + " exists");
      bucket_.copy(from, to);
    });
  }

  void replace(std::string_view key, std::span<const ConstBytes> pieces) override {
    check_key(key);
    bucket_.put(std::string(key), stream_of(pieces), false);
  }

  std::uint64_t reclaim(std::chrono::seconds age) override {
    bucket_.abort_uploads(age);
    return 0;  // S3 does not say how large an unfinished upload is
  }

  const std::string& url() const override { return bucket_.place().url; }

 private:
  Error not_found(std::string_view key) const {
    return {ErrorCode::not_found, url() + ": no object " + std::string(key)};
  }

  S3Bucket bucket_;
};

}  // namespace

std::shared_ptr<Backend> open_s3(std::string_view, const std::string& url, const BackendOptions& options) {
  auto backend = std::make_shared<S3Backend>(parse_s3_url(url), options.create);
  probe_once(*backend);
  return backend;
}

}  // namespace penstock::store
