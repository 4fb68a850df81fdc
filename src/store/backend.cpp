#include "store/backend.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <mutex>
#include <random>
#include <set>

#include "penstock/error.hpp"
#include "store/in_parallel.hpp"

namespace penstock::store {

#define PENSTOCK_BACKEND(scheme, function) \
  std::shared_ptr<Backend> function(std::string_view rest, const std::string& url, const BackendOptions& options);
#include "store/backends.def"
#undef PENSTOCK_BACKEND

namespace {

constexpr std::size_t kDigits = 20;

bool key_character(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
}

bool valid_key(std::string_view key) {
  std::size_t part_length = 0;
  for (const char c : key) {
    if (c == '/') {
      if (part_length == 0) return false;
      part_length = 0;
      continue;
    }
    if (!key_character(c) || (c == '.' && part_length == 0)) return false;
    if (++part_length > 255) return false;
  }
  return part_length > 0;
}

std::string known_schemes() {
  std::string known;
#define PENSTOCK_BACKEND(scheme, function) known += (known.empty() ? "" : ", ") + std::string(#scheme ":");
#include "store/backends.def"
#undef PENSTOCK_BACKEND
  return known;
}

}  // namespace

Stream stream_of(std::span<const ConstBytes> pieces) {
  std::uint64_t size_bytes = 0;
  for (const ConstBytes piece : pieces) size_bytes += piece.size();
  const auto begin = [pieces]() -> std::function<ConstBytes()> {
    return [pieces, next = std::size_t{0}]() mutable {
      while (next < pieces.size() && pieces[next].empty()) ++next;
      return next < pieces.size() ? pieces[next++] : ConstBytes();
    };
  };
  return {size_bytes, begin};
}

bool Backend::put_stream_if_absent(std::string_view key, const Stream& stream) {
  if (exists(key)) return false;
  std::vector<std::byte> all;
  all.reserve(stream.size_bytes);
  const auto next = stream.begin();
  for (ConstBytes piece = next(); !piece.empty(); piece = next()) all.insert(all.end(), piece.begin(), piece.end());
  check_streamed(stream, all.size(), url() + ": object " + std::string(key));
  const ConstBytes piece(all);
  return put_if_absent(key, std::span(&piece, 1));
}

void Backend::put_unannounced(std::string_view key, std::span<const ConstBytes> pieces, bool) {
  if (put_if_absent(key, pieces)) return;
  throw Error(ErrorCode::exists, url() + ": another writer uses the same identity, object " + std::string(key) +
                                     " exists; open the blob again");
}

std::uint64_t Backend::append(std::string_view prefix, std::uint64_t first, std::span<const ConstBytes> pieces) {
  while (!put_if_absent(numbered_key(prefix, first), pieces)) ++first;
  return first;
}

std::vector<std::byte> Backend::contents(std::string_view key) const {
  std::vector<std::byte> data(size_bytes(key));
  read(key, 0, data);
  return data;
}

std::optional<std::uint64_t> Backend::append_behind(std::string_view, std::uint64_t, std::span<const ConstBytes>) {
  return std::nullopt;
}

std::uint64_t Backend::last_number(std::string_view prefix, std::uint64_t known) const {
  std::uint64_t step = 1;
  while (exists(numbered_key(prefix, known + step))) {
    known += step;
    step *= 2;
  }
  for (step /= 2; step > 0; step /= 2) {
    if (exists(numbered_key(prefix, known + step))) known += step;
  }
  return known;
}

std::vector<std::vector<std::byte>> Backend::contents_of(std::span<const std::string> keys,
                                                         std::uint64_t most_bytes) const {
  std::vector<std::vector<std::byte>> all;
  for (const std::string& key : keys) {
    try {
      const bool is_small = most_bytes == UINT64_MAX || size_bytes(key) <= most_bytes;
      all.push_back(is_small ? contents(key) : std::vector<std::byte>());
    } catch (const Error& error) {
      if (error.code() != ErrorCode::not_found) throw;
      all.emplace_back();
    }
  }
  return all;
}

std::vector<std::string> Backend::list_parts(std::string_view prefix) const {
  std::vector<std::string> parts;
  for (const std::string& key : list(prefix)) {
    std::string part = key.substr(prefix.size() + 1, key.find('/', prefix.size() + 1) - prefix.size() - 1);
    if (parts.empty() || parts.back() != part) parts.push_back(std::move(part));
  }
  return parts;
}

std::vector<std::string> Backend::list_unchanged(std::string_view prefix) const {
  std::vector<std::string> found = list(prefix);
  for (std::vector<std::string> again; (again = list(prefix)) != found;) found = std::move(again);
  return found;
}

std::size_t Backend::remove_all(std::span<const std::string> keys) {
  std::size_t removed = 0;
  for (const std::string& key : keys) removed += remove(key) ? 1 : 0;
  return removed;
}

void Backend::copy_all(std::span<const std::pair<std::string, std::string>> keys) {
  for (const auto& [from, to] : keys) {
    const std::vector<std::byte> data = read_all(*this, from);
    const ConstBytes piece(data);
    put_unannounced(to, std::span(&piece, 1));
  }
}

void Backend::read_scattered(std::string_view key, std::uint64_t offset_bytes, std::span<const Bytes> targets) const {
  for (const Bytes to : targets) {
    read(key, offset_bytes, to);
    offset_bytes += to.size();
  }
}

Backend::ReadShape Backend::read_shape() const { return {128 << 10, usable_cores(), 1 << 20}; }

void Backend::sync() {}

void Backend::replace(std::string_view key, std::span<const ConstBytes> pieces) {
  remove(key);
  put_if_absent(key, pieces);
}

void Backend::prune(std::string_view) {}

std::uint64_t Backend::reclaim(std::chrono::seconds) { return 0; }

std::shared_ptr<Backend> durable_backend(const std::shared_ptr<Backend>& backend) {
  auto twin = backend->durable_twin();
  return twin ? twin : backend;
}

void check_streamed(const Stream& stream, std::uint64_t found_bytes, const std::string& what) {
  if (found_bytes == stream.size_bytes) return;
  throw Error(ErrorCode::internal, what + ": its pieces have " + std::to_string(found_bytes) + " bytes; expected " +
                                       std::to_string(stream.size_bytes));
}

void check_key(std::string_view key) {
  if (valid_key(key)) return;
  throw Error(ErrorCode::invalid_argument,
              "'" + std::string(key) +
                  "' is not a name for an object: expected parts of letters, digits, '.', '_' and "
                  "'-' separated by '/', none empty, longer than 255 or starting with '.'");
}

std::string numbered_key(std::string_view prefix, std::uint64_t number) {
  char digits[kDigits + 1];
  std::snprintf(digits, sizeof digits, "%020llu", static_cast<unsigned long long>(number));
  std::string key(prefix);
  key += '/';
  key += digits;
  return key;
}

std::uint64_t number_of(std::string_view key) {
  const std::string_view digits = key.substr(key.find_last_of('/') + 1);
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (digits.size() != kDigits || error != std::errc() || end != digits.data() + digits.size()) {
    throw Error(ErrorCode::corrupt, "the object '" + std::string(key) + "' has no place in a store: its name should " +
                                        "end in a number of 20 digits; move it away");
  }
  return number;
}

std::shared_ptr<Backend> open_backend(std::string_view url, const BackendOptions& options) {
  const std::string text(url);
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) {
    throw Error(ErrorCode::invalid_argument, "'" + text + "' is not a store URL: expected one of " + known_schemes() +
                                                 " and a name, for example file:///scratch/run7");
  }
  const std::string_view scheme = std::string_view(text).substr(0, colon);
  const std::string_view rest = std::string_view(text).substr(colon + 1);
#define PENSTOCK_BACKEND(name, function) \
  if (scheme == #name) return function(rest, text, options);
#include "store/backends.def"
#undef PENSTOCK_BACKEND
  throw Error(ErrorCode::invalid_argument, "'" + text + "': unknown kind of store '" + std::string(scheme) +
                                               "'; expected one of " + known_schemes());
}

void probe_safety(Backend& backend) {
  std::random_device random;
  const std::string key = numbered_key("probe", (std::uint64_t{random()} << 32) | random());
  const std::string first = "first", second = "second";
  const ConstBytes pieces[] = {std::as_bytes(std::span(first)), std::as_bytes(std::span(second))};
  const bool made = backend.put_if_absent(key, std::span(&pieces[0], 1));
  const bool replaced = backend.put_if_absent(key, std::span(&pieces[1], 1));
  const std::vector<std::byte> found = backend.contents(key);
  const bool removed = backend.remove(key);
  if (made && !replaced && removed && std::ranges::equal(found, pieces[0])) return;
  throw Error(ErrorCode::unsupported, backend.url() +
                                          ": this place is not safe for a store: an object that exists was " +
                                          (replaced ? "replaced" : "lost or changed") + "; use another one");
}

void probe_once(Backend& backend) {
  static std::mutex mutex;
  static std::set<std::string> probed;
  {
    const std::lock_guard lock(mutex);
    if (probed.contains(backend.url())) return;
  }
  probe_safety(backend);
  const std::lock_guard lock(mutex);
  probed.insert(backend.url());
}

void read_together(const Backend& backend, std::string_view key, std::uint64_t offset_bytes,
                   std::span<const Bytes> targets) {
  if (targets.size() == 1) return backend.read(key, offset_bytes, targets.front());
  std::size_t total_bytes = 0;
  for (const Bytes to : targets) total_bytes += to.size();
  std::vector<std::byte> together(total_bytes);
  backend.read(key, offset_bytes, together);
  const std::byte* from = together.data();
  for (const Bytes to : targets) {
    std::copy_n(from, to.size(), to.data());
    from += to.size();
  }
}

std::pair<std::string, std::string> split_blob_url(std::string_view url) {
  // The name of a file may have a question mark in it.
  const std::size_t query = url.starts_with("file:") ? url.size() : std::min(url.find('?'), url.size());
  const std::size_t slash = url.substr(0, query).find_last_of('/');
  if (slash == std::string_view::npos || slash + 1 == query) {
    throw Error(ErrorCode::invalid_argument, "'" + std::string(url) +
                                                 "' names no file: expected the URL of a store, '/' "
                                                 "and a name, for example file:///scratch/run7/field");
  }
  return {std::string(url.substr(0, slash)) + std::string(url.substr(query)),
          std::string(url.substr(slash + 1, query - slash - 1))};
}

}  // namespace penstock::store
