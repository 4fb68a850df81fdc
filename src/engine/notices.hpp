// What ranks tell each other about operations that have failed.
#pragma once

#include <cstdint>
#include <string>

#include "engine/message.hpp"
#include "engine/operation.hpp"

namespace penstock::engine {

class Core;

/// The engine's lock protects it.
class Notices {
 public:
  explicit Notices(Core& core) : core_(core) {}

  /// Tells all other ranks that the operation has failed here. A mismatch has a `partner`: the other rank concerned.
  void tell(const Operation& failed, bool is_death, int partner) const;
  /// Fails the operation that a peer has failed.
  void on_notice(const Header& header, ConstBytes payload) const;
  /// Answers or drops a message for an operation that is over here.
  void on_late(const Header& header) const;
  Error mismatch(int peer, const std::string& where, const std::string& what) const;

 private:
  void send(MessageKind kind, int peer, std::uint64_t sequence, const Error& error, bool is_death, int partner) const;

  Core& core_;
};

}  // namespace penstock::engine
