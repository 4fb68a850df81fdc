// The backend that keeps objects in a pool of Ceph; docs/design/store-ceph.md. Every object has an entry in the map
// (omap) of one of kRadosShards index objects. A small object lies in its entry. The data of a larger one lies in
// stripes, which Ceph spreads over its targets by their names. Exclusive create is one atomic operation on the index
// object: it sets the entry if the key is free.
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <map>
#include <mutex>
#include <random>
#include <unordered_map>

#include "penstock/error.hpp"
#include "store/backend.hpp"
#include "store/rados_append.hpp"
#include "store/rados_entry.hpp"
#include "store/rados_io.hpp"
#include "store/rados_stripes.hpp"
#include "store/store_format.hpp"

namespace penstock::store {

namespace {

constexpr std::uint64_t kInlineBytes = 16 << 10;
/// For entries of logs. Larger than for other objects, since a writer that loses the race for a number tries again and
/// would have to put its stripes each time.
constexpr std::uint64_t kInlineAppendBytes = 128 << 10;
constexpr std::size_t kHeadsKept = 1024;
constexpr unsigned kReadsInFlight = 8;

class RadosBackend final : public Backend {
 public:
  RadosBackend(const RadosPlace& place, bool create)
      : place_(place),
        cluster_(RadosCluster::connect(place)),
        index_(cluster_, place, place.pool),
        data_(cluster_, place, place.data_pool.empty() ? place.pool : place.data_pool),
        appender_(index_) {
    std::random_device random;
    writer_ = (std::uint64_t{random()} << 32) | random();
    auto format = index_.content(std::string(kFormatObject));
    if (!format && !create) {
      throw Error(ErrorCode::not_found,
                  place_.url + ": the pool holds no such store; create it first or correct the URL");
    }
    if (!format) {
      for (std::uint64_t shard = 0; shard < kRadosShards; ++shard) index_.create(shard_object(shard), {});
      index_.create(std::string(kFormatObject), store_format());
      format = index_.content(std::string(kFormatObject));
    }
    check_store_format(format.value_or(""), place_.url + ", object " + std::string(kFormatObject), place_.url);
  }

  bool put_if_absent(std::string_view key, std::span<const ConstBytes> pieces) override {
    check_key(key);
    // Only saves the stripes if the object exists. The index decides.
    if (total(pieces) > kInlineBytes && exists(key)) return false;
    return put(key, pieces, false);
  }

  void put_unannounced(std::string_view key, std::span<const ConstBytes> pieces, bool) override {
    check_key(key);
    if (put(key, pieces, true)) return;
    throw Error(ErrorCode::exists, url() + ": another writer uses the same identity, object " + std::string(key) +
                                       " exists; open the blob again");
  }

  std::uint64_t append(std::string_view prefix, std::uint64_t first, std::span<const ConstBytes> pieces) override {
    const auto entry = entry_to_append(prefix, pieces);
    return entry ? appender_.append(*entry, first) : Backend::append(prefix, first, pieces);
  }

  std::optional<std::uint64_t> append_behind(std::string_view prefix, std::uint64_t known,
                                             std::span<const ConstBytes> pieces) override {
    const auto entry = entry_to_append(prefix, pieces);
    return entry ? appender_.append_behind(*entry, known) : std::nullopt;
  }

  std::uint64_t last_number(std::string_view prefix, std::uint64_t known) const override {
    check_key(prefix);
    if (!in_one_shard(prefix)) return Backend::last_number(prefix, known);
    return appender_.last_number(shard_of(prefix), prefix, known);
  }

  bool finds_last_by_asking() const override { return false; }

  void read(std::string_view key, std::uint64_t offset_bytes, Bytes to) const override {
    check_key(key);
    bool cached = true;
    for (;;) {
      const auto head = cached ? kept_head(key) : find(key);
      if (offset_bytes > head->size_bytes || to.size() > head->size_bytes - offset_bytes) {
        throw Error(ErrorCode::corrupt, url() + ": object " + std::string(key) + " has " +
                                            std::to_string(head->size_bytes) + " bytes; expected " +
                                            std::to_string(to.size()) + " at offset " + std::to_string(offset_bytes));
      }
      if (to.empty()) return;
      if (head->stripe_bytes == 0) {
        std::copy_n(head->data.data() + offset_bytes, to.size(), to.data());
        return;
      }
      const int status = read_stripes(data_, key, *head, offset_bytes, to);
      if (status == 0) return;
      forget(key);
      if (status != -ENOENT && status != -ERANGE) data_.fail("cannot read " + std::string(key), status);
      if (!cached) {
        throw Error(ErrorCode::corrupt, url() + ": object " + std::string(key) + " lacks a stripe or a part of one");
      }
      cached = false;  // the object was removed, and perhaps put again: read its entry
    }
  }

  /// Reads all in one go and copies, since one operation takes as long as copying megabytes.
  void read_scattered(std::string_view key, std::uint64_t offset_bytes, std::span<const Bytes> targets) const override {
    read_together(*this, key, offset_bytes, targets);
  }

  ReadShape read_shape() const override { return {place_.stripe_bytes, kReadsInFlight, 0}; }

  std::uint64_t size_bytes(std::string_view key) const override {
    check_key(key);
    return find(key)->size_bytes;
  }

  std::vector<std::byte> contents(std::string_view key) const override {
    check_key(key);
    const auto head = find(key);
    if (head->stripe_bytes == 0) return head->data;
    return Backend::contents(key);
  }

  bool exists(std::string_view key) const override {
    check_key(key);
    return index_.has_value(shard_of(key), std::string(key));
  }

  std::vector<std::vector<std::byte>> contents_of(std::span<const std::string> keys, std::uint64_t) const override {
    std::map<std::string, std::vector<std::string>> shards;
    for (const std::string& key : keys) shards[shard_of(key)].push_back(key);
    std::map<std::string, std::vector<std::byte>> found;
    for (const auto& [shard, names] : shards) {
      for (const auto& [name, value] : index_.values(shard, names)) {
        RadosEntry entry = decode_rados_entry(value, url() + ": the entry of " + name);
        if (entry.stripe_bytes == 0) found[name] = std::move(entry.data);
      }
    }
    std::vector<std::vector<std::byte>> all;
    for (const std::string& key : keys) all.push_back(std::move(found[key]));
    return all;
  }

  std::vector<std::string> list_unchanged(std::string_view prefix) const override {
    check_key(prefix);
    if (in_one_shard(prefix)) {
      if (auto keys = index_.keys_at_once(shard_of(prefix), std::string(prefix) + '/')) return *keys;
    }
    return Backend::list_unchanged(prefix);
  }

  std::vector<std::string> list(std::string_view prefix) const override {
    check_key(prefix);
    const std::string start = std::string(prefix) + '/';
    if (in_one_shard(prefix)) return index_.keys(shard_of(prefix), start);
    std::vector<std::string> all;
    for (std::uint64_t shard = 0; shard < kRadosShards; ++shard) {
      const std::vector<std::string> some = index_.keys(shard_object(shard), start);
      all.insert(all.end(), some.begin(), some.end());
    }
    std::sort(all.begin(), all.end());
    return all;
  }

  bool remove(std::string_view key) override {
    check_key(key);
    const std::string name(key);
    const std::string shard = shard_of(key);
    forget(key);
    for (;;) {
      const RadosIo::Values found = index_.values(shard, {name});
      if (found.empty()) return false;
      RadosBatch batch(index_);
      batch.change(shard, {.equal = found, .absent = {}, .present = {}, .set = {}, .remove = {name}});
      const int status = batch.wait();
      if (status == -ECANCELED) continue;
      if (status < 0) index_.fail("cannot remove " + name, status);
      const RadosEntry head = decode_rados_entry(found.at(name), url() + ": the entry of " + name);
      remove_stripes_of(key, head);
      return true;
    }
  }

  std::uint64_t reclaim(std::chrono::seconds age) override {
    std::map<std::pair<std::string, std::string>, std::vector<std::string>> attempts;
    for (const std::string& name : data_.objects()) {
      const std::size_t first = name.find('@');
      const std::size_t second = first == std::string::npos ? first : name.find('@', first + 1);
      if (second == std::string::npos) continue;
      attempts[{name.substr(0, first), name.substr(first + 1, second - first - 1)}].push_back(name);
    }
    std::uint64_t freed_bytes = 0;
    for (const auto& [attempt, stripes] : attempts) freed_bytes += reclaim(attempt.first, attempt.second, stripes, age);
    return freed_bytes;
  }

  const std::string& url() const override { return place_.url; }

 private:
  enum class Entered { made, exists, given_up };

  static std::uint64_t total(std::span<const ConstBytes> pieces) {
    std::uint64_t bytes = 0;
    for (const ConstBytes piece : pieces) bytes += piece.size();
    return bytes;
  }

  static bool in_one_shard(std::string_view prefix) { return prefix.find('/') != std::string_view::npos; }

  /// Nothing if the pieces are too long for an entry, or if the shard depends on the number.
  std::optional<RadosAppender::Entry> entry_to_append(std::string_view prefix, std::span<const ConstBytes> pieces) {
    check_key(prefix);
    if (!in_one_shard(prefix) || total(pieces) > kInlineAppendBytes) return std::nullopt;
    const RadosEntry entry{new_id(), total(pieces), 0, {}};
    return RadosAppender::Entry{shard_of(numbered_key(prefix, 0)), std::string(prefix), entry.id,
                                encode(entry, pieces)};
  }

  std::string new_id() {
    char id[40];
    std::snprintf(id, sizeof id, "%016llx%08llx", static_cast<unsigned long long>(writer_),
                  static_cast<unsigned long long>(counter_.fetch_add(1)));
    return id;
  }

  bool put(std::string_view key, std::span<const ConstBytes> pieces, bool unannounced) {
    const std::uint64_t size_bytes = total(pieces);
    for (;;) {
      RadosEntry head{
          new_id(), size_bytes, size_bytes > kInlineBytes ? stripe_bytes_of(size_bytes, place_.stripe_bytes) : 0, {}};
      const std::string value = encode(head, pieces);
      if (head.stripe_bytes == 0) return enter(key, head.id, value) == Entered::made;
      RadosBatch entry(index_);
      RadosBatch stripes(data_);
      start_stripes(stripes, key, head, pieces);
      if (unannounced) {
        // No process looks for this entry yet, so it need not wait for all stripes. But it must not
        // come first: writers read the index object when they begin, and those reads wait for this entry.
        stripes.wait_for_oldest();
        start_entry(entry, key, head.id, value);
      }
      const int status = stripes.wait();
      Entered entered = Entered::exists;
      if (status < 0) {
        if (unannounced && outcome(entry.wait(), key, head.id) == Entered::made) remove(key);
        give_up_stripes(key, head);
        data_.fail("cannot write " + std::string(key), status);
      }
      entered = unannounced ? outcome(entry.wait(), key, head.id) : enter(key, head.id, value);
      if (entered == Entered::made) return true;
      give_up_stripes(key, head);
      if (entered == Entered::exists) return false;
    }
  }

  static void start_entry(RadosBatch& batch, std::string_view key, const std::string& id, const std::string& value) {
    batch.change(shard_of(key), {.equal = {},
                                 .absent = {std::string(key), grave(id)},
                                 .present = {},
                                 .set = {{std::string(key), value}},
                                 .remove = {}});
  }

  Entered enter(std::string_view key, const std::string& id, const std::string& value) {
    RadosBatch batch(index_);
    start_entry(batch, key, id, value);
    return outcome(batch.wait(), key, id);
  }

  /// Ceph repeats operations whose reply was lost, and recognises only recent repetitions. So the entry that is in the
  /// way may be ours.
  Entered outcome(int status, std::string_view key, const std::string& id) const {
    if (status == 0) return Entered::made;
    if (status != -ECANCELED) index_.fail("cannot create " + std::string(key), status);
    const std::string name(key);
    const RadosIo::Values found = index_.values(shard_of(key), {name, grave(id)});
    if (const auto at = found.find(name); at != found.end()) {
      return decode_rados_entry(at->second, url() + ": the entry of " + name).id == id ? Entered::made
                                                                                       : Entered::exists;
    }
    // If neither is there, the entry in the way was removed just now. That counts as a removal after our attempt.
    return found.contains(grave(id)) ? Entered::given_up : Entered::exists;
  }

  void remove_stripes_of(std::string_view key, const RadosEntry& entry) {
    const int status = remove_stripes(data_, key, entry);
    if (status < 0 && status != -ENOENT) data_.fail("cannot remove " + std::string(key), status);
  }

  /// The next reclaim removes what stays.
  void give_up_stripes(std::string_view key, const RadosEntry& head) noexcept {
    try {
      remove_stripes_of(key, head);
    } catch (const Error&) {
    }
  }

  std::uint64_t reclaim(const std::string& key, const std::string& id, const std::vector<std::string>& stripes,
                        std::chrono::seconds age) {
    const std::string shard = shard_of(key);
    if (owns(shard, key, id)) return 0;
    std::uint64_t bytes = 0;
    for (const std::string& stripe : stripes) {
      const auto found = data_.stat(stripe);
      if (!found) continue;
      if (std::time(nullptr) - found->modified_s < age.count()) return 0;
      bytes += found->size_bytes;
    }
    // With its grave the attempt cannot succeed any more, however slow its writer is. The grave stays, since the last
    // operation of the writer may come at any time.
    RadosBatch batch(index_);
    batch.change(shard, {.equal = {}, .absent = {}, .present = {}, .set = {{grave(id), "1"}}, .remove = {}});
    if (const int status = batch.wait(); status < 0) index_.fail("cannot give up " + key, status);
    if (owns(shard, key, id)) return 0;
    RadosBatch removal(data_);
    for (const std::string& stripe : stripes) removal.remove(stripe);
    const int status = removal.wait();
    if (status < 0 && status != -ENOENT) data_.fail("cannot remove what is left of " + key, status);
    return bytes;
  }

  bool owns(const std::string& shard, const std::string& key, const std::string& id) const {
    const RadosIo::Values found = index_.values(shard, {key});
    return !found.empty() && decode_rados_entry(found.begin()->second, url() + ": the entry of " + key).id == id;
  }

  std::shared_ptr<const RadosEntry> find(std::string_view key) const {
    const std::string name(key);
    const RadosIo::Values found = index_.values(shard_of(key), {name});
    if (found.empty()) throw Error(ErrorCode::not_found, url() + ": no object " + name);
    auto head =
        std::make_shared<const RadosEntry>(decode_rados_entry(found.begin()->second, url() + ": the entry of " + name));
    if (head->stripe_bytes == 0) return head;
    const std::lock_guard lock(heads_mutex_);
    if (heads_.size() >= kHeadsKept) heads_.clear();
    heads_[name] = head;
    return head;
  }

  std::shared_ptr<const RadosEntry> kept_head(std::string_view key) const {
    {
      const std::lock_guard lock(heads_mutex_);
      if (const auto at = heads_.find(std::string(key)); at != heads_.end()) return at->second;
    }
    return find(key);
  }

  void forget(std::string_view key) const {
    const std::lock_guard lock(heads_mutex_);
    heads_.erase(std::string(key));
  }

  const RadosPlace place_;
  const std::shared_ptr<RadosCluster> cluster_;
  RadosIo index_;
  RadosIo data_;
  RadosAppender appender_;
  std::uint64_t writer_ = 0;
  std::atomic<std::uint64_t> counter_{0};
  mutable std::mutex heads_mutex_;
  mutable std::unordered_map<std::string, std::shared_ptr<const RadosEntry>> heads_;  ///< of striped objects
};

}  // namespace

std::shared_ptr<Backend> open_rados(std::string_view, const std::string& url, const BackendOptions& options) {
  auto backend = std::make_shared<RadosBackend>(parse_rados_url(url), options.create);
  probe_once(*backend);
  return backend;
}

}  // namespace penstock::store
