#include "engine/remote/remote_plans.hpp"

#include <memory>

namespace penstock::engine {

std::vector<SentMessage> RemotePlans::planned(std::uint64_t sequence, int peer, StepKind kind) const {
  std::shared_ptr<const RemoteTraffic> traffic;
  std::uint64_t signature = 0;
  if (core_.operations.is_over(sequence)) {
    const OperationTable::Past& past = core_.operations.past(sequence);
    traffic = past.traffic;
    signature = past.signature;
  } else {
    const Operation& running = *core_.operations.find(sequence);
    traffic = running.call.compiled->traffic();
    signature = running.call.signature;
  }
  std::vector<SentMessage> messages;
  if (traffic == nullptr) return messages;
  for (const RemoteMessage& each : *traffic)
    if (each.peer == peer && each.kind == kind)
      messages.push_back({.tag = tags.tag(sequence, signature, each.wire_tag), .bytes = each.bytes});
  return messages;
}

}  // namespace penstock::engine
