#include "engine/local_transport.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <unordered_map>
#include <utility>

#include "penstock/error.hpp"

namespace penstock::engine {
namespace {

struct Transfer {
  bool complete = false;
  std::uint64_t moved_bytes = 0;
  bool truncated = false;
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
  LocalTransport(std::shared_ptr<World> world, int rank) : world_(std::move(world)), rank_(rank) {}

  ~LocalTransport() override {
    const std::lock_guard lock(world_->mutex);
    mailbox(rank_).posted.clear();
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(world_->node_of_rank.size()); }
  const std::vector<std::int32_t>& node_of_rank() const override { return world_->node_of_rank; }
  bool any_thread() const override { return world_->options.any_thread; }
  std::string description() const override { return "threads of one process"; }

  Handle isend(ConstBytes from, int peer, int tag) override {
    const std::lock_guard lock(world_->mutex);
    check_caller();
    auto transfer = std::make_shared<Transfer>();
    transfer->moved_bytes = from.size();
    Mailbox& box = mailbox(peer);
    const auto match = std::find_if(box.posted.begin(), box.posted.end(), [&](const PostedReceive& posted) {
      return posted.tag == tag && (posted.source == rank_ || posted.source == kAnyRank);
    });
    if (match != box.posted.end()) {
      deliver(from, *match);
      box.posted.erase(match);
      transfer->complete = true;
    } else if (from.size() > world_->options.rendezvous_bytes) {
      box.arrived.push_back({{}, from, rank_, tag, transfer});
    } else {
      box.arrived.push_back({{from.begin(), from.end()}, {}, rank_, tag, nullptr});
      transfer->complete = true;
    }
    return keep(std::move(transfer));
  }

  Handle irecv(Bytes to, int peer, int tag) override {
    const std::lock_guard lock(world_->mutex);
    check_caller();
    PostedReceive receive{to, peer, tag, std::make_shared<Transfer>()};
    Mailbox& box = mailbox(rank_);
    const auto match = std::find_if(box.arrived.begin(), box.arrived.end(), [&](const ArrivedMessage& message) {
      return message.tag == tag && (message.source == peer || peer == kAnyRank);
    });
    auto transfer = receive.transfer;
    if (match != box.arrived.end()) {
      deliver(match->waiting_sender ? match->data : ConstBytes(match->copy), receive);
      if (match->waiting_sender) match->waiting_sender->complete = true;
      box.arrived.erase(match);
    } else {
      box.posted.push_back(std::move(receive));
    }
    return keep(std::move(transfer));
  }

  void poll() override {}

  std::optional<std::uint64_t> test(Handle handle) override {
    const std::lock_guard lock(world_->mutex);
    check_caller();
    const auto found = transfers_.find(handle);
    if (found == transfers_.end()) throw Error(ErrorCode::internal, "test of a transfer that does not exist", rank_);
    if (!found->second->complete) return std::nullopt;
    const auto transfer = found->second;
    transfers_.erase(found);
    if (transfer->truncated)
      throw Error(ErrorCode::mismatch,
                  "a message of " + std::to_string(transfer->moved_bytes) + " bytes is longer than the receive buffer",
                  rank_);
    return transfer->moved_bytes;
  }

  bool cancel(Handle handle) override {
    const std::lock_guard lock(world_->mutex);
    check_caller();
    const auto found = transfers_.find(handle);
    if (found == transfers_.end()) throw Error(ErrorCode::internal, "cancel of a transfer that does not exist", rank_);
    const auto transfer = found->second;
    transfers_.erase(found);
    if (transfer->complete) return false;
    std::erase_if(mailbox(rank_).posted, [&](const PostedReceive& posted) { return posted.transfer == transfer; });
    return true;
  }

  void poke() noexcept override {}  // isend and irecv move the messages

  void allgather(ConstBytes mine, Bytes all) override {
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
    } else {
      world_->gathered.wait(lock, [&] { return world_->gather_round != round; });
    }
    if (!all.empty()) std::memcpy(all.data(), world_->gather_result.data(), all.size());
  }

 private:
  Mailbox& mailbox(int rank) { return world_->mailboxes[static_cast<std::size_t>(rank)]; }

  Handle keep(std::shared_ptr<Transfer> transfer) {
    transfers_.emplace(++last_handle_, std::move(transfer));
    return last_handle_;
  }

  void check_caller() const {
    if (!world_->options.any_thread && !world_->callers.contains(std::this_thread::get_id()))
      throw Error(ErrorCode::mpi, "the transport was used by a thread that never called into Penstock", rank_);
  }

  const std::shared_ptr<World> world_;
  const int rank_;
  std::unordered_map<Handle, std::shared_ptr<Transfer>> transfers_;
  Handle last_handle_ = 0;
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
