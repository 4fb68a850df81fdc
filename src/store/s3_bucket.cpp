#include "store/s3_bucket.hpp"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <ctime>
#include <random>
#include <thread>

#include "penstock/error.hpp"
#include "store/in_parallel.hpp"

namespace penstock::store {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kMostParts = 10'000;            // S3's own limit
constexpr std::uint64_t kStreamMemoryBytes = 64 << 20;  // of parts that are filled from a stream
constexpr std::chrono::milliseconds kFirstPause{50};
constexpr std::chrono::milliseconds kLongestPause{5'000};
constexpr std::string_view kMark = "x-amz-meta-penstock-put";

std::string encoded(std::string_view text) {
  std::string out;
  for (const unsigned char c : text) {
    if (std::isalnum(c) || std::string_view("-._~").find(static_cast<char>(c)) != std::string_view::npos) {
      out += static_cast<char>(c);
    } else {
      char code[4];
      std::snprintf(code, sizeof code, "%%%02X", c);
      out += code;
    }
  }
  return out;
}

/// What stands in each <name> of an answer. The answers of S3 that are read here are flat lists of elements without
/// attributes, so no parser is needed.
std::vector<std::string_view> elements(std::string_view xml, const std::string& name) {
  const std::string begin = '<' + name + '>', end = "</" + name + '>';
  std::vector<std::string_view> found;
  for (std::size_t at = 0; (at = xml.find(begin, at)) != std::string_view::npos;) {
    at += begin.size();
    const std::size_t stop = xml.find(end, at);
    if (stop == std::string_view::npos) break;
    found.push_back(xml.substr(at, stop - at));
    at = stop + end.size();
  }
  return found;
}

std::string element(std::string_view xml, const std::string& name) {
  const auto all = elements(xml, name);
  std::string text(all.empty() ? std::string_view() : all.front());
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"&lt;", "<"}, {"&gt;", ">"}, {"&quot;", "\""}, {"&apos;", "'"}, {"&#34;", "\""}, {"&#39;", "'"}, {"&amp;", "&"}};
  for (const auto& [name_of, plain] : kNames) {
    for (std::size_t at = 0; (at = text.find(name_of, at)) != std::string::npos; at += plain.size()) {
      text.replace(at, name_of.size(), plain);
    }
  }
  return text;
}

std::string new_mark() {
  std::random_device random;
  char mark[40];
  std::snprintf(mark, sizeof mark, "%08x%08x%08x%08x", random(), random(), random(), random());
  return mark;
}

std::string code_in(const HttpAnswer& answer) { return element(answer.text(), "Code"); }

/// Some operations begin to answer before they know how they end.
bool failed_after_all(const HttpAnswer& answer) {
  return answer.ok() && answer.text().find("<Error>") != std::string_view::npos;
}

bool may_be_asked_again(const HttpAnswer& answer) {
  switch (answer.status) {
    case 0: return !answer.is_too_long;
    case 408:
    case 429:
    case 500:
    case 502:
    case 503:
    case 504: return true;
    case 400: return code_in(answer) == "RequestTimeout";
    case 409: return code_in(answer) == "ConditionalRequestConflict" || code_in(answer) == "OperationAborted";
    default: return failed_after_all(answer);
  }
}

std::chrono::milliseconds longer(std::chrono::milliseconds pause) { return std::min(2 * pause, kLongestPause); }

/// Between half and all of a pause, so that clients that were refused together do not come back together.
std::chrono::milliseconds varied(std::chrono::milliseconds pause) {
  thread_local std::minstd_rand random{std::random_device{}()};
  return std::chrono::milliseconds(std::uniform_int_distribution(pause.count() / 2, pause.count())(random));
}

/// The pieces of each part of an object.
std::vector<std::vector<ConstBytes>> divide(std::span<const ConstBytes> pieces, std::uint64_t part_bytes) {
  std::vector<std::vector<ConstBytes>> parts;
  std::uint64_t room = 0;
  for (ConstBytes piece : pieces) {
    while (!piece.empty()) {
      if (room == 0) {
        parts.emplace_back();
        room = part_bytes;
      }
      const std::size_t size = std::min<std::uint64_t>(room, piece.size());
      parts.back().push_back(piece.first(size));
      piece = piece.subspan(size);
      room -= size;
    }
  }
  return parts;
}

}  // namespace

/// An object that is being made in parts. Given up in the destructor unless it was completed.
class S3Bucket::Upload {
 public:
  Upload(S3Bucket& bucket, const std::string& key) : bucket_(bucket), key_(key), mark_(new_mark()) {
    const Stream empty = stream_of({});
    const HttpAnswer answer = bucket_.ask({.method = "POST",
                                           .url = bucket_.url_of(key, "uploads="),
                                           .headers = {std::string(kMark) + ": " + mark_},
                                           .body = &empty},
                                          "begin " + key);
    id_ = element(answer.text(), "UploadId");
    if (!answer.ok() || id_.empty()) bucket_.fail("begin " + key, answer);
  }

  ~Upload() {
    if (!is_open_) return;
    try {
      bucket_.ask({.method = "DELETE", .url = bucket_.url_of(key_, "uploadId=" + encoded(id_))}, "give up " + key_);
    } catch (const Error&) {  // abort_uploads ends what stays
    }
  }

  Upload(const Upload&) = delete;
  Upload& operator=(const Upload&) = delete;

  /// Sends parts that follow those sent before, several at a time.
  void send(std::span<const Part> parts) {
    const std::size_t first = tags_.size();
    tags_.resize(first + parts.size());
    in_parallel(parts.size(), bucket_.place_.in_flight, [&](std::size_t i, std::size_t) {
      const std::string number = std::to_string(first + i + 1);
      const Stream body = stream_of(parts[i]);
      const HttpAnswer answer =
          bucket_.ask({.method = "PUT",
                       .url = bucket_.url_of(key_, "partNumber=" + number + "&uploadId=" + encoded(id_)),
                       .body = &body},
                      "write " + key_);
      const auto tag = answer.headers.find("etag");
      if (!answer.ok() || tag == answer.headers.end()) bucket_.fail("write " + key_, answer);
      tags_[first + i] = tag->second;
    });
  }

  /// Returns false if the object exists and `if_absent`.
  bool complete(bool if_absent) {
    std::string list = "<CompleteMultipartUpload>";
    for (std::size_t i = 0; i < tags_.size(); ++i) {
      list += "<Part><PartNumber>" + std::to_string(i + 1) + "</PartNumber><ETag>" + tags_[i] + "</ETag></Part>";
    }
    list += "</CompleteMultipartUpload>";
    const ConstBytes piece = std::as_bytes(std::span(list));
    const Stream body = stream_of(std::span(&piece, 1));
    HttpRequest request{.method = "POST", .url = bucket_.url_of(key_, "uploadId=" + encoded(id_)), .body = &body};
    if (if_absent) request.headers.emplace_back("If-None-Match: *");
    const HttpAnswer answer = bucket_.ask(request, "complete " + key_);
    if (answer.ok() || bucket_.is_mine(key_, mark_)) {
      is_open_ = false;
      return true;
    }
    if (if_absent && answer.status == 412) return false;
    bucket_.fail("complete " + key_, answer);
  }

 private:
  S3Bucket& bucket_;
  const std::string key_;
  const std::string mark_;
  std::string id_;
  std::vector<std::string> tags_;
  bool is_open_ = true;
};

S3Bucket::S3Bucket(S3Place place)
    : place_(std::move(place)),
      client_({place_.region, place_.key, place_.secret, place_.session_token, place_.timeout_s}) {}

std::string S3Bucket::url_of(const std::string& key, const std::string& query) const {
  return place_.endpoint + '/' + place_.bucket + '/' + place_.prefix + key + (query.empty() ? "" : '?' + query);
}

HttpAnswer S3Bucket::ask(const HttpRequest& request, const std::string& what) const {
  std::optional<Clock::time_point> end;
  for (auto pause = kFirstPause;; pause = longer(pause)) {
    HttpAnswer answer = client_.perform(request);
    if (!may_be_asked_again(answer)) return answer;
    if (!end) end = Clock::now() + std::chrono::seconds(place_.timeout_s);
    const auto wait = varied(pause);
    if (Clock::now() + wait > *end) fail(what, answer);
    std::this_thread::sleep_for(wait);
  }
}

void S3Bucket::fail_range() const {
  throw Error(ErrorCode::unsupported,
              place_.url + ": " + place_.endpoint +
                  " sends another part of an object than was asked for; expected a server of S3 "
                  "that knows the header Range");
}

void S3Bucket::fail(const std::string& what, const HttpAnswer& answer) const {
  const std::string start = place_.url + ": cannot " + what + ": ";
  const std::string code = code_in(answer);
  std::string cause = element(answer.text(), "Message");
  if (answer.is_too_long) fail_range();
  if (answer.status == 0) {
    throw Error(answer.has_stalled ? ErrorCode::timed_out : ErrorCode::io,
                start + place_.endpoint + " did not answer for " + std::to_string(place_.timeout_s) +
                    " s; check the endpoint and the network, or give the URL a longer timeout_s",
                -1, answer.problem);
  }
  const std::string found = "the server answers " + std::to_string(answer.status) + (code.empty() ? "" : " " + code);
  if (code == "NoSuchBucket") {
    throw Error(ErrorCode::not_found, start + "there is no bucket " + place_.bucket + "; create it or correct the URL",
                -1, cause);
  }
  if (answer.status == 401 || answer.status == 403) {
    const bool is_full = code == "QuotaExceeded";
    throw Error(is_full ? ErrorCode::no_space : ErrorCode::io,
                start + found + (is_full ? "" : "; check the credentials, and what they may do in this bucket"), -1,
                cause);
  }
  if (answer.status == 501 || code == "NotImplemented") {
    throw Error(ErrorCode::unsupported,
                start + found + "; expected a server of S3 with conditional writes (If-None-Match)", -1, cause);
  }
  throw Error(ErrorCode::io, start + found, -1, cause);
}

bool S3Bucket::is_mine(const std::string& key, const std::string& mark) const {
  const HttpAnswer answer = ask({.method = "HEAD", .url = url_of(key)}, "look at " + key);
  const auto found = answer.headers.find(std::string(kMark));
  return answer.ok() && found != answer.headers.end() && found->second == mark;
}

bool S3Bucket::put(const std::string& key, const Stream& body, bool if_absent) {
  const std::string mark = new_mark();
  HttpRequest request{
      .method = "PUT", .url = url_of(key), .headers = {std::string(kMark) + ": " + mark}, .body = &body};
  if (if_absent) request.headers.emplace_back("If-None-Match: *");
  const HttpAnswer answer = ask(request, "write " + key);
  if (answer.ok()) return true;
  // libcurl, too, sends a request again if a kept connection ends before the answer, and does not tell.
  if (if_absent && answer.status == 412) return is_mine(key, mark);
  fail("write " + key, answer);
}

std::uint64_t S3Bucket::part_bytes_of(std::uint64_t size_bytes) const {
  return std::max(place_.part_bytes, (size_bytes + kMostParts - 1) / kMostParts);
}

void S3Bucket::put_in_parts(const std::string& key, std::span<const ConstBytes> pieces) {
  Upload upload(*this, key);
  upload.send(divide(pieces, part_bytes_of(stream_of(pieces).size_bytes)));
  upload.complete(false);
}

bool S3Bucket::put_in_parts_if_absent(const std::string& key, const Stream& body) {
  check_parts_are_conditional();
  const std::uint64_t part_bytes = part_bytes_of(body.size_bytes);
  const std::uint64_t at_once = std::clamp<std::uint64_t>(kStreamMemoryBytes / part_bytes, 1, place_.in_flight);
  Upload upload(*this, key);
  std::vector<std::byte> memory(std::min(at_once * part_bytes, body.size_bytes));
  const auto next = body.begin();
  std::uint64_t sent_bytes = 0;
  std::size_t filled = 0;
  const auto send = [&] {
    const ConstBytes all = ConstBytes(memory).first(filled);
    upload.send(divide(std::span(&all, 1), part_bytes));
    sent_bytes += filled;
    filled = 0;
  };
  for (ConstBytes piece = next(); !piece.empty(); piece = next()) {
    while (!piece.empty()) {
      const std::size_t size = std::min(piece.size(), memory.size() - filled);
      std::copy_n(piece.begin(), size, memory.begin() + static_cast<std::ptrdiff_t>(filled));
      filled += size;
      piece = piece.subspan(size);
      if (filled == memory.size()) send();
    }
  }
  if (filled > 0) send();
  check_streamed(body, sent_bytes, place_.url + ": object " + key);
  return upload.complete(true);
}

void S3Bucket::check_parts_are_conditional() {
  const std::lock_guard lock(condition_mutex_);
  if (knows_condition_of_parts_) return;
  const std::string key = "probe/" + new_mark();
  const ConstBytes byte = std::as_bytes(std::span("1", 1));
  const std::span<const ConstBytes> pieces(&byte, 1);
  put(key, stream_of(pieces), false);
  bool is_replaced = true;
  {
    Upload upload(*this, key);
    upload.send(divide(pieces, 1));
    is_replaced = upload.complete(true);
  }
  remove(key);
  if (is_replaced) {
    throw Error(ErrorCode::unsupported,
                place_.url + ": objects of more than " + std::to_string(place_.put_bytes) +
                    " bytes are sent in parts, and this server replaces an object that exists by one in parts; write "
                    "smaller ones, or use a server that knows If-None-Match for CompleteMultipartUpload");
  }
  knows_condition_of_parts_ = true;
}

std::optional<std::uint64_t> S3Bucket::size_bytes(const std::string& key) const {
  const HttpAnswer answer = ask({.method = "HEAD", .url = url_of(key)}, "look at " + key);
  if (answer.status == 404) return std::nullopt;
  const auto length = answer.headers.find("content-length");
  if (!answer.ok() || length == answer.headers.end()) fail("look at " + key, answer);
  return std::stoull(length->second);
}

std::optional<std::vector<std::byte>> S3Bucket::contents(const std::string& key) const {
  HttpAnswer answer = ask({.method = "GET", .url = url_of(key)}, "read " + key);
  if (answer.status == 404 && code_in(answer) != "NoSuchBucket") return std::nullopt;
  if (!answer.ok()) fail("read " + key, answer);
  return std::move(answer.body);
}

void S3Bucket::read(const std::string& key, std::uint64_t offset_bytes, Bytes to) const {
  const std::string range =
      "Range: bytes=" + std::to_string(offset_bytes) + '-' + std::to_string(offset_bytes + to.size() - 1);
  const HttpAnswer answer = ask({.method = "GET", .url = url_of(key), .headers = {range}, .into = to}, "read " + key);
  if (answer.status == 404 && code_in(answer) != "NoSuchBucket") {
    throw Error(ErrorCode::not_found, place_.url + ": no object " + key);
  }
  const bool is_short = answer.status == 416 || (answer.ok() && answer.into_bytes < to.size());
  if (is_short) {
    throw Error(ErrorCode::corrupt, place_.url + ": object " + key + " has fewer bytes than expected: " +
                                        std::to_string(to.size()) + " at offset " + std::to_string(offset_bytes));
  }
  if (answer.status == 200 && offset_bytes > 0) fail_range();
  if (!answer.ok()) fail("read " + key, answer);
}

void S3Bucket::remove(const std::string& key) {
  const HttpAnswer answer = ask({.method = "DELETE", .url = url_of(key)}, "remove " + key);
  if (!answer.ok() && answer.status != 404) fail("remove " + key, answer);
}

void S3Bucket::copy(const std::string& from, const std::string& to) {
  const Stream empty = stream_of({});
  const HttpAnswer answer = ask({.method = "PUT",
                                 .url = url_of(to),
                                 .headers = {"x-amz-copy-source: /" + place_.bucket + '/' + place_.prefix + from},
                                 .body = &empty},
                                "copy " + from);
  if (answer.status == 404) throw Error(ErrorCode::not_found, place_.url + ": no object " + from);
  if (!answer.ok()) fail("copy " + from, answer);
}

S3Bucket::Listing S3Bucket::list(const std::string& start, bool by_parts, const std::string& after,
                                 bool one_page) const {
  Listing listing;
  std::string token;
  do {
    // The signature wants the parameters sorted by name.
    std::string query = token.empty() ? "" : "continuation-token=" + encoded(token) + '&';
    if (by_parts) query += "delimiter=%2F&";
    query += "list-type=2&prefix=" + encoded(place_.prefix + start);
    if (!after.empty()) query += "&start-after=" + encoded(place_.prefix + after);
    const HttpAnswer answer =
        ask({.method = "GET", .url = place_.endpoint + '/' + place_.bucket + '?' + query}, "list " + start);
    if (!answer.ok()) fail("list " + start, answer);
    const auto within = [&](std::string_view key) { return std::string(key.substr(place_.prefix.size())); };
    for (const std::string_view key : elements(answer.text(), "Key")) listing.keys.push_back(within(key));
    for (const std::string_view below : elements(answer.text(), "CommonPrefixes")) {
      std::string part = element(below, "Prefix");
      if (part.ends_with('/')) part.pop_back();
      listing.parts.push_back(within(part));
    }
    token = element(answer.text(), "NextContinuationToken");
    listing.is_complete = token.empty();
  } while (!listing.is_complete && !one_page);
  return listing;
}

void S3Bucket::abort_uploads(std::chrono::seconds age) {
  std::string key_marker, upload_marker;
  do {
    std::string query = "prefix=" + encoded(place_.prefix);
    if (!key_marker.empty()) {
      query = "key-marker=" + encoded(key_marker) + '&' + query + "&upload-id-marker=" + encoded(upload_marker);
    }
    const HttpAnswer answer = ask(
        {.method = "GET", .url = place_.endpoint + '/' + place_.bucket + '?' + query + "&uploads="}, "list uploads");
    if (!answer.ok()) fail("list uploads", answer);
    for (const std::string_view upload : elements(answer.text(), "Upload")) {
      std::tm begun{};
      if (::strptime(element(upload, "Initiated").c_str(), "%Y-%m-%dT%H:%M:%S", &begun) == nullptr) continue;
      if (std::time(nullptr) - ::timegm(&begun) < age.count()) continue;
      const std::string key = element(upload, "Key").substr(place_.prefix.size());
      ask({.method = "DELETE", .url = url_of(key, "uploadId=" + encoded(element(upload, "UploadId")))},
          "give up " + key);
    }
    key_marker = element(answer.text(), "NextKeyMarker");
    upload_marker = element(answer.text(), "NextUploadIdMarker");
    if (element(answer.text(), "IsTruncated") != "true") key_marker.clear();
  } while (!key_marker.empty());
}

}  // namespace penstock::store
