// Which blob a name stands for: see "Names" in docs/design/store-snapshots.md.
#include <algorithm>
#include <set>

#include "penstock/error.hpp"
#include "store/blob_state.hpp"
#include "store/collect.hpp"
#include "store/encoding.hpp"

namespace penstock::store {

namespace {

constexpr std::uint32_t kHeaderMagic = 0x4c425350;  // "PSBL"
constexpr std::uint16_t kFolderFormat = 2;          // of headers with a folder of their own
constexpr std::uint16_t kOwnFolder = 2;
constexpr std::string_view kFirst = "catalog";
constexpr std::string_view kLater = "successors";

std::string first_entry(std::string_view name) { return std::string(kFirst) + '/' + std::string(name); }
std::string later_entries(std::string_view name) { return std::string(kLater) + '/' + std::string(name); }

}  // namespace

struct BlobState::Standing {
  std::shared_ptr<BlobState> blob;  ///< nothing where the name is free
  std::string free_entry;           ///< what makes the name stand for another blob, if it is free
};

std::set<std::string> BlobState::names(const Backend& backend) {
  std::set<std::string> names;
  for (const std::string& key : backend.list(kFirst)) names.insert(key.substr(kFirst.size() + 1));
  for (const std::string& key : backend.list(kLater)) {
    names.insert(key.substr(kLater.size() + 1, key.find_last_of('/') - kLater.size() - 1));
  }
  return names;
}

std::set<std::string> BlobState::folders_in_use(const std::shared_ptr<Backend>& backend) {
  std::set<std::string> folders;
  for (const std::string& name : names(*backend)) {
    if (const auto blob = standing(backend, name).blob) folders.insert(blob->folder());
  }
  return folders;
}

bool BlobState::read_entry(const std::string& entry) {
  std::vector<std::byte> header;
  try {
    header = read_all(*backend_, entry);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::not_found) throw;
    return false;
  }
  const std::string source = backend_->url() + ": object " + entry;
  Decoder decoder(unseal(header, source), source);
  decode_head(decoder, kHeaderMagic, source, kFolderFormat);
  const auto flags = decoder.number<std::uint16_t>();
  grows_ = (flags & 1) != 0;
  blob_id_ = decoder.number<std::uint64_t>();
  size_bytes_ = decoder.number<std::uint64_t>();
  decoder.number<std::int64_t>();
  if ((flags & kOwnFolder) == 0) return true;
  folder_ = decoder.text();
  check_key(folder_);
  return true;
}

BlobState::Standing BlobState::standing(const std::shared_ptr<Backend>& backend, std::string_view name) {
  const std::string first = first_entry(name);
  const std::string later = later_entries(name);
  for (;;) {
    std::shared_ptr<BlobState> blob(new BlobState(backend, name));
    // Later entries count more even where the mark of the first is missing: that may have got lost in a power cut.
    const std::vector<std::string> before = backend->list(later);
    const bool read = blob->read_entry(before.empty() ? first : before.back());
    if (!read && before.empty()) return {nullptr, first};
    if (!read) continue;  // there is a newer one by now
    const bool gone = backend->exists(blob->gone_key());
    if (!gone && before.empty()) return {std::move(blob), ""};
    // A number may have been used again by a creator that slept, but not while it was the newest.
    if (backend->list_unchanged(later) != before) continue;
    if (!gone) return {std::move(blob), ""};
    return {nullptr, numbered_key(later, before.empty() ? 1 : number_of(before.back()) + 1)};
  }
}

std::shared_ptr<BlobState> BlobState::find(const std::shared_ptr<Backend>& backend, std::string_view name) {
  std::shared_ptr<BlobState> blob = standing(backend, name).blob;
  if (blob) blob->follow_news();
  return blob;
}

std::shared_ptr<BlobState> BlobState::open(std::shared_ptr<Backend> backend, std::string_view name) {
  if (auto blob = find(backend, name)) return blob;
  throw Error(ErrorCode::not_found, BlobState(std::move(backend), name).title() +
                                        " does not exist; create it first, or list the store's blobs");
}

void BlobState::announce() {
  const auto taken = [this] {
    return Error(ErrorCode::exists, title() + " exists already; open it, or choose another name");
  };
  const Standing now = standing(backend_, name_);
  if (now.blob) throw taken();
  const bool succeeds = now.free_entry.starts_with(kLater);
  // Writers of a blob that was removed may still be at work in its folder.
  bool own_folder = !folder_.starts_with("blobs/");
  if (!own_folder && (succeeds || backend_->exists(gone_key()))) {
    folder_ = new_folder();
    own_folder = true;
  }
  Encoder encoder;
  encode_head(encoder, kHeaderMagic, own_folder ? kFolderFormat : kFormat);
  encoder.number(static_cast<std::uint16_t>((grows_ ? 1 : 0) | (own_folder ? kOwnFolder : 0)));
  encoder.number(blob_id_);
  encoder.number(size_bytes_);
  encoder.number(now_ns());
  if (own_folder) encoder.text(folder_);
  const std::vector<std::byte> header = encoder.seal();
  const ConstBytes piece(header);
  if (!backend_->put_if_absent(now.free_entry, std::span(&piece, 1))) throw taken();
  // Entries that newer ones stand for go: while we slept, this number may have been used and got free again. If it had
  // not, a newer one can only be there after ours was found and removed.
  if (succeeds && backend_->list_unchanged(later_entries(name_)).back() != now.free_entry &&
      !backend_->exists(gone_key())) {
    backend_->remove(now.free_entry);
    throw taken();
  }
  follow_news();
}

void BlobState::free_removed(const std::shared_ptr<Backend>& backend, std::string_view name, GcReport& report) {
  std::vector<std::string> entries = backend->list(later_entries(name));
  const std::string newest = entries.empty() ? "" : entries.back();
  // The first entry stays, so that nobody puts another in its place, and the newest, so that no number is newest twice.
  entries.push_back(first_entry(name));
  for (const std::string& entry : entries) {
    BlobState blob(backend, name);
    if (!blob.read_entry(entry)) continue;
    if (backend->exists(blob.gone_key())) {
      const GcReport removed = remove_folder(*backend, blob.folder());
      report.bytes_freed += removed.bytes_freed;
      report.objects_removed += removed.objects_removed;
    }
    if (entry != newest && entry.starts_with(kLater)) backend->remove(entry);
  }
}

bool BlobState::remove() { return backend_->put_if_absent(gone_key(), {}); }

}  // namespace penstock::store
