#include "local_transport.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <utility>

#include "penstock/error.hpp"

namespace penstock::engine {
namespace {

constexpr int kAnyRank = -1;

struct Transfer {
  bool complete = false;
  std::uint64_t moved_bytes = 0;
  bool truncated = false;
  bool withdrawn = false;
};

struct PostedReceive {
  Bytes to;
  int source;
  int tag;
  std::shared_ptr<Transfer> transfer;
};

struct ArrivedMessage {
  std::vector<std::byte> copy;
  ConstBytes data;  // the sender's own memory, if the sender waits for the receiver
  int source;
  int tag;
  std::shared_ptr<Transfer> waiting_sender;
};

struct Mailbox {
  std::deque<PostedReceive> posted;
  std::deque<ArrivedMessage> arrived;
  std::vector<std::byte> farewell;  // of a rank that has left
};

struct World {
  LocalTransportOptions options;
  std::vector<std::int32_t> node_of_rank;
  std::mutex mutex;
  std::vector<Mailbox> mailboxes;
  std::set<std::thread::id> callers;

  std::condition_variable gathered;
  std::vector<std::byte> gather;
  std::vector<std::byte> gather_result;
  int gather_count = 0;
  std::uint64_t gather_round = 0;
};

void deliver(ConstBytes from, const PostedReceive& receive) {
  const std::size_t bytes = std::min(from.size(), receive.to.size());
  if (bytes > 0) std::memcpy(receive.to.data(), from.data(), bytes);
  receive.transfer->moved_bytes = from.size();
  receive.transfer->truncated = from.size() > receive.to.size();
  receive.transfer->complete = true;
}

class LocalTransport final : public Transport {
 public:
  LocalTransport(std::shared_ptr<World> world, int rank)
      : world_(std::move(world)), rank_(rank), random_(world_->options.shuffle_seed + static_cast<unsigned>(rank)) {}

  ~LocalTransport() override {
    const std::lock_guard lock(world_->mutex);
    Mailbox& own = mailbox(rank_);
    own.posted.clear();
    own.farewell = std::move(farewell_);
    for (const ArrivedMessage& message : own.arrived)
      if (message.tag == farewell_tag_) say_farewell(rank_, message.source);
    if (world_->options.left_over != nullptr)
      *world_->options.left_over += static_cast<std::size_t>(
          std::ranges::count_if(mailbox(rank_).arrived, [](const auto& message) { return message.tag != 0; }));
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(world_->node_of_rank.size()); }
  const std::vector<std::int32_t>& node_of_rank() const override { return world_->node_of_rank; }
  bool any_thread() const override { return world_->options.any_thread; }
  int max_tag() const override { return world_->options.max_tag; }
  std::string description() const override { return "threads of one process"; }

  void set_farewell(ConstBytes packet, int tag) override {
    farewell_.assign(packet.begin(), packet.end());
    farewell_tag_ = tag;
  }

  bool isend(ConstBytes from, int peer, int tag, Token token) override {
    const std::lock_guard lock(world_->mutex);
    check_caller();
    check_tag(tag);
    if (tag == farewell_tag_ && say_farewell(peer, rank_)) return true;
    Mailbox& box = mailbox(peer);
    const auto match = std::find_if(box.posted.begin(), box.posted.end(), [&](const PostedReceive& posted) {
      return posted.tag == tag && posted.source == rank_;
    });
    if (match != box.posted.end()) {
      deliver(from, *match);
      box.posted.erase(match);
      return true;
    }
    if (from.size() <= world_->options.rendezvous_bytes) {
      box.arrived.push_back({{from.begin(), from.end()}, {}, rank_, tag, nullptr});
      return true;
    }
    const auto transfer = keep(token);
    transfer->moved_bytes = from.size();
    box.arrived.push_back({{}, from, rank_, tag, transfer});
    return false;
  }

  void irecv(Bytes to, int peer, int tag, Token token) override {
    const std::lock_guard lock(world_->mutex);
    check_caller();
    check_tag(tag);
    PostedReceive receive{to, peer, tag, keep(token)};
    if (!receive_arrived(receive)) mailbox(rank_).posted.push_back(std::move(receive));
  }

  bool take(Bytes to, int tag, Token token) override {
    const std::lock_guard lock(world_->mutex);
    check_caller();
    PostedReceive receive{to, kAnyRank, tag, std::make_shared<Transfer>()};
    if (is_delayed() || !receive_arrived(receive)) return false;
    transfers_.emplace_back(token, receive.transfer);
    return true;
  }

  int first_unmatched(int peer) override {
    const std::lock_guard lock(world_->mutex);
    check_caller();
    const std::deque<ArrivedMessage>& arrived = mailbox(rank_).arrived;
    const auto first = std::ranges::find(arrived, peer, &ArrivedMessage::source);
    return first == arrived.end() ? -1 : first->tag;
  }

  void poll(std::vector<Completion>& complete) override {
    const std::lock_guard lock(world_->mutex);
    check_caller();
    std::erase_if(transfers_, [&](const auto& each) {
      if (!each.second->complete || is_delayed()) return false;
      complete.push_back({each.first, each.second->moved_bytes, each.second->truncated, each.second->withdrawn});
      return true;
    });
    if (world_->options.shuffle_seed != 0) std::shuffle(complete.begin(), complete.end(), random_);
  }

  void cancel(Token receive) override {
    const std::lock_guard lock(world_->mutex);
    check_caller();
    const auto found =
        std::find_if(transfers_.begin(), transfers_.end(), [&](const auto& each) { return each.first == receive; });
    if (found == transfers_.end()) throw Error(ErrorCode::internal, "cancel of a transfer that does not exist", rank_);
    Transfer& transfer = *found->second;
    if (transfer.complete) return;
    transfer.complete = transfer.withdrawn = true;
    std::erase_if(mailbox(rank_).posted,
                  [&](const PostedReceive& posted) { return posted.transfer.get() == &transfer; });
  }

  void poke() noexcept override {}  // isend and irecv move the messages

  void allgather(ConstBytes mine, Bytes all) override { gather(mine, all, {}); }

  void maximum(std::span<std::uint64_t> values, const std::function<void()>& meanwhile) override {
    std::vector<std::uint64_t> all(values.size() * static_cast<std::size_t>(size()));
    gather(std::as_bytes(values), std::as_writable_bytes(std::span(all)), meanwhile);
    for (std::size_t i = 0; i < all.size(); ++i)
      values[i % values.size()] = std::max(values[i % values.size()], all[i]);
  }

 private:
  void gather(ConstBytes mine, Bytes all, const std::function<void()>& meanwhile) {
    std::unique_lock lock(world_->mutex);
    world_->callers.insert(std::this_thread::get_id());
    world_->gather.resize(all.size());
    if (!mine.empty())
      std::memcpy(world_->gather.data() + mine.size() * static_cast<std::size_t>(rank_), mine.data(), mine.size());
    const std::uint64_t round = world_->gather_round;
    if (++world_->gather_count == size()) {
      world_->gather_count = 0;
      world_->gather_result = std::exchange(world_->gather, {});
      ++world_->gather_round;
      world_->gathered.notify_all();
    } else if (meanwhile) {
      while (world_->gather_round == round) {
        lock.unlock();
        meanwhile();
        std::this_thread::yield();
        lock.lock();
      }
    } else {
      world_->gathered.wait(lock, [&] { return world_->gather_round != round; });
    }
    if (!all.empty()) std::memcpy(all.data(), world_->gather_result.data(), all.size());
  }

  Mailbox& mailbox(int rank) { return world_->mailboxes[static_cast<std::size_t>(rank)]; }

  /// False if the rank has not left.
  bool say_farewell(int from, int to) {
    const std::vector<std::byte>& packet = mailbox(from).farewell;
    if (packet.empty()) return false;
    if (from != to) mailbox(to).arrived.push_back({packet, {}, from, farewell_tag_, nullptr});
    return true;
  }

  std::shared_ptr<Transfer> keep(Token token) {
    return transfers_.emplace_back(token, std::make_shared<Transfer>()).second;
  }

  bool is_delayed() { return world_->options.shuffle_seed != 0 && random_() % 2 == 0; }

  bool receive_arrived(const PostedReceive& receive) {
    Mailbox& box = mailbox(rank_);
    const auto match = std::find_if(box.arrived.begin(), box.arrived.end(), [&](const ArrivedMessage& message) {
      return message.tag == receive.tag && (message.source == receive.source || receive.source == kAnyRank);
    });
    if (match == box.arrived.end()) return false;
    deliver(match->waiting_sender ? match->data : ConstBytes(match->copy), receive);
    if (match->waiting_sender) match->waiting_sender->complete = true;
    box.arrived.erase(match);
    return true;
  }

  void check_tag(int tag) const {
    if (tag < 0 || tag > world_->options.max_tag) throw Error(ErrorCode::mpi, "a tag is out of range", rank_);
  }

  void check_caller() const {
    if (!world_->options.any_thread && !world_->callers.contains(std::this_thread::get_id()))
      throw Error(ErrorCode::mpi, "the transport was used by a thread that never called into Penstock", rank_);
  }

  const std::shared_ptr<World> world_;
  const int rank_;
  std::vector<std::pair<Token, std::shared_ptr<Transfer>>> transfers_;
  std::minstd_rand random_;
  std::vector<std::byte> farewell_;
  int farewell_tag_ = -1;
};

}  // namespace

std::vector<std::unique_ptr<Transport>> make_local_transports(std::vector<std::int32_t> node_of_rank,
                                                              const LocalTransportOptions& options) {
  std::map<std::int32_t, std::int32_t> number_of_node;
  for (std::int32_t& node : node_of_rank)
    node = number_of_node.emplace(node, static_cast<std::int32_t>(number_of_node.size())).first->second;
  auto world = std::make_shared<World>();
  world->options = options;
  world->mailboxes.resize(node_of_rank.size());
  world->node_of_rank = std::move(node_of_rank);
  std::vector<std::unique_ptr<Transport>> transports;
  for (std::size_t rank = 0; rank < world->node_of_rank.size(); ++rank)
    transports.push_back(std::make_unique<LocalTransport>(world, static_cast<int>(rank)));
  return transports;
}

}  // namespace penstock::engine
