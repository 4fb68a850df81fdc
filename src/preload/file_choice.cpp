#include "preload/file_choice.hpp"

#include <fcntl.h>
#include <fnmatch.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "penstock/error.hpp"
#include "penstock/store.hpp"
#include "preload/settings.hpp"

namespace penstock::preload {
namespace {

constexpr std::string_view kPrefix = "penstock:";
/// The tag of the version that equals the plain file, with the time of the file's last change.
constexpr std::string_view kPlainTag = "plain-";

/// A blob's name has letters, digits, '.', '_' and '-', and does not start with '.'. Different file names give
/// different names: "_-" begins an escape, and is itself escaped.
std::string blob_name(const std::string& file_name) {
  std::string name;
  for (std::size_t i = 0; i < file_name.size(); ++i) {
    const char letter = file_name[i];
    const bool is_allowed = std::isalnum(static_cast<unsigned char>(letter)) != 0 || letter == '-' || letter == '_' ||
                            (letter == '.' && i > 0);
    if (is_allowed && !(letter == '_' && i + 1 < file_name.size() && file_name[i + 1] == '-')) {
      name += letter;
      continue;
    }
    constexpr std::string_view kDigits = "0123456789abcdef";
    name += "_-";
    name += kDigits[static_cast<unsigned char>(letter) / 16];
    name += kDigits[static_cast<unsigned char>(letter) % 16];
  }
  return name;
}

bool is_url(std::string_view text) {
  return text.starts_with("file:") || text.starts_with("memory:") || text.starts_with("rados:");
}

bool matches(const std::string& glob, const std::string& path) {
  if (glob.find('/') == std::string::npos)
    return fnmatch(glob.c_str(), std::filesystem::path(path).filename().c_str(), 0) == 0;
  return fnmatch(glob.c_str(), path.c_str(), 0) == 0;
}

bool switch_value(const std::string& value, const char* key, bool otherwise) {
  if (value.empty()) return otherwise;
  if (value == "true" || value == "on") return true;
  if (value == "false" || value == "off") return false;
  throw Error(ErrorCode::invalid_argument,
              std::string("the info key ") + key + " is '" + value + "'; expected true or false");
}

std::pair<std::string, std::string> split(const std::string& url) {
  const std::size_t query = url.starts_with("file:") ? url.size() : std::min(url.find('?'), url.size());
  const std::size_t slash = url.substr(0, query).find_last_of('/');
  if (slash == std::string::npos || slash + 1 == query)
    throw Error(ErrorCode::invalid_argument, "'" + url +
                                                 "' names no file: expected the URL of a store, '/' and a name, for "
                                                 "example penstock:file:///scratch/run7/field");
  return {url.substr(0, slash) + url.substr(query), url.substr(slash + 1, query - slash - 1)};
}

/// The last change of a plain file, as text; nothing if there is no such file.
std::optional<std::string> plain_time(const std::string& path) {
  struct stat found {};
  if (path.empty() || ::stat(path.c_str(), &found) != 0 || !S_ISREG(found.st_mode)) return std::nullopt;
  return std::to_string(found.st_mtim.tv_sec) + "." + std::to_string(found.st_mtim.tv_nsec);
}

/// The plain file that the store remembers. Groups of ranks that close openings of their own may leave several.
std::vector<std::string> remembered_times(const Blob& blob) {
  std::vector<std::string> times;
  for (const Tag& tag : blob.tags())
    if (tag.name.starts_with(kPlainTag)) times.push_back(tag.name.substr(kPlainTag.size()));
  return times;
}

/// Returns the newest version that the store remembered of the plain file before.
std::uint64_t remember(Blob& blob, std::uint64_t version, const std::optional<std::string>& time) {
  const std::string mine = time ? std::string(kPlainTag) + *time : "";
  if (time) tag_version(blob, mine, version);
  std::uint64_t before = 0;
  for (const Tag& tag : blob.tags()) {
    if (!tag.name.starts_with(kPlainTag) || tag.name == mine) continue;
    before = std::max(before, tag.version);
    try {
      blob.untag(tag.name);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::not_found) throw;  // another group of ranks was faster
    }
  }
  return before;
}

[[noreturn]] void refuse_plain(const std::string& path, const char* what) {
  const int error = errno;
  throw Error(ErrorCode::io, "cannot " + std::string(what) + " " + path, -1, std::strerror(error), error);
}

/// Makes the bytes of the plain file the newest version, at once: staged in pieces, committed together.
std::uint64_t take_plain(Blob& blob, const std::string& path) {
  struct Descriptor {
    int number;
    ~Descriptor() { ::close(number); }
  } const file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.number < 0) refuse_plain(path, "open");
  constexpr std::size_t kPieceBytes = 64 << 20;
  std::vector<StagedWrite> parts;
  std::vector<std::byte> piece(kPieceBytes);
  std::uint64_t size = 0;
  for (;;) {
    const ssize_t bytes = ::pread(file.number, piece.data(), piece.size(), static_cast<off_t>(size));
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) refuse_plain(path, "read");
    if (bytes == 0) break;
    const WriteRegion region{size, {piece.data(), static_cast<std::size_t>(bytes)}};
    parts.push_back(blob.stage(std::span(&region, 1)));
    size += static_cast<std::uint64_t>(bytes);
  }
  std::uint64_t version = blob.latest();
  if (blob.size_bytes() > size) version = blob.resize(size);
  if (parts.empty()) return version;
  const std::optional<std::uint64_t> made = blob.commit(parts);
  if (!made)
    throw Error(ErrorCode::timed_out, path + " took longer to store than the lease of `penstock store gc`; try again");
  return *made;
}

PreparedFile failed(int error_class, std::string text) {
  return {.outcome = PreparedFile::Outcome::failed, .error_class = error_class, .text = std::move(text)};
}

PreparedFile examine(const FileChoice& choice, int amode) {
  const auto [store_url, name] = split(choice.url);
  const bool creates = (amode & MPI_MODE_CREATE) != 0;
  const bool reads_only = (amode & MPI_MODE_RDONLY) != 0;
  const std::optional<std::string> plain = plain_time(choice.plain_path);
  std::optional<Store> store;
  try {
    store.emplace(store_url, StoreOptions{.create = creates || (plain && !reads_only), .durable = false});
  } catch (const Error& error) {
    if (error.code() != ErrorCode::not_found) throw;
  }
  std::optional<Blob> blob;
  if (store && store->exists(name)) blob = store->open(name);
  const std::vector<std::string> remembered = blob ? remembered_times(*blob) : std::vector<std::string>{};
  const bool is_removed = !remembered.empty() && !plain;  // somebody has removed the plain file: so the file is gone
  const bool is_foreign =
      plain && (!blob || (!remembered.empty() && std::ranges::find(remembered, *plain) == remembered.end()));
  if ((amode & MPI_MODE_EXCL) != 0 && (plain || (blob && !is_removed)))
    return failed(MPI_ERR_FILE_EXISTS, choice.url + " exists already");
  if (is_foreign && reads_only)
    return {.outcome = PreparedFile::Outcome::native,
            .text = blob ? "the plain file has changed since its last version" : "no version of it is stored"};
  if (!blob && !plain && !creates)
    return failed(MPI_ERR_NO_SUCH_FILE, choice.url + " does not exist" +
                                            (choice.plain_path.empty() ? "" : ", nor does " + choice.plain_path));
  if (is_removed && !creates) return failed(MPI_ERR_NO_SUCH_FILE, choice.plain_path + " has been removed");
  if (!blob) {
    try {
      blob = store.value().create(name, {.grows = true});
    } catch (const Error& error) {
      if (error.code() != ErrorCode::exists || (amode & MPI_MODE_EXCL) != 0) throw;
      blob = store->open(name);  // another group made it first
    }
  }
  if (is_removed) {
    remember(*blob, blob->resize(0), std::nullopt);
  } else if (is_foreign) {
    remember(*blob, take_plain(*blob, choice.plain_path), plain);
  }
  return {};
}

}  // namespace

std::string info_value(MPI_Info info, const char* key) {
  if (info == MPI_INFO_NULL) return {};
  std::array<char, MPI_MAX_INFO_VAL + 1> value{};
  int is_there = 0;
  // Not MPI_Info_get_string: a program's Open MPI 4 does not have it.
  if (PMPI_Info_get(info, key, MPI_MAX_INFO_VAL, value.data(), &is_there) != MPI_SUCCESS || is_there == 0) return {};
  return value.data();
}

const char* without_prefix(const char* name) {
  return std::string_view(name).starts_with(kPrefix) ? name + kPrefix.size() : name;
}

FileChoice choose_file(const char* name, MPI_Info info) {
  FileChoice choice;
  const bool has_prefix = std::string_view(name).starts_with(kPrefix);
  const std::string given = without_prefix(name);
  const std::string key = info_value(info, "penstock_files");
  const std::string export_to = info_value(info, "penstock_export");
  if (has_prefix && is_url(given)) {
    choice.url = given;
  } else {
    std::error_code ignored;
    std::filesystem::path path = std::filesystem::absolute(given, ignored).lexically_normal();
    const std::filesystem::path folder = std::filesystem::weakly_canonical(path.parent_path(), ignored);
    if (!folder.empty()) path = folder / path.filename();
    choice.plain_path = path.string();
    choice.url =
        "file://" + (path.parent_path() / "penstock.store").string() + "/" + blob_name(path.filename().string());
  }
  choice.is_stored = has_prefix || switch_value(key, "penstock_files", false);
  if (!choice.is_stored) {
    choice.why_native = key.empty() ? "no prefix, info key or glob chooses it" : "the info key penstock_files";
    if (key.empty())
      for (const std::string& glob : settings().files)
        choice.is_stored = choice.is_stored || matches(glob, given) || matches(glob, choice.plain_path);
  }
  if (!export_to.empty() && export_to.find('/') != std::string::npos)
    choice.export_path = export_to;
  else if (switch_value(export_to, "penstock_export", settings().exports_files))
    choice.export_path = choice.plain_path;
  return choice;
}

PreparedFile prepare_blob(const FileChoice& choice, int amode) {
  try {
    return examine(choice, amode);
  } catch (const std::exception& error) {
    const auto* known = dynamic_cast<const Error*>(&error);
    if (known != nullptr && known->code() == ErrorCode::exists) return failed(MPI_ERR_FILE_EXISTS, error.what());
    return {
        .outcome = PreparedFile::Outcome::failed, .error_class = MPI_ERR_IO, .is_unusable = true, .text = error.what()};
  }
}

void tag_version(Blob& blob, const std::string& tag, std::uint64_t version) {
  try {
    blob.tag(tag, version);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::exists) throw;
  }
}

void export_blob(const FileChoice& choice) {
  const auto [store_url, name] = split(choice.url);
  const Store store(store_url, {.create = false});
  Blob blob = store.open(name);
  for (;;) {
    const std::uint64_t version = blob.snapshot().version();
    store.export_file(name, version, choice.export_path);
    const std::optional<std::string> time = plain_time(choice.export_path);
    const std::uint64_t before =
        choice.export_path == choice.plain_path ? remember(blob, version, time) : std::uint64_t{0};
    // Other ranks may have closed an opening of their own meanwhile. The last one exports the newest version.
    if (before <= version && plain_time(choice.export_path) == time) return;
  }
}

bool remove_blob(const std::string& url) {
  const auto [store_url, name] = split(url);
  try {
    Store store(store_url, {.create = false});
    store.remove(name);
    return true;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::not_found) throw;
    return false;
  }
}

}  // namespace penstock::preload
