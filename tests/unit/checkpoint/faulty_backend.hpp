// Backends with injected faults.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "penstock/error.hpp"
#include "store/backend.hpp"

namespace penstock::checkpoint::test {

/// The faults; shared by the backends of a test.
struct Faults {
  enum class When { before, after };

  /// From this change (put, remove, or a piece of an object that is made while it is put) on, everything fails, as if
  /// the machine were gone. Negative: never.
  std::atomic<long> power_loss_at{-1};
  std::atomic<long> changes{0};
  /// Called before and after each change. May throw.
  std::function<void(const std::string& operation, const store::Backend& backend, const std::string& key, When when)>
      on_change = [](const std::string&, const store::Backend&, const std::string&, When) {};

  bool powerless() const {
    const long limit = power_loss_at;
    return limit >= 0 && changes > limit;
  }
};

class FaultyBackend final : public store::Backend {
 public:
  FaultyBackend(std::shared_ptr<store::Backend> inner, std::shared_ptr<Faults> faults)
      : inner_(std::move(inner)), faults_(std::move(faults)) {}

  bool put_if_absent(std::string_view key, std::span<const ConstBytes> pieces) override {
    return change("put", key, [&] { return inner_->put_if_absent(key, pieces); });
  }
  /// Each piece counts as a change. Nothing can be seen of those before the last one.
  bool put_stream_if_absent(std::string_view key, const store::Stream& stream) override {
    const auto begin = [&] {
      return [this, name = std::string(key), next = stream.begin()] {
        const ConstBytes piece = next();
        change("piece", name, [] { return true; });
        return piece;
      };
    };
    return change("put", key, [&] {
      return inner_->put_stream_if_absent(key, {stream.size_bytes, begin, stream.read_soon});
    });
  }
  bool remove(std::string_view key) override {
    return change("remove", key, [&] { return inner_->remove(key); });
  }
  void read(std::string_view key, std::uint64_t offset_bytes, Bytes to) const override {
    check_power();
    inner_->read(key, offset_bytes, to);
  }
  std::uint64_t size_bytes(std::string_view key) const override {
    check_power();
    return inner_->size_bytes(key);
  }
  bool exists(std::string_view key) const override {
    check_power();
    return inner_->exists(key);
  }
  std::vector<std::string> list(std::string_view prefix) const override {
    check_power();
    return inner_->list(prefix);
  }
  const std::string& url() const override { return inner_->url(); }

 private:
  void check_power() const {
    if (faults_->powerless()) throw Error(ErrorCode::io, "power loss");
  }

  template <class Action>
  bool change(const std::string& operation, std::string_view key, Action action) {
    const long limit = faults_->power_loss_at;
    if (++faults_->changes > limit && limit >= 0) throw Error(ErrorCode::io, "power loss");
    faults_->on_change(operation, *inner_, std::string(key), Faults::When::before);
    const bool result = action();
    faults_->on_change(operation, *inner_, std::string(key), Faults::When::after);
    return result;
  }

  const std::shared_ptr<store::Backend> inner_;
  const std::shared_ptr<Faults> faults_;
};

}  // namespace penstock::checkpoint::test
