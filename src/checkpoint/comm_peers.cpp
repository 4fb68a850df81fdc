#include "checkpoint/peers.hpp"

namespace penstock::checkpoint {

namespace {

class CommPeers final : public Peers {
 public:
  explicit CommPeers(const Comm& comm) : comm_(comm) {}

  int rank() const override { return comm_.rank(); }
  int size() const override { return comm_.size(); }
  void allgather(ConstBytes mine, Bytes all) override { comm_.allgather(mine, all); }
  void broadcast(Bytes data, int root) override {
    Collective collective;
    collective.kind = CollectiveKind::bcast;
    collective.count = data.size();
    collective.dtype = DType::uint8;
    collective.root = root;
    comm_.run(collective, {}, data);
  }
  void shift(ConstBytes data, int to, Bytes received, int from) override {
    const auto ranks = static_cast<std::size_t>(comm_.size());
    Collective collective;
    collective.kind = CollectiveKind::alltoallv;
    collective.dtype = DType::uint8;
    for (Blocks* blocks : {&collective.send, &collective.receive}) {
      blocks->counts.assign(ranks, 0);
      blocks->displacements.assign(ranks, 0);
    }
    collective.send.counts[static_cast<std::size_t>(to)] = data.size();
    collective.receive.counts[static_cast<std::size_t>(from)] = received.size();
    comm_.run(collective, data, received);
  }

 private:
  Comm comm_;
};

}  // namespace

std::shared_ptr<Peers> peers_of(const Comm& comm) { return std::make_shared<CommPeers>(comm); }

}  // namespace penstock::checkpoint
