// A transport that does what another one does, for tests that change or watch one of its calls.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/transport.hpp"

namespace penstock::engine {

class WrappedTransport : public Transport {
 public:
  explicit WrappedTransport(std::unique_ptr<Transport> inner) : inner_(std::move(inner)) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  const std::vector<std::int32_t>& node_of_rank() const override { return inner_->node_of_rank(); }
  bool any_thread() const override { return inner_->any_thread(); }
  std::string description() const override { return inner_->description(); }
  int max_tag() const override { return inner_->max_tag(); }
  bool isend(ConstBytes from, int peer, int tag, Token token) override { return inner_->isend(from, peer, tag, token); }
  void irecv(Bytes to, int peer, int tag, Token token) override { inner_->irecv(to, peer, tag, token); }
  bool take(Bytes to, int tag, Token token) override { return inner_->take(to, tag, token); }
  void poll(std::vector<Completion>& complete) override { inner_->poll(complete); }
  void cancel(Token receive) override { inner_->cancel(receive); }
  void enter() noexcept override { inner_->enter(); }
  void set_farewell(ConstBytes packet, int tag) override { inner_->set_farewell(packet, tag); }
  bool has_gone(int peer) noexcept override { return inner_->has_gone(peer); }
  void poke() noexcept override { inner_->poke(); }
  void allgather(ConstBytes mine, Bytes all) override { inner_->allgather(mine, all); }
  void maximum(std::span<std::uint64_t> values, const std::function<void()>& meanwhile) override {
    inner_->maximum(values, meanwhile);
  }

 private:
  const std::unique_ptr<Transport> inner_;
};

}  // namespace penstock::engine
