// A backend with hooks between its steps. A test uses them for concurrent actions of other processes.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "store/backend.hpp"

namespace penstock::store {

/// Each action runs once, at the next call. Only after_list runs at every call.
class Interrupted : public Backend {
 public:
  explicit Interrupted(std::shared_ptr<Backend> backend) : backend_(std::move(backend)) {}

  std::function<void()> before_put;
  std::function<void()> after_put;
  std::function<void()> before_append;
  std::function<void()> after_append;
  std::function<void(std::string_view, std::vector<std::string>&)> after_list;

  bool put_if_absent(std::string_view key, std::span<const ConstBytes> pieces) override {
    if (const auto action = std::exchange(before_put, nullptr)) action();
    const bool made = backend_->put_if_absent(key, pieces);
    if (const auto action = std::exchange(after_put, nullptr)) action();
    return made;
  }
  std::uint64_t append(std::string_view prefix, std::uint64_t first, std::span<const ConstBytes> pieces) override {
    if (const auto action = std::exchange(before_append, nullptr)) action();
    const std::uint64_t number = backend_->append(prefix, first, pieces);
    if (const auto action = std::exchange(after_append, nullptr)) action();
    return number;
  }
  void read(std::string_view key, std::uint64_t offset, Bytes to) const override { backend_->read(key, offset, to); }
  std::uint64_t size_bytes(std::string_view key) const override { return backend_->size_bytes(key); }
  bool exists(std::string_view key) const override { return backend_->exists(key); }
  std::vector<std::string> list(std::string_view prefix) const override {
    auto keys = backend_->list(prefix);
    if (after_list) after_list(prefix, keys);
    return keys;
  }
  bool remove(std::string_view key) override { return backend_->remove(key); }
  const std::string& url() const override { return backend_->url(); }

 private:
  std::shared_ptr<Backend> backend_;
};

}  // namespace penstock::store
