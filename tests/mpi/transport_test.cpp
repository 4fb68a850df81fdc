// engine::Transport over MPI: messages of all lengths around the fragment size, any source, cancelled receives.
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <numeric>
#include <string_view>
#include <thread>
#include <vector>

#include "check.hpp"
#include "mpi/transport.hpp"

namespace {

std::atomic<int> yields = 0;

}  // namespace

/// Replaces the C library's function, for MPI too.
extern "C" __attribute__((visibility("default"))) int sched_yield() noexcept {
  ++yields;
  return static_cast<int>(::syscall(SYS_sched_yield));
}

namespace {

using penstock::Bytes;
using penstock::ConstBytes;
using penstock::engine::Transport;

constexpr std::uint64_t kPiece = 1000;

/// Messages by their tokens.
class Messages {
 public:
  explicit Messages(Transport& transport) : transport_(transport) {}

  Transport::Token isend(ConstBytes from, int peer, int tag) {
    if (transport_.isend(from, peer, tag, ++last_)) complete_[last_] = {last_, from.size()};
    return last_;
  }
  Transport::Token irecv(Bytes to, int peer, int tag) {
    transport_.irecv(to, peer, tag, ++last_);
    return last_;
  }
  Transport::Token take(Bytes to, int tag) {
    while (!transport_.take(to, tag, last_ + 1)) poll();
    return ++last_;
  }
  void poll() {
    note([&](auto& complete) { transport_.poll(complete); });
  }
  Transport::Completion wait_for(Transport::Token token) {
    for (;;) {
      if (const auto found = complete_.find(token); found != complete_.end()) return found->second;
      std::this_thread::sleep_for(std::chrono::microseconds(20));
      poll();
    }
  }
  /// Asks for this message alone.
  Transport::Completion poll_for(Transport::Token token) {
    for (;;) {
      if (const auto found = complete_.find(token); found != complete_.end()) return found->second;
      note([&](auto& complete) { transport_.poll_for(token, complete); });
    }
  }
  std::uint64_t wait(Transport::Token token) {
    const Transport::Completion complete = wait_for(token);
    CHECK(!complete.too_long);
    return complete.bytes;
  }

 private:
  template <typename Poll>
  void note(Poll poll) {
    std::vector<Transport::Completion> complete;
    poll(complete);
    for (const Transport::Completion& each : complete) {
      CHECK(!complete_.contains(each.token));
      complete_[each.token] = each;
    }
  }

  Transport& transport_;
  Transport::Token last_ = 0;
  std::map<Transport::Token, Transport::Completion> complete_;
};

std::vector<std::byte> pattern(std::size_t bytes, int seed) {
  std::vector<std::byte> data(bytes);
  for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>(i * 7 + static_cast<std::size_t>(seed));
  return data;
}

void lengths(Transport& transport) {
  Messages messages(transport);
  const int right = (transport.rank() + 1) % transport.size();
  const int left = (transport.rank() + transport.size() - 1) % transport.size();
  for (const std::uint64_t bytes : {0u, 1u, 999u, 1000u, 1001u, 1999u, 2000u, 2001u, 50000u}) {
    const auto sent = pattern(bytes, transport.rank());
    std::vector<std::byte> received(bytes);
    const auto receive = messages.irecv(received, left, 5);
    const auto send = messages.isend(sent, right, 5);
    CHECK(messages.wait(receive) == bytes);
    messages.wait(send);
    CHECK(received == pattern(bytes, left));
  }
}

void order(Transport& transport) {
  Messages messages(transport);
  const int right = (transport.rank() + 1) % transport.size();
  const int left = (transport.rank() + transport.size() - 1) % transport.size();
  constexpr std::size_t kMessages = 40;
  std::vector<std::vector<std::byte>> sent(kMessages);
  std::vector<std::vector<std::byte>> received(kMessages);
  std::vector<Transport::Token> tokens;
  for (std::size_t i = 0; i < kMessages; ++i) {
    sent[i] = pattern(100 * i, static_cast<int>(i));
    received[i].resize(100 * i);
    tokens.push_back(messages.irecv(received[i], left, transport.max_tag()));
  }
  for (std::size_t i = 0; i < kMessages; ++i) tokens.push_back(messages.isend(sent[i], right, transport.max_tag()));
  for (const Transport::Token token : tokens) messages.wait(token);
  CHECK(received == sent);
}

/// Messages are asked for in another order than they are posted in, then all of them.
void one_alone(Transport& transport) {
  if (transport.size() == 1) return;  // as other_lengths()
  Messages messages(transport);
  const int right = (transport.rank() + 1) % transport.size();
  const int left = (transport.rank() + transport.size() - 1) % transport.size();
  constexpr std::size_t kMessages = 6;
  std::vector<std::vector<std::byte>> received(kMessages, std::vector<std::byte>(200));
  std::vector<std::byte> short_room(10);
  const auto mine = pattern(200, transport.rank());
  std::vector<Transport::Token> receives;
  for (std::size_t i = 0; i < kMessages; ++i)
    receives.push_back(messages.irecv(received[i], left, static_cast<int>(20 + i)));
  const auto cut = messages.irecv(short_room, left, 30);
  std::vector<Transport::Token> sends{messages.isend(mine, right, 30)};
  for (std::size_t i = 0; i < kMessages; ++i)
    sends.push_back(messages.isend(ConstBytes(mine).first(100 + i), right, static_cast<int>(20 + i)));
  for (const std::size_t i : {4u, 0u, 5u, 2u}) CHECK(messages.poll_for(receives[i]).bytes == 100 + i);
  CHECK(messages.poll_for(cut).too_long);
  for (std::size_t i = 0; i < kMessages; ++i) {
    CHECK(messages.wait(receives[i]) == 100 + i);
    received[i].resize(100 + i);
    CHECK(received[i] == pattern(100 + i, left));
  }
  for (const Transport::Token send : sends) messages.wait(send);
}

void any_rank(Transport& transport) {
  Messages messages(transport);
  const auto mine = pattern(64, transport.rank());
  if (transport.rank() != 0) {
    messages.wait(messages.isend(mine, 0, 3));
    return;
  }
  std::vector<int> seen(static_cast<std::size_t>(transport.size()));
  for (int i = 1; i < transport.size(); ++i) {
    std::vector<std::byte> received(100);
    CHECK(messages.wait(messages.take(received, 3)) == 64);
    received.resize(64);
    for (int r = 1; r < transport.size(); ++r)
      if (received == pattern(64, r)) ++seen[static_cast<std::size_t>(r)];
  }
  CHECK(std::accumulate(seen.begin(), seen.end(), 0) == transport.size() - 1);
}

void barrier(Transport& transport) {
  const std::byte mine{};
  std::vector<std::byte> all(static_cast<std::size_t>(transport.size()));
  transport.allgather({&mine, 1}, all);
}

void withdrawal(Transport& transport) {
  Messages messages(transport);
  const int right = (transport.rank() + 1) % transport.size();
  const int left = (transport.rank() + transport.size() - 1) % transport.size();
  for (const std::uint64_t bytes : {100u, 2500u}) {
    std::vector<std::byte> room(bytes);
    const auto unmatched = messages.irecv(room, left, 11);
    transport.cancel(unmatched);
    CHECK(messages.wait_for(unmatched).withdrawn);
    barrier(transport);  // nobody sends under this tag before
    // The next receive under the same tag is not disturbed.
    const auto receive = messages.irecv(room, left, 11);
    const auto mine = pattern(bytes, transport.rank());
    const auto send = messages.isend(mine, right, 11);
    CHECK(messages.wait(receive) == bytes);
    messages.wait(send);
    CHECK(room == pattern(bytes, left));
    barrier(transport);
  }
}

void other_lengths(Transport& transport) {
  if (transport.size() == 1) return;  // Open MPI 5 cuts a message to oneself silently; the engine sends none
  Messages messages(transport);
  const int right = (transport.rank() + 1) % transport.size();
  const int left = (transport.rank() + transport.size() - 1) % transport.size();
  std::vector<std::byte> room(10);
  for (const std::uint64_t bytes : {20u, 5u}) {
    const auto mine = pattern(bytes, 1);
    const auto receive = messages.irecv(room, left, 12);
    const auto send = messages.isend(mine, right, 12);
    const auto complete = messages.wait_for(receive);
    CHECK(complete.too_long == (bytes > room.size()));
    CHECK(complete.too_long || complete.bytes == bytes);
    messages.wait(send);
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
  Messages messages(*transport);
  if (world_rank() == 1) {
    std::vector<Transport::Token> sends;
    std::vector<std::vector<std::byte>> data;
    for (int i = 0; i < kMessages; ++i) data.push_back(pattern(kLong >> i, i));
    for (const auto& each : data) sends.push_back(messages.isend(each, 0, 4));
    flags.raise(0);
    flags.await(1);
    for (const Transport::Token send : sends) messages.wait(send);
  }
  if (world_rank() == 0) {
    std::vector<std::vector<std::byte>> room(kMessages, std::vector<std::byte>(kLong));
    std::vector<Transport::Token> receives;
    flags.await(0);
    for (auto& each : room) receives.push_back(messages.take(each, 4));
    for (int i = 0; i < 1000; ++i) messages.poll();
    flags.raise(1);
    for (std::size_t i = 0; i < kMessages; ++i) {
      CHECK(messages.wait(receives[i]) == kLong >> i);
      room[i].resize(kLong >> i);
      CHECK(room[i] == pattern(kLong >> i, static_cast<int>(i)));
    }
    std::byte none[1];
    CHECK(!transport->take(none, 4, 1));
  }
}

/// The engine yields itself, and only if it has found nothing. Open MPI's own calls yield as before.
void polls_do_not_yield(Transport& transport) {
  std::vector<std::byte> room(2);
  for (int i = 0; i < 2; ++i)
    transport.irecv(std::span(room).subspan(static_cast<std::size_t>(i), 1), 0, 7 + i, 70 + i);
  std::vector<Transport::Completion> complete;
  CHECK(!transport.yielded());
  yields = 0;
  for (int i = 0; i < 10; ++i) {
    transport.poll(complete);
    CHECK(!transport.yielded());
    transport.poll_for(70, complete);
    CHECK(!transport.yielded());
    std::byte none[1];
    CHECK(!transport.take(none, 9, 72));
  }
  CHECK(complete.empty());
  CHECK(yields == 0);
#ifdef OPEN_MPI
  const char* const setting = std::getenv("OMPI_MCA_mpi_yield_when_idle");
  if (setting != nullptr && std::string_view(setting) == "1") {
    // A call that moves something does not yield, and other ranks may be in the barrier.
    for (int i = 0, found = 0; i < 10'000 && yields == 0; ++i)
      MPI_Iprobe(0, 0, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
    CHECK(yields > 0);
  }
#endif
  MPI_Barrier(MPI_COMM_WORLD);
  const std::byte sent{1};
  int in_flight = 2;
  for (int rank = 0; transport.rank() == 0 && rank < transport.size(); ++rank)
    for (int i = 0; i < 2; ++i)
      if (!transport.isend(std::span(&sent, 1), rank, 7 + i, static_cast<Transport::Token>(80 + 2 * rank + i)))
        ++in_flight;
  while (static_cast<int>(complete.size()) < in_flight) transport.poll(complete);
}

/// Open MPI's MPI_T_init_thread() sets the level of MPI, too.
void reading_settings_of_mpi_changes_none() {
  int level = MPI_THREAD_SINGLE;
  CHECK(MPI_Query_thread(&level) == MPI_SUCCESS);
  CHECK(level == MPI_THREAD_MULTIPLE);
}

void facts(Transport& transport) {
  CHECK(transport.rank() == world_rank());
  CHECK(transport.size() == world_size());
  CHECK(transport.any_thread());
  CHECK(transport.max_tag() >= 32767);
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
    one_alone(*transport);
    any_rank(*transport);
    withdrawal(*transport);
    other_lengths(*transport);
    polls_do_not_yield(*transport);
  }
  reading_settings_of_mpi_changes_none();
  polling_waits_for_nobody();
  // An open transport with a posted receive and MPI_Finalize must not disturb each other.
  std::vector<std::byte> room(100);
  auto open = penstock::mpi::make_transport(MPI_COMM_WORLD);
  open->irecv(room, 0, 1, 1);
  MPI_Finalize();
  bool refused = false;
  try {
    open->irecv(room, 0, 1, 2);
  } catch (const penstock::Error& error) {
    refused = error.code() == penstock::ErrorCode::mpi;
  }
  open->poke();
  open.reset();
  return refused ? 0 : 1;
}
