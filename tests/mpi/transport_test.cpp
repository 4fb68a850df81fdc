// engine::Transport over MPI: messages of all lengths around the fragment size, any source, cancelled receives.
#include <atomic>
#include <chrono>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "check.hpp"
#include "mpi/transport.hpp"

namespace {

using penstock::engine::Transport;

constexpr std::uint64_t kPiece = 1000;

std::uint64_t wait(Transport& transport, Transport::Handle handle) {
  for (;;) {
    transport.poll();
    if (const auto bytes = transport.test(handle)) return *bytes;
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

std::vector<std::byte> pattern(std::size_t bytes, int seed) {
  std::vector<std::byte> data(bytes);
  for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>(i * 7 + static_cast<std::size_t>(seed));
  return data;
}

void lengths(Transport& transport) {
  const int right = (transport.rank() + 1) % transport.size();
  const int left = (transport.rank() + transport.size() - 1) % transport.size();
  for (const std::uint64_t bytes : {0u, 1u, 999u, 1000u, 1001u, 1999u, 2000u, 2001u, 50000u}) {
    const auto sent = pattern(bytes, transport.rank());
    // The receive buffer may be larger than the message, as it is for the engine's packets.
    for (const std::uint64_t room : {bytes, bytes + 1, bytes + 5000}) {
      std::vector<std::byte> received(room);
      const auto receive = transport.irecv(received, left, 5);
      const auto send = transport.isend(sent, right, 5);
      CHECK(wait(transport, receive) == bytes);
      CHECK(wait(transport, send) == bytes);
      received.resize(bytes);
      CHECK(received == pattern(bytes, left));
    }
  }
}

void order(Transport& transport) {
  const int right = (transport.rank() + 1) % transport.size();
  const int left = (transport.rank() + transport.size() - 1) % transport.size();
  constexpr std::size_t kMessages = 40;
  std::vector<std::vector<std::byte>> sent(kMessages);
  std::vector<std::vector<std::byte>> received(kMessages);
  std::vector<Transport::Handle> handles;
  for (std::size_t i = 0; i < kMessages; ++i) {
    sent[i] = pattern(100 * i, static_cast<int>(i));
    received[i].resize(100 * i);
    handles.push_back(transport.irecv(received[i], left, 9));
  }
  for (std::size_t i = 0; i < kMessages; ++i) handles.push_back(transport.isend(sent[i], right, 9));
  for (std::size_t pending = handles.size(); pending > 0;) {
    pending = 0;
    transport.poll();
    for (Transport::Handle& handle : handles)
      if (handle != 0 && ++pending != 0 && transport.test(handle)) handle = 0;
  }
  CHECK(received == sent);
}

void any_rank(Transport& transport) {
  const auto mine = pattern(64, transport.rank());
  if (transport.rank() != 0) {
    wait(transport, transport.isend(mine, 0, 3));
    return;
  }
  std::vector<int> seen(static_cast<std::size_t>(transport.size()));
  for (int i = 1; i < transport.size(); ++i) {
    std::vector<std::byte> received(64);
    wait(transport, transport.irecv(received, penstock::engine::kAnyRank, 3));
    for (int r = 1; r < transport.size(); ++r)
      if (received == pattern(64, r)) ++seen[static_cast<std::size_t>(r)];
  }
  CHECK(std::accumulate(seen.begin(), seen.end(), 0) == transport.size() - 1);
}

void withdrawal(Transport& transport) {
  std::vector<std::byte> room(100);
  const auto never = transport.irecv(room, penstock::engine::kAnyRank, 11);
  CHECK(transport.cancel(never));
  // The cancelled receive does not affect the next one with the same tag.
  const auto receive = transport.irecv(room, transport.rank(), 11);
  const auto mine = pattern(100, 1);
  const auto send = transport.isend(mine, transport.rank(), 11);
  CHECK(wait(transport, receive) == 100);
  wait(transport, send);
  CHECK(room == mine);
}

void too_long(Transport& transport) {
  if (transport.size() == 1) return;  // Open MPI 5 silently truncates a message to oneself; the engine sends none
  const int right = (transport.rank() + 1) % transport.size();
  const int left = (transport.rank() + transport.size() - 1) % transport.size();
  std::vector<std::byte> room(10);
  const auto mine = pattern(20, 1);
  for (const int from : {left, penstock::engine::kAnyRank}) {
    const auto receive = transport.irecv(room, from, 12);
    const auto send = transport.isend(mine, right, 12);
    CHECK_ERROR(wait(transport, receive), mismatch);
    wait(transport, send);
  }
}

/// Flags in shared memory. Ranks use them without MPI calls.
class Flags {
 public:
  Flags() {
    MPI_Win_allocate_shared(world_rank() == 0 ? 2 * sizeof(int) : 0, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &mine_,
                            &window_);
    MPI_Aint bytes = 0;
    int unit = 0;
    MPI_Win_shared_query(window_, 0, &bytes, &unit, &flags_);
    if (world_rank() == 0) flags_[0] = flags_[1] = 0;
    MPI_Barrier(MPI_COMM_WORLD);
  }
  ~Flags() { MPI_Win_free(&window_); }
  Flags(const Flags&) = delete;
  Flags& operator=(const Flags&) = delete;

  void raise(std::size_t i) { std::atomic_ref(flags_[i]).store(1); }
  void await(std::size_t i) {
    while (std::atomic_ref(flags_[i]).load() == 0) std::this_thread::yield();
  }

 private:
  int* mine_ = nullptr;
  int* flags_ = nullptr;
  MPI_Win window_ = MPI_WIN_NULL;
};

/// Polling must not block on a rendezvous message from a rank that makes no MPI calls.
void polling_waits_for_nobody() {
  if (world_size() == 1) return;
  const auto transport = penstock::mpi::make_transport(MPI_COMM_WORLD);
  Flags flags;
  constexpr std::size_t kLong = 1 << 20;
  constexpr int kMessages = 3;
  if (world_rank() == 1) {
    std::vector<Transport::Handle> sends;
    std::vector<std::vector<std::byte>> data;
    for (int i = 0; i < kMessages; ++i) data.push_back(pattern(kLong >> i, i));
    for (const auto& each : data) sends.push_back(transport->isend(each, 0, 4));
    flags.raise(0);
    flags.await(1);
    for (const Transport::Handle send : sends) wait(*transport, send);
  }
  if (world_rank() == 0) {
    std::vector<std::vector<std::byte>> room(kMessages + 1, std::vector<std::byte>(kLong));
    std::vector<Transport::Handle> receives;
    for (auto& each : room) receives.push_back(transport->irecv(each, penstock::engine::kAnyRank, 4));
    flags.await(0);
    for (int i = 0; i < 1000; ++i) transport->poll();
    flags.raise(1);
    for (std::size_t i = 0; i < kMessages; ++i) {
      CHECK(wait(*transport, receives[i]) == kLong >> i);
      room[i].resize(kLong >> i);
      CHECK(room[i] == pattern(kLong >> i, static_cast<int>(i)));
    }
    CHECK(transport->cancel(receives.back()));
  }
}

void facts(Transport& transport) {
  CHECK(transport.rank() == world_rank());
  CHECK(transport.size() == world_size());
  CHECK(transport.any_thread());
  CHECK(static_cast<int>(transport.node_of_rank().size()) == transport.size());
  CHECK(transport.node_of_rank()[0] == 0);
  CHECK(transport.description().find(PENSTOCK_MPI_ABI " ABI") != std::string::npos);
  const int rank = transport.rank();
  std::vector<int> all(static_cast<std::size_t>(transport.size()));
  transport.allgather(std::as_bytes(std::span(&rank, 1)), std::as_writable_bytes(std::span(all)));
  for (std::size_t r = 0; r < all.size(); ++r) CHECK(all[r] == static_cast<int>(r));
  transport.poke();
}

}  // namespace

int main(int argc, char** argv) {
  begin(&argc, &argv);
  {
    const auto transport = penstock::mpi::make_transport(MPI_COMM_WORLD, kPiece);
    facts(*transport);
    lengths(*transport);
    order(*transport);
    any_rank(*transport);
    withdrawal(*transport);
    too_long(*transport);
  }
  polling_waits_for_nobody();
  // An open transport with a posted receive and MPI_Finalize must not disturb each other.
  std::vector<std::byte> room(100);
  auto open = penstock::mpi::make_transport(MPI_COMM_WORLD);
  open->irecv(room, penstock::engine::kAnyRank, 1);
  MPI_Finalize();
  bool refused = false;
  try {
    open->irecv(room, 0, 1);
  } catch (const penstock::Error& error) {
    refused = error.code() == penstock::ErrorCode::mpi;
  }
  open->poke();
  open.reset();
  return refused ? 0 : 1;
}
