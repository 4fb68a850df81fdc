// The backend that keeps objects in the memory of this process: for tests, and as the fastest of several tiers.
#include <cstring>
#include <map>
#include <mutex>
#include <shared_mutex>

#include "penstock/error.hpp"
#include "store/backend.hpp"

namespace penstock::store {

namespace {

class MemoryBackend final : public Backend {
 public:
  explicit MemoryBackend(std::string url) : url_(std::move(url)) {}

  bool put_if_absent(std::string_view key, std::span<const ConstBytes> pieces) override {
    check_key(key);
    auto object = std::make_shared<std::vector<std::byte>>();
    std::size_t total_bytes = 0;
    for (const ConstBytes piece : pieces) total_bytes += piece.size();
    object->reserve(total_bytes);
    for (const ConstBytes piece : pieces) object->insert(object->end(), piece.begin(), piece.end());
    const std::unique_lock lock(mutex_);
    return objects_.try_emplace(std::string(key), std::move(object)).second;
  }

  void read(std::string_view key, std::uint64_t offset_bytes, Bytes to) const override {
    const auto object = find(key);
    if (offset_bytes > object->size() || to.size() > object->size() - offset_bytes) {
      throw Error(ErrorCode::corrupt, url_ + ": object " + std::string(key) + " has " + std::to_string(object->size()) +
                                          " bytes; expected " + std::to_string(to.size()) + " at offset " +
                                          std::to_string(offset_bytes));
    }
    if (!to.empty()) std::memcpy(to.data(), object->data() + offset_bytes, to.size());
  }

  std::uint64_t size_bytes(std::string_view key) const override { return find(key)->size(); }

  bool exists(std::string_view key) const override {
    check_key(key);
    const std::shared_lock lock(mutex_);
    return objects_.find(key) != objects_.end();
  }

  std::vector<std::string> list(std::string_view prefix) const override {
    check_key(prefix);
    const std::string start = std::string(prefix) + '/';
    std::vector<std::string> keys;
    const std::shared_lock lock(mutex_);
    for (auto at = objects_.lower_bound(start); at != objects_.end() && at->first.starts_with(start); ++at) {
      keys.push_back(at->first);
    }
    return keys;
  }

  bool remove(std::string_view key) override {
    check_key(key);
    const std::unique_lock lock(mutex_);
    const auto at = objects_.find(key);
    if (at == objects_.end()) return false;
    objects_.erase(at);
    return true;
  }

  const std::string& url() const override { return url_; }

 private:
  std::shared_ptr<const std::vector<std::byte>> find(std::string_view key) const {
    check_key(key);
    const std::shared_lock lock(mutex_);
    const auto at = objects_.find(key);
    if (at == objects_.end()) throw Error(ErrorCode::not_found, url_ + ": no object " + std::string(key));
    return at->second;
  }

  const std::string url_;
  mutable std::shared_mutex mutex_;
  std::map<std::string, std::shared_ptr<const std::vector<std::byte>>, std::less<>> objects_;
};

}  // namespace

std::shared_ptr<Backend> open_memory(std::string_view name, const std::string& url, const BackendOptions& options) {
  if (name.empty()) return std::make_shared<MemoryBackend>(url);
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<MemoryBackend>, std::less<>> named;
  const std::lock_guard lock(mutex);
  const auto at = named.find(name);
  if (at != named.end()) return at->second;
  if (!options.create)
    throw Error(ErrorCode::not_found, url + ": no such store in this process; create it first or correct the name");
  return named.emplace(name, std::make_shared<MemoryBackend>(url)).first->second;
}

}  // namespace penstock::store
