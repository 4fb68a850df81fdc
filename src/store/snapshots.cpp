// Tags, compaction and clones: see docs/design/store-snapshots.md.
#include <algorithm>

#include "penstock/error.hpp"
#include "store/blob_state.hpp"
#include "store/encoding.hpp"

namespace penstock::store {

namespace {

constexpr std::uint32_t kTagMagic = 0x47545350;  // "PSTG"
/// The size of the data objects of a compacted version. One of them at a time is in memory.
constexpr std::uint64_t kCompactBytes = 64 << 20;

/// The name of a data object in a clone's folder: "…/data/<base>-<rest>" → "<folder>/data/0-<rest>". The base is 0,
/// since a collector would take another one for a version of the clone.
std::string adopted_key(const std::string& folder, const std::string& key) {
  const std::string name = key.substr(key.find_last_of('/') + 1);
  return folder + "/data/" + std::string(20, '0') + name.substr(name.find('-'));
}

}  // namespace

std::string BlobState::tag_key(std::string_view name) const {
  const std::string found = key("tags/") + std::string(name);
  if (name.find('/') == std::string_view::npos) check_key(found);
  if (name.empty() || name.find('/') != std::string_view::npos) {
    throw Error(ErrorCode::invalid_argument,
                "'" + std::string(name) + "' is not a name for a tag: expected letters, digits, '.', '_' and '-'");
  }
  return found;
}

void BlobState::tag(std::string_view name, std::uint64_t version) {
  const std::string tag_name = tag_key(name);
  version = map_at(version)->version();
  if (const std::uint64_t keep_from = marks().keep_from; version < keep_from) fail_collected(version, keep_from);
  // After a loss of power the index and the tag must not be there without the version and its objects.
  backend_->settle();
  put_index(version);
  backend_->settle();
  Encoder encoder;
  encode_head(encoder, kTagMagic);
  encoder.number(blob_id_);
  encoder.number(version);
  const std::vector<std::byte> sealed = encoder.seal();
  const ConstBytes piece(sealed);
  if (!backend_->put_if_absent(tag_name, std::span(&piece, 1))) {
    throw Error(ErrorCode::exists, title() + " has a tag '" + std::string(name) + "' already; remove it first");
  }
  // A gc looks for tags after it has put its keep mark. If no keep mark is above this version by now, the tag is seen.
  if (const std::uint64_t keep_from = marks().keep_from; version < keep_from) {
    backend_->remove(tag_name);
    fail_collected(version, keep_from);
  }
}

void BlobState::untag(std::string_view name) {
  if (backend_->remove(tag_key(name))) return;
  throw Error(ErrorCode::not_found, title() + " has no tag '" + std::string(name) + "'");
}

std::vector<std::pair<std::string, std::uint64_t>> BlobState::tags() const {
  std::vector<std::pair<std::string, std::uint64_t>> found;
  for (const std::string& tag_name : backend_->list(key("tags"))) {
    const std::string name = tag_name.substr(tag_name.find_last_of('/') + 1);
    try {
      found.emplace_back(name, read_tag(name));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::not_found) throw;  // not_found: the tag was removed during the listing
    }
  }
  return found;
}

std::uint64_t BlobState::read_tag(std::string_view name) const {
  const std::string object = tag_key(name);
  const std::string source = backend_->url() + ": object " + object;
  const std::vector<std::byte> sealed = read_all(*backend_, object);
  Decoder decoder(unseal(sealed, source), source);
  decode_head(decoder, kTagMagic, source);
  if (decoder.number<std::uint64_t>() != blob_id_) decoder.fail("belongs to another blob");
  return decoder.number<std::uint64_t>();
}

void BlobState::compact(std::uint64_t version) {
  version = map_at(version)->version();
  const std::string name = compacted_key(version);
  for (;;) {
    if (backend_->exists(name)) return;
    const std::uint64_t repairs = marks().repairs;
    const auto map = map_at(version);
    std::vector<Part> parts;
    std::uint64_t base = kLatest;
    std::vector<std::byte> buffer;
    for (const Extent& range : map->stored_ranges()) {
      for (std::uint64_t done = 0; done < range.size_bytes;) {
        buffer.resize(std::min(kCompactBytes, range.size_bytes - done));
        const ReadRegion from{range.offset_bytes + done, buffer};
        read(*map, std::span(&from, 1));
        const WriteRegion to{from.offset_bytes, buffer};
        parts.push_back(stage(std::span(&to, 1)));
        base = std::min(base, parts.back().base);
        done += buffer.size();
      }
    }
    const std::vector<std::byte> sealed = map->moved(parts).encode();
    const ConstBytes piece(sealed);
    const bool mine = backend_->put_if_absent(name, std::span(&piece, 1));
    // A gc lists the compacted maps after it has appended its fence. So it sees ours, unless its fence is in the log by
    // now. The mark alone does not tell, since its gc may have died before the fence.
    const Marks found = marks();
    const bool given_up =
        found.repairs != repairs || (base < found.fence_below && lookup_map_at(kLatest)->fences(base));
    // Collectors keep what was copied until this mark is there: the copy may still be taken back.
    if (mine && !given_up) return static_cast<void>(backend_->put_if_absent(confirmed_key(version), {}));
    if (mine) backend_->remove(name);
    for (const Part& part : parts) {
      if (!part.object.key.empty()) backend_->remove(part.object.key);
    }
  }
}

void BlobState::clone(std::uint64_t version, std::string_view name) {
  // Durable even if writes are not, as a creation is: durable writers rely on what the clone begins with.
  if (const auto durable = durable_backend(backend_); durable != backend_) {
    return open(durable, name_)->clone(version, name);
  }
  marks();  // a repair may have given up what this process knows
  const auto map = readable_map_at(version, Loading::whole);
  const auto clone = prepare_clone(name, *map);
  if (find(backend_, clone->name())) {
    throw Error(ErrorCode::exists, clone->title() + " exists already; choose another name");
  }
  clone->begin_folder();
  clone->is_clone_ = true;
  backend_->put_if_absent(clone->key("gc/") + std::string(kClone), {});
  std::vector<std::pair<std::string, std::string>> copies;
  for (const auto& source : map->sources()) {
    if (!source->is_object()) continue;
    copies.emplace_back(source->object().key, adopted_key(clone->folder_, source->object().key));
  }
  try {
    backend_->copy_all(copies);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::not_found) throw;
    if (const std::uint64_t keep_from = marks().keep_from; map->version() < keep_from) {
      fail_collected(map->version(), keep_from);
    }
    throw;
  }
  const VersionMap first = map->adopted(clone->blob_id_, [&](const ObjectReference& object) {
    ObjectReference renamed = object;
    renamed.key = adopted_key(clone->folder_, object.key);
    return renamed;
  });
  // The clone begins as a blob whose version 0 was collected.
  Record record;
  record.blob_id = clone->blob_id_;
  record.time_ns = now_ns();
  record.writer = writer_name();
  record.identity = 1;
  put(clone->index_key(1), first.encode());
  put(clone->record_key(1), encode(record));
  put(numbered_key(clone->key("gc"), 1).insert(clone->key("gc/").size(), "keep-"), {});
  backend_->settle();  // for the shared data, too
  if (!clone->announce()) {
    throw Error(ErrorCode::io,
                clone->title() +
                    ": a gc took the unfinished clone for one of a dead process; repeat it, and give gc a "
                    "longer lease");
  }
}

}  // namespace penstock::store
