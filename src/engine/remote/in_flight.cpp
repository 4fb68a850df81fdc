#include "engine/remote/in_flight.hpp"

#include <mutex>
#include <new>
#include <vector>

namespace penstock::engine {
namespace {

/// Never freed. The list is for leak checkers.
void leave_to_transport(std::unique_ptr<std::byte[]> memory) noexcept {
  const std::byte* const bytes = memory.release();
  try {
    static std::mutex mutex;
    static auto* const left = new std::vector<const std::byte*>;
    const std::lock_guard lock(mutex);
    left->push_back(bytes);
  } catch (const std::bad_alloc&) {
    // Then a leak checker reports it.
  }
}

}  // namespace

void InFlight::receive_nowhere(Kind kind, int peer, std::uint64_t sequence, const SentMessage& message) {
  std::unique_ptr<std::byte[]> memory(new std::byte[message.bytes]);
  std::byte* const bytes = memory.get();
  const std::uint32_t token = add({.kind = kind, .peer = peer, .sequence = sequence, .memory = std::move(memory)});
  core_.transport->irecv({bytes, message.bytes}, peer, message.tag, token);
}

void InFlight::leave_memory() noexcept {
  for_each([](Entry& each) {
    if (each.memory) leave_to_transport(std::move(each.memory));
  });
}

}  // namespace penstock::engine
