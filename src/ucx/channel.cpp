#include "ucx/channel.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "penstock/error.hpp"

namespace penstock::ucx {
namespace {

constexpr std::chrono::seconds kPatience{1};  // for messages in flight, when a channel ends
constexpr int kYields = 2000;                 // before a rank that waits sleeps
constexpr std::uint32_t kExchange = ~0u;      // no token of a caller

/// Yields, then sleeps.
class Pause {
 public:
  void operator()() {
    if (++count_ < kYields) return std::this_thread::yield();
    std::this_thread::sleep_for(sleep_);
    sleep_ = std::min(sleep_ * 2, std::chrono::microseconds(1000));
  }
  void reset() { *this = {}; }

 private:
  int count_ = 0;
  std::chrono::microseconds sleep_{20};
};

}  // namespace

/// The receive of exchange().
struct Channel::Exchange {
  std::vector<std::byte> memory;
  bool is_done = false;
  std::uint64_t bytes = 0;
  int source = 0;
};

Channel::Channel(Worker& worker, TagSpace tags, int rank, Addresses addresses, std::chrono::milliseconds timeout)
    : worker_(worker),
      tags_(tags),
      rank_(rank),
      addresses_(std::move(addresses)),
      timeout_(timeout),
      endpoints_(addresses_->size()) {}

Channel::~Channel() {
  auto locked = worker_.lock();
  for (Pending *each = first_, *next = nullptr; each != nullptr; each = next) {
    next = each->next;  // cancelling may remove this one
    if (each->receives) worker_.cancel(*each);
  }
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  const auto is_busy = [&] {
    for (const Pending* each = first_; each != nullptr; each = each->next)
      if (!each->is_lost) return true;
    return false;
  };
  Pause pause;
  while (is_busy() && std::chrono::steady_clock::now() < deadline) {
    if (worker_.progress()) continue;
    locked.unlock();  // the peers may need another channel of this process
    pause();
    locked.lock();
  }
  while (first_ != nullptr) {
    Pending* const left = std::exchange(first_, first_->next);
    left->owner = nullptr;  // UCX's callback deletes it
    if (left->request == nullptr) delete left;
  }
  const std::uint64_t own = static_cast<std::uint64_t>(rank_);
  const std::uint64_t tag_bits = tags_.source_shift == 0 ? 0 : (std::uint64_t{1} << (TagSpace::kTagBits - 1)) - 1;
  if (farewell_.empty()) return;
  try {
    worker_.leave({.tag = tags_.base,
                   .mask = ~(tags_.source_field() | tag_bits),
                   .source_shift = static_cast<std::uint64_t>(tags_.source_shift),
                   .own_source = own,
                   .answered = tags_.base | farewell_tag_,
                   .farewell = std::move(farewell_),
                   .addresses = addresses_});
  } catch (const std::exception&) {
    // Out of memory: ranks that still wait hear nothing until this process ends.
  }
}

Endpoint& Channel::endpoint(int peer) {
  std::atomic<Endpoint*>& known = endpoints_[static_cast<std::size_t>(peer)];
  if (Endpoint* const found = known.load(std::memory_order_relaxed)) return *found;
  Endpoint& found = worker_.endpoint((*addresses_)[static_cast<std::size_t>(peer)]);
  known.store(&found, std::memory_order_release);
  return found;
}

Pending* Channel::add(std::uint32_t token, int peer) {
  Pending* const added = worker_.take();
  added->owner = this;
  added->token = token;
  added->peer = peer;
  added->next = first_;
  if (first_ != nullptr) first_->previous = added;
  first_ = added;
  return added;
}

void Channel::remove(Pending& pending) noexcept {
  (pending.previous == nullptr ? first_ : pending.previous->next) = pending.next;
  if (pending.next != nullptr) pending.next->previous = pending.previous;
  worker_.give_back(&pending);
}

void Channel::on_done(Pending& done, ucs_status_t status, std::uint64_t length, std::uint64_t tag) noexcept {
  const bool too_long = status == UCS_ERR_MESSAGE_TRUNCATED;
  const bool withdrawn = done.receives && status == UCS_ERR_CANCELED;
  const bool is_lost = status != UCS_OK && !too_long && !withdrawn;
  if (done.token == kExchange) {
    if (done.receives && !withdrawn && !is_lost) {
      auto& exchange = *static_cast<Exchange*>(done.keep.get());
      exchange.is_done = true;
      exchange.bytes = length;
      exchange.source = tags_.source_of(tag);
    }
    return remove(done);
  }
  if (is_lost && done.receives) {
    // The sender ended in the middle of it. The caller learns that from has_gone(), and cancels.
    done.is_lost = true;
    return;
  }
  const int source = done.receives && !withdrawn ? tags_.source_of(tag) : done.peer;
  done_.push_back({done.token, done.receives ? length : done.bytes, source, too_long, withdrawn, is_lost});
  remove(done);
}

bool Channel::send(ConstBytes from, int peer, std::uint64_t tag, std::uint32_t token) {
  const auto locked = worker_.lock();
  Endpoint& to = endpoint(peer);
  Pending* const pending = add(token, peer);
  if (!worker_.send(to, from, tags_.tag(static_cast<std::uint64_t>(rank_), tag), pending)) return false;
  remove(*pending);
  return true;
}

void Channel::receive(Bytes to, int peer, std::uint64_t tag, std::uint32_t token) {
  const auto locked = worker_.lock();
  const bool any = peer == kAnyRank;
  worker_.receive(to, tags_.tag(any ? 0 : static_cast<std::uint64_t>(peer), tag),
                  any ? ~tags_.source_field() : ~std::uint64_t{0}, add(token, peer));
}

bool Channel::take(Bytes to, std::uint64_t tag, std::uint32_t token) {
  const auto locked = worker_.lock();
  Pending* const pending = add(token, kAnyRank);
  if (worker_.receive_arrived(to, tags_.tag(0, tag), ~tags_.source_field(), pending)) return true;
  remove(*pending);
  return false;
}

void Channel::poll(std::vector<Done>& done) {
  const auto locked = worker_.lock();
  worker_.progress();
  done.insert(done.end(), done_.begin(), done_.end());
  done_.clear();
}

void Channel::make_progress() noexcept {
  const auto locked = worker_.lock();
  worker_.progress();
}

void Channel::cancel(std::uint32_t token) {
  const auto locked = worker_.lock();
  for (Pending* each = first_; each != nullptr; each = each->next) {
    if (!each->receives || each->token != token) continue;
    if (each->is_lost) {
      done_.push_back({.token = token, .source = each->peer, .withdrawn = true});
      remove(*each);
    } else {
      worker_.cancel(*each);
    }
    return;
  }
}

bool Channel::has_gone(int peer) const noexcept {
  const Endpoint* const known = endpoints_[static_cast<std::size_t>(peer)].load(std::memory_order_acquire);
  return known != nullptr && known->is_gone.load(std::memory_order_acquire);
}

bool Channel::has_failed(int peer) {
  const auto locked = worker_.lock();
  return endpoint(peer).has_failed;
}

void Channel::watch(int peer) {
  const auto locked = worker_.lock();
  endpoint(peer);
}

void Channel::set_farewell(ConstBytes packet, std::uint64_t tag) {
  farewell_.assign(packet.begin(), packet.end());
  farewell_tag_ = tag;
}

void Channel::exchange(ConstBytes from, int to_rank, Bytes to, int from_rank, const std::function<void()>& meanwhile) {
  const auto sent = std::make_shared<std::vector<std::byte>>(from.begin(), from.end());
  const auto received = std::make_shared<Exchange>();
  received->memory.resize(to.size());
  Pending* posted = nullptr;
  {
    const auto locked = worker_.lock();
    posted = add(kExchange, from_rank);
    posted->keep = received;
    worker_.receive(received->memory, tags_.tag(static_cast<std::uint64_t>(from_rank), tags_.exchange_tag),
                    ~std::uint64_t{0}, posted);
    Endpoint& peer = endpoint(to_rank);
    Pending* const pending = add(kExchange, to_rank);
    pending->keep = sent;
    if (worker_.send(peer, *sent, tags_.tag(static_cast<std::uint64_t>(rank_), tags_.exchange_tag), pending))
      remove(*pending);
  }
  const auto give_up = [&](ErrorCode code, const std::string& why, int rank) {
    {
      const auto locked = worker_.lock();
      for (Pending *each = first_, *next = nullptr; each != nullptr; each = next) {
        next = each->next;
        if (each->keep == received) worker_.cancel(*each);
      }
    }
    tell_failure();
    throw Error(code, "a communicator cannot be made: " + why, rank);
  };
  Pause pause;
  const auto deadline = std::chrono::steady_clock::now() + timeout_;
  for (;;) {
    {
      const auto locked = worker_.lock();
      const bool moved = worker_.progress();
      if (received->is_done) break;
      if (moved) pause.reset();
    }
    if (meanwhile) meanwhile();
    for (const int peer : {from_rank, to_rank})
      if (has_gone(peer))
        give_up(ErrorCode::peer_failed,
                "rank " + std::to_string(peer) + " has ended, or UCX cannot connect to it (" + error_of(peer) +
                    "); UCX_TLS and UCX_NET_DEVICES choose the networks that it may use",
                peer);
    if (const int rank = find_failure(); rank >= 0)
      give_up(ErrorCode::peer_failed, "rank " + std::to_string(rank) + " has failed to make it", rank);
    if (std::chrono::steady_clock::now() > deadline)
      give_up(ErrorCode::timed_out,
              "nothing has come from rank " + std::to_string(from_rank) + " for " + std::to_string(timeout_.count()) +
                  " ms",
              from_rank);
    pause();
  }
  if (received->bytes != to.size())
    give_up(ErrorCode::mismatch,
            "rank " + std::to_string(from_rank) + " sent " + std::to_string(received->bytes) + " bytes and rank " +
                std::to_string(rank_) + " expected " + std::to_string(to.size()) +
                "; do all ranks run the same version of Penstock?",
            from_rank);
  std::ranges::copy(received->memory, to.begin());
}

std::string Channel::error_of(int peer) {
  const auto locked = worker_.lock();
  return endpoint(peer).error;
}

int Channel::find_failure() {
  const auto locked = worker_.lock();
  Pending* const pending = add(kExchange, kAnyRank);
  const auto failure = std::make_shared<Exchange>();
  pending->keep = failure;
  if (!worker_.receive_arrived({}, tags_.tag(0, tags_.failure_tag), ~tags_.source_field(), pending)) remove(*pending);
  return failure->is_done ? failure->source : -1;
}

// Each rank that hears of it while it waits tells others, so all ranks do after log2(size) messages.
void Channel::tell_failure() {
  const auto locked = worker_.lock();
  const std::size_t ranks = addresses_->size();
  for (std::size_t distance = 1; distance < ranks; distance *= 2) {
    const int to = static_cast<int>((static_cast<std::size_t>(rank_) + ranks - distance) % ranks);
    Pending* const pending = add(kExchange, to);
    if (worker_.send(endpoint(to), {}, tags_.tag(static_cast<std::uint64_t>(rank_), tags_.failure_tag), pending))
      remove(*pending);
  }
}

// Bruck, Ho, Kipnis, Upfal, Weathersby, IEEE TPDS 8(11), 1997: log2(size) rounds, each with one rank.
void Channel::allgather(ConstBytes mine, Bytes all) {
  const auto ranks = static_cast<std::size_t>(size());
  const std::size_t block = mine.size();
  std::vector<std::byte> blocks(block * ranks);  // of this rank, the next one, …
  std::ranges::copy(mine, blocks.begin());
  for (std::size_t have = 1; have < ranks; have *= 2) {
    const std::size_t count = std::min(have, ranks - have);
    const int to = static_cast<int>((static_cast<std::size_t>(rank_) + ranks - have) % ranks);
    const int from = static_cast<int>((static_cast<std::size_t>(rank_) + have) % ranks);
    exchange(ConstBytes(blocks).first(count * block), to, Bytes(blocks).subspan(have * block, count * block), from);
  }
  for (std::size_t i = 0; i < ranks && block > 0; ++i)
    std::memcpy(all.data() + (static_cast<std::size_t>(rank_) + i) % ranks * block, blocks.data() + i * block, block);
}

// A maximum does not mind that it meets a value twice.
void Channel::maximum(std::span<std::uint64_t> values, const std::function<void()>& meanwhile) {
  std::vector<std::uint64_t> other(values.size());
  const auto ranks = static_cast<std::size_t>(size());
  for (std::size_t distance = 1; distance < ranks; distance *= 2) {
    const int to = static_cast<int>((static_cast<std::size_t>(rank_) + ranks - distance) % ranks);
    const int from = static_cast<int>((static_cast<std::size_t>(rank_) + distance) % ranks);
    exchange(std::as_bytes(values), to, std::as_writable_bytes(std::span(other)), from, meanwhile);
    std::ranges::transform(values, other, values.begin(),
                           [](std::uint64_t a, std::uint64_t b) { return std::max(a, b); });
  }
}

}  // namespace penstock::ucx
