#include "store/blob_state.hpp"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <map>
#include <random>

#include "penstock/error.hpp"

namespace penstock::store {

namespace {

std::uint64_t random_number() {
  std::random_device random;
  return (std::uint64_t{random()} << 32) | random();
}

}  // namespace

std::uint64_t BlobState::writer() const {
  return random_ ^ (static_cast<std::uint64_t>(getpid()) * 0x9E3779B97F4A7C15u);
}

std::string BlobState::writer_name() {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  return std::string(host) + ':' + std::to_string(getpid());
}

/// The newest version of a blob that this process has seen. All states of the blob in this process share it.
struct BlobState::News {
  std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t newest = 0;
  std::atomic<bool> log_checked{false};

  static std::shared_ptr<News> of(const std::string& blob) {
    static std::mutex mutex;
    static std::map<std::string, std::weak_ptr<News>> all;
    const std::lock_guard lock(mutex);
    std::erase_if(all, [](const auto& entry) { return entry.second.expired(); });
    std::shared_ptr<News> news = all[blob].lock();
    if (!news) all[blob] = news = std::make_shared<News>();
    return news;
  }
};

std::int64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

std::int64_t begin_of(std::chrono::seconds lease) {
  // Not before 1970: the nanoseconds of a longer lease would overflow.
  const std::int64_t now = now_ns();
  return lease.count() > now / 1'000'000'000 ? 0 : now - std::chrono::nanoseconds(lease).count();
}

BlobState::BlobState(std::shared_ptr<Backend> backend, std::string_view name)
    : backend_(std::move(backend)), name_(name), random_(random_number()), folder_("blobs/" + name_) {
  check_key(name_);
  if (name_.find('/') != std::string::npos) {
    throw Error(ErrorCode::invalid_argument, "'" + name_ + "' is not a name for a blob; expected one without '/'");
  }
}

std::string BlobState::title() const { return backend_->url() + ", blob '" + name_ + "'"; }

std::shared_ptr<BlobState> BlobState::create(std::shared_ptr<Backend> backend, std::string_view name,
                                             const BlobOptions& options) {
  // The entry is durable even if writes are not: without it the whole blob is lost.
  const std::shared_ptr<Backend> durable = durable_backend(backend);
  for (;;) {
    std::shared_ptr<BlobState> blob(new BlobState(durable, name));
    if (options.size_bytes > kMostBlobBytes) {
      throw Error(ErrorCode::invalid_argument, blob->title() + ": a size of " + std::to_string(options.size_bytes) +
                                                   " bytes was given, at most 2^63 is possible");
    }
    blob->size_bytes_ = options.size_bytes;
    blob->grows_ = options.grows;
    blob->blob_id_ = random_number();
    if (!blob->announce()) continue;
    if (durable == backend) return blob;
    std::shared_ptr<BlobState> other(new BlobState(backend, name));
    other->folder_ = blob->folder_;
    other->blob_id_ = blob->blob_id_;
    other->size_bytes_ = blob->size_bytes_;
    other->made_ns_ = blob->made_ns_;
    other->grows_ = blob->grows_;
    other->has_witness_ = blob->has_witness_;
    other->follow_news();
    return other;
  }
}

void BlobState::begin_folder() {
  char name[80];
  std::snprintf(name, sizeof name, "%s/%020llu-%016llx", std::string(kFolders).c_str(),
                static_cast<unsigned long long>(now_ns()), static_cast<unsigned long long>(random_number()));
  folder_ = name;
  has_witness_ = true;
  made_ns_ = now_ns();
}

std::shared_ptr<BlobState> BlobState::prepare_clone(std::string_view name, const VersionMap& map) const {
  std::shared_ptr<BlobState> clone(new BlobState(backend_, name));
  clone->grows_ = grows_;
  clone->size_bytes_ = map.size_bytes();
  clone->blob_id_ = random_number();
  return clone;
}

void BlobState::follow_news() { news_ = News::of(title() + ' ' + folder_); }

BlobState::Marks BlobState::marks() const {
  Marks marks;
  bool gone = has_witness_;
  bool may_be_given_up = false;
  for (const std::string& mark : backend_->list_unchanged(key("gc"))) {
    const std::string_view name = std::string_view(mark).substr(mark.find_last_of('/') + 1);
    if (name == kAlive) gone = false;
    if (name == kUnfinished) may_be_given_up = true;
    if (name == kGone) {
      gone = true;
      break;
    }
    const std::size_t dash = name.find('-');
    if (dash == std::string_view::npos) continue;
    const std::uint64_t number = number_of(name.substr(dash + 1));
    if (name.starts_with("keep-")) marks.keep_from = std::max(marks.keep_from, number);
    if (name.starts_with("fence-")) marks.fence_below = std::max(marks.fence_below, number);
    if (name.starts_with("base-")) marks.bases.push_back(number);
    if (name.starts_with("repair-")) marks.repairs = std::max(marks.repairs, number);
  }
  std::uint64_t seen = seen_repairs_.load();
  while (seen < marks.repairs && !seen_repairs_.compare_exchange_weak(seen, marks.repairs)) continue;
  // A process that gives up a creation puts kUnfinished first.
  if (may_be_given_up && !gone) gone = is_removed();
  if (gone) throw Error(ErrorCode::not_found, title() + " was removed; create it again, or list the store's blobs");
  return marks;
}

void BlobState::learn(std::uint64_t version) {
  std::uint64_t known = known_.load();
  while (known < version && !known_.compare_exchange_weak(known, version)) continue;
  {
    const std::lock_guard lock(news_->mutex);
    if (news_->newest >= version) return;
    news_->newest = version;
  }
  news_->changed.notify_all();
}

std::uint64_t BlobState::latest() {
  std::uint64_t low = known_.load();
  if (low == 0 && !backend_->finds_last_by_asking()) low = list_indexes(kLatest);
  for (;;) {
    low = backend_->last_number(key("versions"), low);
    // A missing version may have been collected. The collector put its keep mark first, so one look now shows it.
    const std::uint64_t keep_from = marks().keep_from;
    if (keep_from <= low) break;
    low = keep_from;
  }
  learn(low);
  return low;
}

bool BlobState::wait(std::uint64_t version, std::chrono::nanoseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  auto pause = std::chrono::microseconds(50);
  for (;;) {
    if (version <= known_.load() || version <= latest()) return true;
    const auto now = std::chrono::steady_clock::now();
    if (now >= deadline) return false;
    // A version that this process makes or sees ends the wait. Versions of other processes need polling.
    std::unique_lock lock(news_->mutex);
    news_->changed.wait_until(lock, std::min<std::chrono::steady_clock::time_point>(deadline, now + pause),
                              [&] { return news_->newest >= version; });
    pause = std::min(pause * 2, std::chrono::microseconds(10'000));
  }
}

void BlobState::check_log() {
  if (news_->log_checked.load()) return;
  std::string damage;
  try {
    backend_->settle();
    // After a loss of power an unsynced object may exist although objects that were put before it do not. The order
    // matters: if a repair fills the gap between the two steps, later versions become the newest, and map_at reads
    // them.
    if (backend_->may_be_torn()) {
      const std::vector<std::string> stray = beyond_newest();
      if (!stray.empty()) {
        damage = "the object " + stray.front() + " is there, and the record of version " +
                 std::to_string(known_.load() + 1) + " is missing";
      }
    }
    // After a loss of power a delta may hide a record that is torn.
    if (backend_->may_be_torn()) {
      map_at(kLatest);
    } else {
      lookup_map_at(kLatest);
    }
  } catch (const Error& error) {
    if (error.code() != ErrorCode::corrupt) throw;
    damage = error.what();
  }
  if (!damage.empty()) {
    throw Error(ErrorCode::corrupt,
                title() +
                    ": nothing can be written, because what follows a damaged version cannot be read; 'penstock store "
                    "repair " +
                    backend_->url() + "' shows what can be mended",
                -1, damage);
  }
  news_->log_checked = true;
}

std::vector<std::string> BlobState::beyond_newest() {
  std::vector<std::string> found;
  for (const char* folder : {"versions", "index", "delta", "compact", "confirmed"}) {
    for (std::string& object : backend_->list(key(folder))) found.push_back(std::move(object));
  }
  // latest() comes second: objects that others put during the listing belong to versions that exist by now.
  const std::uint64_t newest = latest();
  std::erase_if(found, [&](const std::string& object) { return number_of(object) <= newest; });
  return found;
}

void BlobState::settle(std::uint64_t version) {
  try {
    backend_->settle();
  } catch (const Error& error) {
    throw Error(error.code(),
                title() + ": version " + std::to_string(version) +
                    " was made, but a power failure may lose it, since versions before it are not on the device: " +
                    error.message(),
                -1, error.cause());
  }
}

void BlobState::fail_collected(std::uint64_t version, std::uint64_t keep_from) const {
  throw Error(ErrorCode::not_found, title() + ": version " + std::to_string(version) +
                                        " was collected; the oldest that is kept is " + std::to_string(keep_from));
}

Record BlobState::decode_of(std::uint64_t version, std::span<const std::byte> sealed) const {
  const std::string name = record_key(version);
  Record record = decode_record(sealed, backend_->url() + ": object " + name);
  if (record.blob_id == blob_id_) return record;
  throw Error(ErrorCode::corrupt, backend_->url() + ": object " + name + " belongs to another blob");
}

Record BlobState::record(std::uint64_t version) {
  const std::string record_name = record_key(version);
  try {
    return decode_of(version, read_all(*backend_, record_name));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::not_found) throw;
    const Marks found = marks();
    if (version < found.keep_from) fail_collected(version, found.keep_from);
    throw Error(ErrorCode::corrupt, title() + ": the record of version " + std::to_string(version) +
                                        " is missing (object " + record_name + "); restore it from a copy");
  }
}

}  // namespace penstock::store
