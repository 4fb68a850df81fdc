#include "ucx/transport.hpp"

#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/hash.hpp"
#include "host/node_names.hpp"
#include "penstock/error.hpp"

namespace penstock::ucx {
namespace {

/// A number that no rank has used for a communicator. Each proposes one; if a thread of a rank has taken the highest of
/// them meanwhile, all propose again.
std::uint32_t agree_on_context(Channel& channel) {
  for (;;) {
    std::uint64_t context = 0;
    {
      const auto locked = channel.worker().lock();
      context = channel.worker().propose_context();
    }
    channel.maximum(std::span(&context, 1));
    if (context >= TagSpace::kContexts)
      throw Error(ErrorCode::unsupported, "a process has made " + std::to_string(TagSpace::kContexts) +
                                              " communicators over UCX; start the program again");
    std::uint64_t is_taken = 0;
    {
      const auto locked = channel.worker().lock();
      is_taken = channel.worker().reserve_context(static_cast<std::uint32_t>(context)) ? 0 : 1;
    }
    channel.maximum(std::span(&is_taken, 1));
    if (is_taken == 0) return static_cast<std::uint32_t>(context);
  }
}

TagSpace making(const Group& group) { return TagSpace::of_nonce(group.nonce & ((std::uint64_t{1} << 42) - 1)); }

class UcxTransport final : public engine::Transport {
 public:
  UcxTransport(Worker& worker, const Group& group, const Members& members)
      : channel_(worker, TagSpace::of_context(members.context), group.rank, members.addresses, group.timeout),
        node_of_rank_(members.node_of_rank) {}

  int rank() const override { return channel_.rank(); }
  int size() const override { return channel_.size(); }
  const std::vector<std::int32_t>& node_of_rank() const override { return node_of_rank_; }
  bool any_thread() const override { return true; }
  int max_tag() const override { return (1 << (TagSpace::kTagBits - 1)) - 3; }
  std::string description() const override { return library().description; }

  bool isend(ConstBytes from, int peer, int tag, Token token) override {
    return channel_.send(from, peer, static_cast<std::uint64_t>(tag), token);
  }
  void irecv(Bytes to, int peer, int tag, Token token) override {
    channel_.receive(to, peer, static_cast<std::uint64_t>(tag), token);
  }
  bool take(Bytes to, int tag, Token token) override {
    return channel_.take(to, static_cast<std::uint64_t>(tag), token);
  }
  // A send to a process that has ended is complete: the failure detector reports the process.
  void poll(std::vector<Completion>& complete) override {
    channel_.poll(done_);
    for (const Channel::Done& each : done_) complete.push_back({each.token, each.bytes, each.too_long, each.withdrawn});
    done_.clear();
  }
  void cancel(Token receive) override { channel_.cancel(receive); }
  void set_farewell(ConstBytes packet, int tag) override {
    channel_.set_farewell(packet, static_cast<std::uint64_t>(tag));
  }
  bool has_gone(int peer) noexcept override { return channel_.has_gone(peer); }
  void poke() noexcept override { channel_.make_progress(); }
  void allgather(ConstBytes mine, Bytes all) override { channel_.allgather(mine, all); }
  void maximum(std::span<std::uint64_t> values, const std::function<void()>& meanwhile) override {
    channel_.maximum(values, meanwhile);
  }

 private:
  Channel channel_;
  const std::vector<std::int32_t> node_of_rank_;
  std::vector<Channel::Done> done_;
};

}  // namespace

std::vector<int> first_peers(int rank, int size) {
  std::vector<int> peers;
  for (std::int64_t distance = 1; distance < size; distance *= 2)
    peers.push_back(static_cast<int>((rank + size - distance) % size));
  return peers;
}

Members find_members(Worker& worker, const Group& group, std::uint64_t node) {
  if (group.size < 1 || group.size > TagSpace::kMostRanks || group.rank < 0 || group.rank >= group.size)
    throw Error(ErrorCode::invalid_argument, "rank " + std::to_string(group.rank) + " of " +
                                                 std::to_string(group.size) +
                                                 " ranks was given; expected a rank below the size, and at most " +
                                                 std::to_string(TagSpace::kMostRanks) + " ranks");
  auto known = std::make_shared<std::vector<std::string>>(static_cast<std::size_t>(group.size));
  for (const int peer : first_peers(group.rank, group.size)) {
    const auto found = group.addresses.find(peer);
    if (found == group.addresses.end())
      throw Error(ErrorCode::invalid_argument, "the address of rank " + std::to_string(peer) +
                                                   " was not given; expected those of ucx::first_peers()");
    (*known)[static_cast<std::size_t>(peer)] = found->second;
  }
  Channel channel(worker, making(group), group.rank, known, group.timeout);
  Members members;
  members.context = agree_on_context(channel);
  std::uint64_t longest = worker.address().size();
  channel.maximum(std::span(&longest, 1));
  // Of each rank: its node, the length of its address, the address.
  struct Head {
    std::uint64_t node;
    std::uint64_t length;
  };
  const std::size_t block = sizeof(Head) + longest;
  std::vector<std::byte> mine(block);
  const Head head{node, worker.address().size()};
  std::memcpy(mine.data(), &head, sizeof head);
  std::memcpy(mine.data() + sizeof head, worker.address().data(), worker.address().size());
  std::vector<std::byte> all(block * static_cast<std::size_t>(group.size));
  channel.allgather(mine, all);
  auto addresses = std::make_shared<std::vector<std::string>>();
  std::vector<std::uint64_t> names;
  for (std::size_t at = 0; at < all.size(); at += block) {
    Head of_rank{};
    std::memcpy(&of_rank, all.data() + at, sizeof of_rank);
    names.push_back(of_rank.node);
    addresses->emplace_back(reinterpret_cast<const char*>(all.data() + at + sizeof of_rank), of_rank.length);
  }
  members.addresses = std::move(addresses);
  members.node_of_rank.resize(names.size());
  std::vector<std::int32_t> scratch(names.size());
  host::number_nodes(names, scratch, members.node_of_rank);
  return members;
}

comm::Link make_link(Worker& worker, const Group& group, const Members& members) {
  comm::Link link(std::make_unique<UcxTransport>(worker, group, members));
  // Ranks duplicate a communicator in the same order, so the numbers of the duplicates are equal on all of them.
  link.duplicate = [&worker, group, members, made = std::make_shared<std::atomic<std::uint64_t>>(0)] {
    Group of_duplicate = group;
    of_duplicate.nonce = base::mix(group.nonce, made->fetch_add(1) + 1);
    Members same = members;
    Channel channel(worker, making(of_duplicate), group.rank, members.addresses, group.timeout);
    same.context = agree_on_context(channel);
    return make_link(worker, of_duplicate, same);
  };
  return link;
}

}  // namespace penstock::ucx
