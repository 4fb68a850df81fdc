// Which blob a name stands for: see "Names" in docs/design/store-snapshots.md.
#include <algorithm>
#include <optional>
#include <set>
#include <thread>

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
/// How long a creator pauses between looks at another creator's entry, before it gives up that creation.
constexpr auto kFirstPause = std::chrono::milliseconds(1);
constexpr auto kLastPause = std::chrono::milliseconds(256);

std::string first_entry(std::string_view name) { return std::string(kFirst) + '/' + std::string(name); }
std::string later_entries(std::string_view name) { return std::string(kLater) + '/' + std::string(name); }

}  // namespace

struct BlobState::Standing {
  std::shared_ptr<BlobState> blob;      ///< null if the name is free
  std::optional<std::uint64_t> newest;  ///< if the name is free and has entries: the number of the newest
  std::shared_ptr<BlobState> pending;   ///< the blob of the newest entry, if it does not exist yet
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
    const std::string& entry = before.empty() ? first : before.back();
    const bool read = blob->read_entry(entry);
    if (!read && before.empty()) return {nullptr, std::nullopt, nullptr};
    if (!read) continue;  // a newer entry exists by now, or all were freed
    const Existence found = blob->existence();
    // The folder's marks are freed after the entry. So if the entry still exists, existence() saw all marks.
    if (found == Existence::there && before.empty() && backend->exists(entry)) {
      return {std::move(blob), std::nullopt, nullptr};
    }
    // A late creator may use a freed number again, but not the newest. So the newest entry must still be the same.
    if (backend->list_unchanged(later) != before) continue;
    if (!before.empty()) {
      BlobState again(backend, name);
      if (!again.read_entry(entry) || again.folder() != blob->folder()) continue;
    }
    if (found == Existence::there && before.empty()) continue;
    if (found == Existence::there) return {std::move(blob), std::nullopt, nullptr};
    const std::uint64_t newest = before.empty() ? 0 : number_of(before.back());
    return {nullptr, newest, found == Existence::pending ? std::move(blob) : nullptr};
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

// The order matters: a collector removes gc/alive before gc/gone, so one of the two looks shows a removal.
BlobState::Existence BlobState::existence() const {
  if (backend_->exists(gone_key())) return Existence::removed;
  if (!has_witness_) return Existence::there;
  try {
    return read_witness(*backend_, folder_).name.empty() ? Existence::removed : Existence::there;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::not_found) return Existence::pending;
    if (error.code() == ErrorCode::corrupt) return Existence::there;  // repair mends it
    throw;
  }
}

void BlobState::put(const std::string& object, const std::vector<std::byte>& content) const {
  const ConstBytes piece(content);
  backend_->put_if_absent(object, std::span(&piece, 1));
}

bool BlobState::give_up() const {
  // Its writers would take a given-up blob for one that exists if they only saw gc/alive: see marks().
  backend_->put_if_absent(key("gc/") + std::string(kUnfinished), {});
  Encoder nobody;
  encode_head(nobody, kWitnessMagic);
  nobody.text("");
  nobody.number(std::uint64_t{0});
  put(alive_key(), nobody.seal());
  return is_removed();
}

bool BlobState::is_settled(std::int64_t deadline_ns) const {
  return made_ns_ <= deadline_ns && removal_time_ns(*backend_, folder_) <= deadline_ns;
}

std::int64_t BlobState::removal_time_ns(const Backend& backend, const std::string& folder) {
  const std::string mark = folder + "/gc/" + std::string(kGone);
  try {
    const std::vector<std::byte> sealed = read_all(backend, mark);
    if (sealed.empty()) return 0;  // put by a collector, or by Penstock 0.1
    return Decoder(unseal(sealed, mark), mark).number<std::int64_t>();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::not_found && error.code() != ErrorCode::corrupt) throw;
    return 0;
  }
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
    // Not damaged: an abandoned creation leaves a folder without versions, an abandoned clone one with a mark of its
    // own.
    try {
      const Witness found = read_witness(*backend, blob.folder());
      if (found.name.empty() || found.name == name) continue;
      damaged.push_back({blob.alive_key(), "the object is of another blob", blob.witness(), "it is written anew"});
    } catch (const Error& error) {
      const bool missing = error.code() == ErrorCode::not_found;
      if (!missing && error.code() != ErrorCode::corrupt) throw;
      const auto has_mark = [&](std::string_view mark) { return backend->exists(blob.key("gc/") + std::string(mark)); };
      if (missing && (has_mark(kClone) || has_mark(kNamed))) continue;
      if (missing && backend->list(blob.key("versions")).empty()) continue;
      damaged.push_back({blob.alive_key(), error.what(), blob.witness(),
                         "it is written anew; without it the blob counts as removed"});
    }
  }
  return damaged;
}

/// What replaces an unreadable entry: its copy, if the folder of the blob is found; the entry of a removed blob, if no
/// data can belong to it; otherwise nothing.
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
      if (found.name.empty()) continue;
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
  std::uint64_t freed = 0;
  std::string entry;
  // Creators wait for different times, so that they do not keep giving up each other's creations.
  const auto last_pause = kLastPause * (1 + random_ % 4);
  for (auto pause = kFirstPause;;) {
    freed = freed_numbers(*backend_);
    const Standing now = standing(backend_, name_);
    if (now.blob) {
      throw Error(ErrorCode::exists, title() + " exists already; open it, or choose another name");
    }
    if (now.pending && pause <= last_pause) {
      // Its creator is most likely still at work.
      std::this_thread::sleep_for(pause);
      pause *= 2;
      continue;
    }
    if (now.pending) {
      // If gc/alive got lost, repair puts it back.
      if (const auto damaged = damaged_entries(backend_, name_); !damaged.empty()) {
        throw Error(ErrorCode::corrupt,
                    title() + " is damaged, so it cannot be created; 'penstock store repair " + backend_->url() +
                        "' shows what can be mended",
                    -1, damaged.front().reason);
      }
      if (!now.pending->give_up()) continue;
    }
    if (!has_witness_) begin_folder();
    const std::uint64_t number = now.newest || freed > 0 ? std::max(now.newest.value_or(0), freed) + 1 : 0;
    entry = number == 0 ? first_entry(name_) : numbered_key(later_entries(name_), number);
    const std::vector<std::byte> content = header();
    const ConstBytes piece(content);
    if (is_clone_) backend_->put_if_absent(key("gc/") + std::string(kNamed), {});
    if (backend_->put_if_absent(entry, std::span(&piece, 1))) break;
  }
  if (!confirm(entry, freed)) {
    give_up();
    remove_folder(*backend_, folder_);
    return false;
  }
  follow_news();
  return true;
}

/// Makes the blob exist. The steps and their order: "Names" in docs/design/store-snapshots.md.
bool BlobState::confirm(const std::string& entry, std::uint64_t freed) {
  const auto has_mark = [&](std::string_view mark) { return backend_->exists(key("gc/") + std::string(mark)); };
  // A collector announces the numbers that it frees, then looks at the entries: this sees the one, or it the other.
  if (freed_numbers(*backend_) != freed) return false;
  const std::vector<std::string> entries = backend_->list_unchanged(later_entries(name_));
  if (entries.empty() ? entry != first_entry(name_) : entry != entries.back()) return false;
  // A collector that believes the process of a clone dead puts kUnfinished before it looks for the entry.
  if (has_mark(kUnfinished) || (is_clone_ && !has_mark(kClone))) return false;
  const std::vector<std::byte> sealed = witness();
  const ConstBytes piece(sealed);
  if (!backend_->put_if_absent(alive_key(), std::span(&piece, 1))) return false;
  // Before the witness came, the creation may have been given up and all of it freed.
  BlobState now(backend_, name_);
  if (now.read_entry(entry) && now.folder_ == folder_) {
    if (is_clone_) {
      for (const std::string_view mark : {kClone, kNamed}) backend_->remove(key("gc/") + std::string(mark));
    }
    return true;
  }
  // Without its entry the blob was given up; or it existed, was removed since (kGone) and has a successor.
  return has_mark(kGone);
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
        // The creator of a young blob may go on. Repair handles a blob whose gc/alive is missing without a removal.
        if (now.pending) {
          if (now.pending->made_ns_ > deadline_ns || !damaged_entries(backend, name).empty()) continue;
          if (!now.pending->give_up()) continue;
        }
        std::vector<std::string> entries = backend->list(later_entries(name));
        entries.push_back(first_entry(name));
        bool is_old = true;
        for (const std::string& entry : entries) {
          BlobState blob(backend, name);
          if (!blob.read_entry(entry)) continue;
          if (backend->exists(blob.gone_key())) add(remove_folder(*backend, blob.folder()));
          is_old = is_old && blob.is_settled(deadline_ns);
        }
        // The mark below makes creators start again, so do not put it if nothing can be freed.
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
  // From here on a creator takes a larger number, or sees the mark after it put its entry and gives up.
  for (const std::string& name : dead) {
    std::vector<std::string> entries = backend->list(later_entries(name));
    if (!entries.empty() && number_of(entries.back()) > freed) continue;
    if (!damaged_entries(backend, name).empty()) continue;
    entries.insert(entries.begin(), first_entry(name));  // in this order: no earlier entry may stand for the name
    std::vector<std::string> folders;
    // The look before the mark may be out of date: give up what is pending now, and keep what is there.
    const bool all_removed = std::all_of(entries.begin(), entries.end(), [&](const std::string& entry) {
      BlobState blob(backend, name);
      if (!blob.read_entry(entry)) return true;
      folders.push_back(blob.folder());
      const Existence found = blob.existence();
      if (found == Existence::there || blob.made_ns_ > deadline_ns) return false;
      if (found == Existence::pending && !blob.give_up()) return false;
      return blob.is_settled(deadline_ns);
    });
    if (!all_removed) continue;
    for (const std::string& folder : folders) add(remove_folder(*backend, folder));
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
  Encoder encoder;
  encoder.number(now_ns());
  const std::vector<std::byte> time = encoder.seal();
  const ConstBytes piece(time);
  if (!backend_->put_if_absent(gone_key(), std::span(&piece, 1))) return false;
  // If the witness is missing, an earlier removal came first and its folder, with its mark, was freed. A collector
  // leaves the folder of this removal for a lease, so that this look tells them apart.
  return !has_witness_ || backend_->exists(alive_key());
}

}  // namespace penstock::store
