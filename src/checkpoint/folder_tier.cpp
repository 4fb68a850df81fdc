#include "checkpoint/folder_tier.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/json.hpp"
#include "checkpoint/peers.hpp"
#include "penstock/error.hpp"

namespace penstock::checkpoint {

namespace {

constexpr std::chrono::hours kDeadWriter{1};
// Records of jobs are never removed, so a listing cannot miss the newest between two removals.
constexpr std::string_view kJobs = "checkpoints/jobs";

class FolderTier final : public Tier {
 public:
  explicit FolderTier(std::shared_ptr<store::Backend> backend) : backend_(std::move(backend)) {}

  const std::string& url() const override { return backend_->url(); }
  std::string title() const override { return backend_->url(); }
  std::string name_of(const Version& version, int rank) const override {
    const Attempt attempt = known_attempt(version);
    return url() + ": object " + (rank < 0 ? manifest_key(attempt) : data_key(attempt, rank));
  }

  std::map<Version, Holding> list() const override {
    std::map<Version, Holding> versions;
    std::map<Version, Attempts> resumed;
    for (auto& [version, attempts] : list_attempts(*backend_)) {
      versions.emplace(version, attempts.at(counted(version, attempts).job));
      if (attempts.rbegin()->first != version.generation) resumed.emplace(version, std::move(attempts));
    }
    const std::lock_guard lock(mutex_);
    resumed_ = std::move(resumed);
    return versions;
  }

  std::string manifest(const Version& version) const override {
    std::vector<std::byte> bytes;
    find(version, [&](const Attempt& attempt) { bytes = store::read_all(*backend_, manifest_key(attempt)); });
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  void read(const Version& version, int rank, const ObjectInfo&, std::uint64_t offset_bytes, Bytes to) const override {
    find(version, [&](const Attempt& attempt) { backend_->read(data_key(attempt, rank), offset_bytes, to); });
  }

  std::uint64_t request_bytes() const override {
    return std::min<std::uint64_t>(kMostRequestBytes, backend_->read_shape().piece_bytes);
  }

  std::uint64_t take_generation(std::uint64_t seen) override {
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    const std::string record = json::Object().string("host", host).number("pid", getpid()).finish() + '\n';
    const ConstBytes piece = std::as_bytes(std::span(record));
    return backend_->append(kJobs, std::max(last_job(), seen) + 1, std::span(&piece, 1));
  }

  void check_generation(std::uint64_t generation) const override {
    const std::uint64_t newest = last_job();
    if (newest > generation) throw fenced(title(), newest, who(newest), generation);
  }

  void reclaim(std::uint64_t generation, const std::map<Version, Holding>&, const std::set<Version>& complete,
               const Warn& warn) override {
    std::map<Version, Attempts> held;
    try_to(warn, "listing checkpoints", [&] { held = list_attempts(*backend_); });
    for (const auto& [version, attempts] : held) {
      for (const auto& [job, holding] : attempts) {
        const bool nothing_left = holding.ranks.empty() && !holding.manifest;
        // If a burst buffer is local to nodes, the manifest is on another one.
        const bool whole = holding.complete() || (attempts.size() == 1 && complete.contains(version));
        if (job >= generation || whole || nothing_left) continue;
        const Attempt attempt(version, job);
        try_to(warn, "removing what is left of " + describe(version), [&] {
          // A job that was stopped just before it creates the manifest must not complete what is removed here.
          backend_->put_if_absent(abandoned_key(attempt), {});
          if (holding.manifest) backend_->remove(manifest_key(attempt));
          checkpoint::remove_data(*backend_, attempt, holding.ranks);
        });
      }
    }
    try_to(warn, "removing files of dead runs", [&] { backend_->reclaim(kDeadWriter); });
  }

  Written write(const Attempt& attempt, int rank, const Content& content, const Base&) override {
    const ObjectInfo& info = content.info;
    if (info.size_bytes == 0) return {};
    const std::string key = data_key(attempt, rank);
    const auto begin = [&content] {
      const std::shared_ptr<ChunkStream> chunks = content.open({{0, content.digests.size()}});
      return [&content, chunks, rest = ConstBytes(), last = false]() mutable -> ConstBytes {
        content.give_way();
        if (rest.empty()) {
          chunks->release();
          if (const auto piece = chunks->next()) rest = piece->data;
        }
        const ConstBytes part = rest.first(std::min<std::size_t>(rest.size(), StreamShape::kPieceBytes));
        rest = rest.subspan(part.size());
        if (!part.empty()) return part;
        return std::exchange(last, true) ? ConstBytes{} : std::as_bytes(std::span(content.digests));
      };
    };
    if (!backend_->put_stream_if_absent(key, {info.size_bytes, begin, content.read_soon})) throw taken(key);
    if (const std::uint64_t found_bytes = backend_->size_bytes(key); found_bytes != info.size_bytes) {
      throw Error(ErrorCode::corrupt, url() + ": object " + key + " has " + std::to_string(found_bytes) +
                                          " bytes just after it was written; expected " +
                                          std::to_string(info.size_bytes));
    }
    return {};
  }

  void discard(const Attempt& attempt, int rank, const Written&, const Warn& warn) override {
    const std::string key = data_key(attempt, rank);
    try_to(warn, "removing " + key, [&] { backend_->remove(key); });
  }

  Publication publish(const Attempt& attempt, const Draft& draft, const Tier& slow) override {
    Publication result;
    const std::string key = manifest_key(attempt);
    const ConstBytes text = std::as_bytes(std::span(draft.manifest.data(), draft.manifest.size()));
    bool foreign = false;
    bool stays = false;
    result.failure = checkpoint::attempt("", 0, [&] {
      foreign = !backend_->put_if_absent(key, std::span(&text, 1));
      if (foreign) throw taken(key);
      // A newer job may have seen it here, and have removed it from the burst buffer.
      stays = draft.drained;
      // If no newer job has begun by now, any that begins later counts this checkpoint as older than its own.
      slow.check_generation(attempt.job);
    });
    if (result.failure) {
      result.gone = !foreign && !stays && !checkpoint::attempt("", 0, [&] { backend_->remove(key); });
    } else {
      result.number = 1;
    }
    return result;
  }

  void copy_manifest(const Version& version, const std::string& manifest) override {
    const ConstBytes text = std::as_bytes(std::span(manifest.data(), manifest.size()));
    if (!backend_->put_if_absent(manifest_key(version), std::span(&text, 1))) throw taken(manifest_key(version));
  }

  void remove(const Version& version) override {
    Attempts attempts;
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = resumed_.find(version); found != resumed_.end()) attempts = found->second;
    }
    // A job that was stopped just before it creates the manifest must not complete what is removed here.
    const auto abandon = [this](const Attempt& attempt, const Holding& holding) {
      if (!holding.manifest && !holding.abandoned) backend_->put_if_absent(abandoned_key(attempt), {});
    };
    if (!attempts.empty()) abandon(version, attempts[version.generation]);
    backend_->remove(manifest_key(version));
    // Few: this process removes their data, too.
    for (const auto& [job, holding] : attempts) {
      const Attempt attempt(version, job);
      if (!attempt.resumed()) continue;
      abandon(attempt, holding);
      if (holding.manifest) backend_->remove(manifest_key(attempt));
      checkpoint::remove_data(*backend_, attempt, holding.ranks);
    }
  }
  void mark_removed(const Version& version) override { backend_->put_if_absent(removed_key(version), {}); }
  void remove_data(const Version& version, const std::vector<int>& ranks) override {
    checkpoint::remove_data(*backend_, version, ranks);
  }

 private:
  /// The attempt that counts, as the last listing has seen it.
  Attempt known_attempt(const Version& version) const {
    const std::lock_guard lock(mutex_);
    const auto found = resumed_.find(version);
    return found == resumed_.end() ? Attempt(version) : counted(version, found->second);
  }

  /// Runs `action` with the attempt that counts. This process may not have listed since a drain was resumed.
  void find(const Version& version, const std::function<void(const Attempt&)>& action) const {
    const Attempt known = known_attempt(version);
    try {
      action(known);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::not_found) throw;
      const auto unlisted = checkpoint::attempt("", -1, [&] { list(); });
      const Attempt found = known_attempt(version);
      if (unlisted || found.job == known.job) throw;
      action(found);
    }
  }

  Error taken(const std::string& key) const {
    return {ErrorCode::exists, url() + ": object " + key + " exists already; was it put there by another program?"};
  }

  std::uint64_t last_job() const {
    const std::vector<std::string> jobs = backend_->list(kJobs);
    return jobs.empty() ? 0 : store::number_of(jobs.back());
  }

  /// " (host node7, process 812)", or nothing if that cannot be read.
  std::string who(std::uint64_t generation) const {
    try {
      const std::vector<std::byte> bytes = backend_->contents(store::numbered_key(kJobs, generation));
      const json::Value record = json::Value::parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
      return " (host " + record.at("host").text() + ", process " + std::to_string(record.at("pid").number()) + ")";
    } catch (const Error&) {
      return "";
    }
  }

  const std::shared_ptr<store::Backend> backend_;
  mutable std::mutex mutex_;
  mutable std::map<Version, Attempts> resumed_;  ///< of which a later job has drained one; as listed last
};

}  // namespace

std::shared_ptr<Tier> folder_tier(std::shared_ptr<store::Backend> backend) {
  return std::make_shared<FolderTier>(std::move(backend));
}

}  // namespace penstock::checkpoint
