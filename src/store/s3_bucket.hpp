// Operations on the objects of a bucket. What a server throttles, what fails on its side and what breaks off is asked
// again, with growing pauses, for S3Place::timeout_s. All functions throw penstock::Error. Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "store/backend.hpp"
#include "store/http.hpp"
#include "store/s3_place.hpp"

namespace penstock::store {

class S3Bucket {
 public:
  explicit S3Bucket(S3Place place);

  const S3Place& place() const { return place_; }

  /// Makes an object in one request, or replaces it. With `if_absent` returns false, and changes nothing, if it exists.
  /// An answer may get lost after the server has made the object, so each call marks its object, and knows it again.
  bool put(const std::string& key, const Stream& body, bool if_absent);
  /// Makes an object in parts, some of which are under way at a time, or replaces it.
  void put_in_parts(const std::string& key, std::span<const ConstBytes> pieces);
  /// As put with `if_absent`, in parts. At most 64 MiB of them are in memory, or one if it is larger. Throws
  /// Error(unsupported) if the server does not know the condition for objects in parts.
  bool put_in_parts_if_absent(const std::string& key, const Stream& body);

  /// Nothing if there is no such object.
  std::optional<std::uint64_t> size_bytes(const std::string& key) const;
  std::optional<std::vector<std::byte>> contents(const std::string& key) const;
  /// Throws Error(not_found); Error(corrupt) if the object is too short. `to` is not empty.
  void read(const std::string& key, std::uint64_t offset_bytes, Bytes to) const;

  /// No error if there is no such object.
  void remove(const std::string& key);
  /// Replaces `to`. The bytes do not leave the server.
  void copy(const std::string& from, const std::string& to);

  struct Listing {
    std::vector<std::string> keys;   ///< without the place's prefix, in the server's order
    std::vector<std::string> parts;  ///< with a delimiter: what lies below, once for each part, without '/' at the end
    bool is_complete = true;
  };
  /// Keys that start with `start` and come after `after`, all of them or one page.
  Listing list(const std::string& start, bool by_parts, const std::string& after = {}, bool one_page = false) const;

  /// Ends uploads in parts below the place's prefix that were begun before `age`.
  void abort_uploads(std::chrono::seconds age);

 private:
  class Upload;
  using Part = std::vector<ConstBytes>;

  std::string url_of(const std::string& key, const std::string& query = {}) const;
  HttpAnswer ask(const HttpRequest& request, const std::string& what) const;
  [[noreturn]] void fail(const std::string& what, const HttpAnswer& answer) const;
  [[noreturn]] void fail_range() const;
  bool is_mine(const std::string& key, const std::string& mark) const;
  std::uint64_t part_bytes_of(std::uint64_t size_bytes) const;
  void check_parts_are_conditional();

  const S3Place place_;
  mutable HttpClient client_;
  std::mutex condition_mutex_;
  bool knows_condition_of_parts_ = false;
};

}  // namespace penstock::store
