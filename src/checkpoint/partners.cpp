#include "checkpoint/partners.hpp"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

namespace penstock::checkpoint {

namespace {

constexpr std::uint64_t kPieceBytes = std::uint64_t{4} << 20;

/// Pieces on their way from the thread that receives them to the one that writes them: two at most.
class Belt final : public ChunkStream {
 public:
  explicit Belt(std::uint64_t pieces) : pieces_(pieces) {}

  /// Receives into this memory, then calls filled(). Waits until the writer has released it; without a writer at once.
  Bytes free_buffer(std::uint64_t size_bytes) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return abandoned_ || filled_ < released_ + 2; });
    std::vector<std::byte>& buffer = buffers_[filled_ % 2];
    buffer.resize(size_bytes);
    return buffer;
  }
  void filled() {
    change([&] { ++filled_; });
  }
  /// The writer has ended.
  void abandon() {
    change([&] { abandoned_ = true; });
  }

  std::optional<Piece> next() override {
    if (taken_ == pieces_) return std::nullopt;
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return filled_ > taken_; });
    const std::uint64_t piece = taken_++;
    return Piece{0, buffers_[piece % 2]};
  }
  void release() override {
    change([&] { released_ = taken_; });
  }

 private:
  template <class Change>
  void change(const Change& change) {
    {
      const std::lock_guard lock(mutex_);
      change();
    }
    changed_.notify_all();
  }

  const std::uint64_t pieces_;
  std::uint64_t taken_ = 0;  ///< used by the writer
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::byte> buffers_[2];
  std::uint64_t filled_ = 0;
  std::uint64_t released_ = 0;
  bool abandoned_ = false;
};

/// The bytes of piece `number` of an object.
std::uint64_t piece_bytes(std::uint64_t data_bytes, std::uint64_t number) {
  const std::uint64_t begin = number * kPieceBytes;
  return begin >= data_bytes ? 0 : std::min(kPieceBytes, data_bytes - begin);
}

}  // namespace

Partners partners_of(const std::vector<int>& node_of_rank, int rank) {
  const int ranks = static_cast<int>(node_of_rank.size());
  std::map<int, int> sizes;
  for (const int node : node_of_rank) ++sizes[node];
  const int most = std::max_element(sizes.begin(), sizes.end(), [](const auto& a, const auto& b) {
                     return a.second < b.second;
                   })->second;
  if (2 * most > ranks) {
    throw Error(ErrorCode::invalid_argument,
                "partner_copies: a node has " + std::to_string(most) + " of the " + std::to_string(ranks) +
                    " ranks; expected at most half of them, so that each has a partner on another node");
  }
  // In the order of the nodes, the rank that is `most` places behind another one is never on its node.
  std::vector<int> order(node_of_rank.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return node_of_rank[static_cast<std::size_t>(a)] < node_of_rank[static_cast<std::size_t>(b)];
  });
  const int at = static_cast<int>(std::find(order.begin(), order.end(), rank) - order.begin());
  return {order[static_cast<std::size_t>((at + most) % ranks)],
          order[static_cast<std::size_t>((at - most + ranks) % ranks)]};
}

void copy_to_partner(Peers& peers, Tier& tier, const Version& version, const Content& content, const Partners& partners,
                     const std::string& what) {
  const std::vector<ObjectInfo> infos = agree(peers, what, [&] { return content.info; });
  const ObjectInfo& kept = infos[static_cast<std::size_t>(partners.kept)];
  Content copy;
  copy.info = kept;
  copy.info.place_bytes = 0;
  copy.chunk_bytes = content.chunk_bytes;
  copy.digests.resize((kept.size_bytes - kept.data_bytes) / sizeof(Digest));
  peers.shift(std::as_bytes(std::span(content.digests)), partners.keeper,
              std::as_writable_bytes(std::span(copy.digests)), partners.kept);

  const std::uint64_t pieces = (kept.data_bytes + kPieceBytes - 1) / kPieceBytes;
  std::uint64_t rounds = 0;
  for (const ObjectInfo& info : infos) rounds = std::max(rounds, (info.data_bytes + kPieceBytes - 1) / kPieceBytes);
  const auto belt = std::make_shared<Belt>(pieces);
  copy.open = [belt, begun = false](const std::vector<ChunkRange>&) mutable -> std::unique_ptr<ChunkStream> {
    if (std::exchange(begun, true)) {
      throw Error(ErrorCode::unsupported, "partner_copies: the burst buffer needs to read an object twice");
    }
    struct Reader final : ChunkStream {
      std::shared_ptr<Belt> belt;
      std::optional<Piece> next() override { return belt->next(); }
      void release() override { belt->release(); }
    };
    auto reader = std::make_unique<Reader>();
    reader->belt = belt;
    return reader;
  };

  // The ranks exchange all pieces, whatever happens to the writer of one: the others wait for it.
  std::optional<Error> failure;
  std::thread writer([&] {
    failure = attempt(what, peers.rank(), [&] {
      try {
        tier.write(version, partners.kept, copy, {});
      } catch (const Error& error) {
        if (error.code() != ErrorCode::exists) throw;
        throw Error(ErrorCode::invalid_argument, "partner_copies: ranks " + std::to_string(peers.rank()) + " and " +
                                                     std::to_string(partners.kept) + " share the burst buffer " +
                                                     tier.title() +
                                                     "; leave partner_copies out, or give each node its own");
      }
    });
    belt->abandon();
  });
  std::optional<Error> broken;
  try {
    ConstBytes own;
    if (content.info.data_bytes > 0) {
      const auto stream = content.open({{0, content.digests.size()}});
      own = stream->next()->data;  // staged: one piece
    }
    for (std::uint64_t round = 0; round < rounds; ++round) {
      content.give_way();
      const std::uint64_t sent = piece_bytes(own.size(), round);
      const std::uint64_t received = piece_bytes(kept.data_bytes, round);
      const Bytes to = received == 0 ? Bytes() : belt->free_buffer(received);
      peers.shift(sent == 0 ? ConstBytes() : own.subspan(round * kPieceBytes, sent), partners.keeper, to,
                  partners.kept);
      if (received > 0) belt->filled();
    }
  } catch (const Error& error) {
    broken = error;  // the communicator; the writer gets what it waits for, and its object is discarded
    for (std::uint64_t piece = 0; piece < pieces; ++piece) belt->filled();
  }
  writer.join();
  if (broken) throw *broken;
  agree(peers, what, [&] {
    if (failure) throw *failure;
    return Done{};
  });
}

}  // namespace penstock::checkpoint
