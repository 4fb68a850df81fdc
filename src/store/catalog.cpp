// Which blob a name stands for: see "Names" in docs/design/store-snapshots.md.
#include <algorithm>
#include <optional>
#include <set>

#include "penstock/error.hpp"
#include "store/blob_state.hpp"
#include "store/collect.hpp"
#include "store/encoding.hpp"

namespace penstock::store {

namespace {

constexpr std::uint32_t kHeaderMagic = 0x4c425350;   // "PSBL"
constexpr std::uint32_t kWitnessMagic = 0x4c415350;  // "PSAL"
constexpr std::uint16_t kFolderFormat = 2;           // of headers that name a folder
constexpr std::uint16_t kGrows = 1;
constexpr std::uint16_t kOwnFolder = 2;
constexpr std::uint16_t kWitness = 4;
constexpr std::string_view kFirst = "catalog";
constexpr std::string_view kLater = "successors";
constexpr std::string_view kFreed = "freed";

std::string first_entry(std::string_view name) { return std::string(kFirst) + '/' + std::string(name); }
std::string later_entries(std::string_view name) { return std::string(kLater) + '/' + std::string(name); }

}  // namespace

struct BlobState::Standing {
  std::shared_ptr<BlobState> blob;      ///< null if the name is free
  std::optional<std::uint64_t> newest;  ///< if a removed blob has the name: the number of its newest entry
};

std::set<std::string> BlobState::names(const Backend& backend) {
  std::set<std::string> names;
  for (const std::string& key : backend.list(kFirst)) names.insert(key.substr(kFirst.size() + 1));
  for (const std::string& key : backend.list(kLater)) {
    names.insert(key.substr(kLater.size() + 1, key.find_last_of('/') - kLater.size() - 1));
  }
  return names;
}

std::set<std::string> BlobState::named_folders(const std::shared_ptr<Backend>& backend) {
  std::set<std::string> folders;
  for (const std::string& name : names(*backend)) {
    std::vector<std::string> entries = backend->list(later_entries(name));
    entries.push_back(first_entry(name));
    for (const std::string& entry : entries) {
      BlobState blob(backend, name);
      if (blob.read_entry(entry)) folders.insert(blob.folder());
    }
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
  grows_ = (flags & kGrows) != 0;
  has_witness_ = (flags & kWitness) != 0;
  blob_id_ = decoder.number<std::uint64_t>();
  size_bytes_ = decoder.number<std::uint64_t>();
  made_ns_ = decoder.number<std::int64_t>();
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
    // Later entries take precedence even if the mark of the first is missing: a power cut may have lost the mark.
    const std::vector<std::string> before = backend->list(later);
    const bool read = blob->read_entry(before.empty() ? first : before.back());
    if (!read && before.empty()) return {nullptr, std::nullopt};
    if (!read) continue;  // a newer entry exists by now, or all were freed
    const bool gone = blob->is_removed();
    if (!gone && before.empty()) return {std::move(blob), std::nullopt};
    // A late creator may use a freed number again, but not the newest. So the newest entry must still be the same.
    if (backend->list_unchanged(later) != before) continue;
    if (!gone) return {std::move(blob), std::nullopt};
    return {nullptr, before.empty() ? 0 : number_of(before.back())};
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

std::vector<std::byte> BlobState::header() const {
  const bool own_folder = !folder_.starts_with("blobs/");
  Encoder encoder;
  encode_head(encoder, kHeaderMagic, own_folder ? kFolderFormat : kFormat);
  encoder.number(static_cast<std::uint16_t>((grows_ ? kGrows : 0) | (own_folder ? kOwnFolder : 0) |
                                            (has_witness_ ? kWitness : 0)));
  encoder.number(blob_id_);
  encoder.number(size_bytes_);
  encoder.number(made_ns_);
  if (own_folder) encoder.text(folder_);
  return encoder.seal();
}

std::vector<std::byte> BlobState::witness() const {
  Encoder encoder;
  encode_head(encoder, kWitnessMagic);
  encoder.text(name_);
  const std::vector<std::byte> entry = header();
  encoder.number(std::uint64_t{entry.size()});
  encoder.raw(entry);
  return encoder.seal();
}

BlobState::Witness BlobState::read_witness(const Backend& backend, const std::string& folder) {
  const std::string object = folder + "/gc/" + std::string(kAlive);
  const std::string source = backend.url() + ": object " + object;
  const std::vector<std::byte> sealed = read_all(backend, object);
  Decoder decoder(unseal(sealed, source), source);
  decode_head(decoder, kWitnessMagic, source);
  Witness witness;
  witness.name = decoder.text();
  const ConstBytes entry = decoder.raw(decoder.count(1));
  witness.entry.assign(entry.begin(), entry.end());
  decoder.end();
  return witness;
}

std::vector<BlobState::DamagedEntry> BlobState::damaged_entries(const std::shared_ptr<Backend>& backend,
                                                                std::string_view name) {
  std::vector<DamagedEntry> damaged;
  std::vector<std::string> entries = backend->list(later_entries(name));
  if (backend->exists(first_entry(name))) entries.insert(entries.begin(), first_entry(name));
  for (const std::string& entry : entries) {
    BlobState blob(backend, name);
    try {
      if (!blob.read_entry(entry) || !blob.has_witness_ || backend->exists(blob.gone_key())) continue;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::corrupt) throw;
      damaged.push_back(blob.substitute(entry, error.what()));
      continue;
    }
    // An abandoned creation or clone leaves a folder without versions, or with its own mark: no damage.
    try {
      if (read_witness(*backend, blob.folder()).name == name) continue;
      damaged.push_back({blob.alive_key(), "the object is of another blob", blob.witness(), "it is written anew"});
    } catch (const Error& error) {
      const bool missing = error.code() == ErrorCode::not_found;
      if (!missing && error.code() != ErrorCode::corrupt) throw;
      if (missing && backend->list(blob.key("versions")).empty()) continue;
      damaged.push_back({blob.alive_key(), error.what(), blob.witness(),
                         "it is written anew; without it the blob counts as removed"});
    }
  }
  return damaged;
}

/// The replacement of an unreadable entry: its copy if the folder of the blob is found; the entry of a removed blob if
/// no data can belong to it; else none.
BlobState::DamagedEntry BlobState::substitute(const std::string& entry, const std::string& reason) {
  std::set<std::string> named;
  for (const std::string& other : names(*backend_)) {
    std::vector<std::string> entries = backend_->list(later_entries(other));
    entries.push_back(first_entry(other));
    for (const std::string& one : entries) {
      try {
        BlobState blob(backend_, other);
        if (blob.read_entry(one)) named.insert(blob.folder());
      } catch (const Error& error) {
        if (error.code() != ErrorCode::corrupt) throw;
      }
    }
  }
  bool may_have_data = !backend_->list("blobs/" + name_ + "/versions").empty();
  for (const std::string& folder : list_folders(*backend_)) {
    if (named.contains(folder) || backend_->exists(folder + "/gc/" + std::string(kGone))) continue;
    try {
      Witness found = read_witness(*backend_, folder);
      if (found.name == name_) {
        return {entry, reason, std::move(found.entry), "it is put back from the copy in " + folder};
      }
    } catch (const Error& error) {
      if (error.code() != ErrorCode::corrupt && error.code() != ErrorCode::not_found) throw;
      may_have_data = may_have_data || !backend_->list(folder + "/versions").empty();
    }
  }
  if (may_have_data) return {entry, reason, {}, {}};
  BlobState nothing(backend_, name_);
  nothing.folder_ = std::string(kFolders) + "/lost";
  nothing.has_witness_ = true;
  return {entry, reason, nothing.header(), "the name is free: nothing was written to the blob"};
}

std::uint64_t BlobState::freed_numbers(const Backend& backend) {
  const std::vector<std::string> marks = backend.list_unchanged(kFreed);
  return marks.empty() ? 0 : number_of(marks.back());
}

bool BlobState::announce() {
  const auto taken = [this] {
    return Error(ErrorCode::exists, title() + " exists already; open it, or choose another name");
  };
  const std::uint64_t freed = freed_numbers(*backend_);
  const Standing now = standing(backend_, name_);
  if (now.blob) throw taken();
  if (!has_witness_) begin_folder();
  const std::uint64_t number = now.newest || freed > 0 ? std::max(now.newest.value_or(0), freed) + 1 : 0;
  const std::string entry = number == 0 ? first_entry(name_) : numbered_key(later_entries(name_), number);
  const std::vector<std::byte> content = header();
  const ConstBytes piece(content);
  if (!backend_->put_if_absent(entry, std::span(&piece, 1))) {
    remove_folder(*backend_, folder_);
    erase_folder(*backend_, folder_);
    throw taken();
  }
  // A collector may have freed the entries from which `number` follows, and the name may have a new blob. A collector
  // puts its mark before it frees.
  if (freed_numbers(*backend_) != freed) {
    remove();
    return false;
  }
  // A newer entry may exist. If `number` was used and freed before, another blob has the name: this entry goes.
  // Otherwise the newer entry was made after this blob was found and removed, so this blob has its mark.
  const std::vector<std::string> entries = backend_->list_unchanged(later_entries(name_));
  const bool is_newest = number == 0 ? entries.empty() : entries.back() == entry;
  if (!is_newest && !is_removed()) {
    backend_->remove(entry);
    remove_folder(*backend_, folder_);
    erase_folder(*backend_, folder_);
    throw taken();
  }
  // A collector that takes the folder for a dead process's puts kUnfinished before it looks for the entry. A blob that
  // was found and removed passes here: it has no such mark, and the check of freed_numbers() catches a freed folder.
  if (backend_->exists(key("gc/") + std::string(kUnfinished)) ||
      (!backend_->exists(gone_key()) && !backend_->exists(alive_key()))) {
    remove();
    return false;
  }
  follow_news();
  return true;
}

void BlobState::free_names(const std::shared_ptr<Backend>& backend, std::chrono::seconds lease, GcReport& report) {
  const std::int64_t deadline_ns = begin_of(lease);
  const auto add = [&](const GcReport& freed) {
    report.bytes_freed += freed.bytes_freed;
    report.objects_removed += freed.objects_removed;
  };
  const std::uint64_t freed_before = freed_numbers(*backend);
  std::vector<std::string> dead;
  std::uint64_t freed = std::max<std::uint64_t>(freed_before, 1);
  for (const std::string& name : names(*backend)) {
    try {
      const Standing now = standing(backend, name);
      if (!now.blob) {
        std::vector<std::string> entries = backend->list(later_entries(name));
        entries.push_back(first_entry(name));
        bool is_old = true;
        for (const std::string& entry : entries) {
          BlobState blob(backend, name);
          if (!blob.read_entry(entry)) continue;
          if (backend->exists(blob.gone_key())) add(remove_folder(*backend, blob.folder()));
          is_old = is_old && blob.made_ns_ <= deadline_ns;
        }
        // The creator of a young entry may not have checked it yet: the mark below would make it start again.
        if (!is_old) continue;
        dead.push_back(name);
        freed = std::max(freed, now.newest.value_or(0));
        continue;
      }
      // Removes superseded entries. The first stays, so that its exclusive create keeps failing.
      std::vector<std::string> earlier = backend->list(later_entries(name));
      if (earlier.empty()) continue;
      earlier.pop_back();
      for (const std::string& entry : earlier) {
        BlobState blob(backend, name);
        if (!blob.read_entry(entry)) continue;
        if (blob.is_removed()) add(remove_folder(*backend, blob.folder()));
        backend->remove(entry);
      }
      BlobState first(backend, name);
      if (first.read_entry(first_entry(name)) && first.is_removed()) add(remove_folder(*backend, first.folder()));
    } catch (const Error& error) {
      // Repair handles an unreadable entry.
      if (error.code() != ErrorCode::corrupt) throw;
    }
  }
  if (dead.empty()) return;
  if (freed > freed_before) backend->put_if_absent(numbered_key(kFreed, freed), {});
  // From here on a creator of one of these names takes a larger number, or sees the mark after it put its entry and
  // gives up.
  for (const std::string& name : dead) {
    if (standing(backend, name).blob) continue;
    std::vector<std::string> entries = backend->list(later_entries(name));
    if (!entries.empty() && number_of(entries.back()) > freed) continue;
    // Repair handles a blob whose witness is missing without a removal.
    if (!damaged_entries(backend, name).empty()) continue;
    entries.insert(entries.begin(), first_entry(name));  // in this order: an earlier one must not stand for the name
    std::vector<std::string> folders;
    bool settled = true;
    for (const std::string& entry : entries) {
      BlobState blob(backend, name);
      if (!blob.read_entry(entry)) continue;
      add(remove_folder(*backend, blob.folder()));
      folders.push_back(blob.folder());
      // Its creator may not have checked it yet.
      settled = settled && blob.made_ns_ <= deadline_ns;
    }
    if (!settled) continue;
    backend->remove_all(entries);
    backend->prune(later_entries(name));
    // After the entries: a late writer learns from the missing witness that the blob was removed.
    for (const std::string& folder : folders) erase_folder(*backend, folder);
  }
  std::vector<std::string> marks = backend->list(kFreed);
  std::erase_if(marks, [&](const std::string& mark) { return number_of(mark) >= freed_before; });
  if (!marks.empty()) backend->remove_all(marks);
}

bool BlobState::remove() {
  if (!backend_->put_if_absent(gone_key(), {})) return false;
  // If the witness is missing, an earlier removal came first and its folder, with its mark, was freed.
  return !has_witness_ || backend_->exists(alive_key());
}

}  // namespace penstock::store
