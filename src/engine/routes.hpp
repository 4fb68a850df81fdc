// Which mechanism runs a step, and which one gets a message.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <tuple>

#include "engine/cell_messages.hpp"
#include "engine/computations.hpp"
#include "engine/core.hpp"
#include "engine/flag_exchange.hpp"
#include "engine/inbox.hpp"
#include "engine/peer_reads.hpp"
#include "engine/remote/remote_messages.hpp"
#include "engine/shared_buffers.hpp"
#include "engine/shared_tasks.hpp"

namespace penstock::engine {

/// The core with its mechanisms; the only class that knows them all. The engine's lock protects it.
class Routes : public Core {
 protected:
  Routes(std::shared_ptr<Transport> by, const EngineOptions& given, Node on);
  ~Routes() = default;

  template <typename M>
  bool has() const {
    return std::get<std::optional<M>>(mechanisms_).has_value();
  }
  template <typename M>
  M& the() {
    return *std::get<std::optional<M>>(mechanisms_);
  }
  template <typename Function>
  void for_each(Function function) {
    std::apply([&](auto&... each) { ((each ? function(*each) : void()), ...); }, mechanisms_);
  }
  template <typename Predicate>
  bool any(Predicate predicate) const {
    return std::apply([&](const auto&... each) { return ((each && predicate(*each)) || ...); }, mechanisms_);
  }

  /// Whether the operation may be launched now. If not, a mechanism has deferred it and launches it later.
  bool admit(Operation& operation);
  /// The memory that a computing step reads.
  ConstBytes source_of(const Operation& operation, const Step& step);
  bool poll();
  void receive_from_gone_ranks();
  /// Fails operations that ranks of this node have failed, also if their notices do not come.
  void fail_what_peers_have_failed();
  /// Fails the operation if it waits for a rank that has gone.
  void check(Operation& operation);

 private:
  /// In the order in which they are polled. Those for shared memory or for other nodes are absent if there is none.
  using Mechanisms = std::tuple<std::optional<CellMessages>, std::optional<RemoteMessages>, std::optional<FlagExchange>,
                                std::optional<SharedTasks>, std::optional<SharedBuffers>, std::optional<PeerReads>,
                                std::optional<Computations>, std::optional<Inbox>>;

  template <typename M>
  void add() {
    std::get<std::optional<M>>(mechanisms_).emplace(static_cast<Core&>(*this));
  }
  void arrive(const Header& header, ConstBytes payload) final;
  void deliver(Operation& operation, StepId step, const Header& header, ConstBytes payload) final;
  void send(int peer, const Header& header, ConstBytes payload, Operation* owner) final;
  void issue(Operation& operation, StepId step) final;
  void begin(Operation& operation) final {
    for_each([&](auto& mechanism) { mechanism.begin(operation); });
  }
  void end(Operation& operation) final {
    for_each([&](auto& mechanism) { mechanism.end(operation); });
  }
  void cancel(Operation& operation) final {
    for_each([&](auto& mechanism) { mechanism.cancel(operation); });
  }
  void has_failed_elsewhere(std::uint64_t sequence) final {
    if (has_remote) the<RemoteMessages>().has_failed_elsewhere(sequence);
  }
  bool is_touched(const Operation& operation) const final {
    return any([&](const auto& mechanism) { return mechanism.is_touched(operation); });
  }
  std::string differing_lengths(const Operation& operation, int peer) const final {
    const std::optional<FlagExchange>& flags = std::get<std::optional<FlagExchange>>(mechanisms_);
    return flags ? flags->differing_lengths(operation, peer) : "";
  }
  void send_step(Operation& operation, StepId step);
  void on_completed(const Header& header);
  void on_promised(const Header& header);
  /// If there is a missing step, whose message the peer never sends.
  void fail_missing(Operation& waiting, int peer, const std::string& did, StepId missing);

  Mechanisms mechanisms_;
};

}  // namespace penstock::engine
