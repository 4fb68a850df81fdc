#include "checkpoint/shared_reads.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <future>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

namespace penstock::checkpoint {

namespace {

/// From here on a rank needs, or no longer needs, the chunks of an object.
struct Border {
  std::uint64_t object;
  std::uint64_t chunk;
  int rank;
  bool begins;
};

class Planner {
 public:
  Planner(std::size_t ranks, const std::vector<std::vector<std::uint8_t>>& at_hand, const std::vector<int>& nodes,
          std::uint64_t most_chunks)
      : at_hand_(at_hand), nodes_(nodes), most_chunks_(most_chunks), reads_(ranks), load_(ranks) {}

  void share(std::uint64_t object, std::uint64_t first, std::uint64_t end, const std::set<int>& needers) {
    if (needers.size() < 2 || 2 * needers.size() < reads_.size() || on_one_node(needers)) return;
    std::vector<int> readers;
    for (const int rank : needers) {
      if (!at_hand_.empty() && at_hand_[static_cast<std::size_t>(rank)][object] != 0) readers.push_back(rank);
    }
    if (readers.empty()) readers.assign(needers.begin(), needers.end());
    for (std::uint64_t count = 0; first < end; first += count) {
      count = std::min(most_chunks_, end - first);
      const int reader = *std::min_element(readers.begin(), readers.end(), [&](int a, int b) {
        return load_[static_cast<std::size_t>(a)] < load_[static_cast<std::size_t>(b)];
      });
      load_[static_cast<std::size_t>(reader)] += count;
      reads_[static_cast<std::size_t>(reader)].push_back({{object, {first, count}}, reader});
    }
  }

  std::vector<std::vector<SharedRead>> rounds() const {
    std::vector<std::vector<SharedRead>> rounds;
    for (const std::vector<SharedRead>& own : reads_) {
      if (own.size() > rounds.size()) rounds.resize(own.size());
      for (std::size_t i = 0; i < own.size(); ++i) rounds[i].push_back(own[i]);
    }
    return rounds;
  }

 private:
  bool on_one_node(const std::set<int>& ranks) const {
    if (nodes_.empty()) return false;
    const auto node = [&](int rank) { return nodes_[static_cast<std::size_t>(rank)]; };
    return std::all_of(ranks.begin(), ranks.end(), [&](int rank) { return node(rank) == node(*ranks.begin()); });
  }

  const std::vector<std::vector<std::uint8_t>>& at_hand_;
  const std::vector<int>& nodes_;
  const std::uint64_t most_chunks_;
  std::vector<std::vector<SharedRead>> reads_;  ///< by reader
  std::vector<std::uint64_t> load_;             ///< chunks, by reader
};

/// This rank's reads of the rounds, some of them in flight.
class OwnReads {
 public:
  struct Found {
    bool intact = false;
    ConstBytes data;  ///< until the next call but one
    bool in_place = false;
  };

  OwnReads(std::vector<ObjectChunks> reads, ObjectReaders& readers, const Manifest& manifest,
           const std::vector<std::vector<Piece>>& pieces)
      : reads_(std::move(reads)), readers_(readers), manifest_(manifest), pieces_(pieces) {
    while (flying_.size() < kInFlight && start()) continue;
  }

  /// The next one of them.
  Found next() {
    Found found = flying_.front().get();
    flying_.pop_front();
    start();
    return found;
  }

 private:
  static constexpr std::size_t kInFlight = 2;

  bool start() {
    if (started_ == reads_.size()) return false;
    const ObjectChunks chunks = reads_[started_];
    std::vector<std::byte>& buffer = buffers_[started_ % buffers_.size()];
    ++started_;
    // Deferred if the system gives no more threads.
    flying_.push_back(std::async(std::launch::async | std::launch::deferred, [this, chunks, &buffer] {
      Found found;
      try {
        const std::uint64_t size_bytes = range_bytes(manifest_, chunks);
        Bytes to = target_of(pieces_[chunks.object], chunks.range.first * manifest_.chunk_bytes, size_bytes);
        found.in_place = !to.empty();
        if (!found.in_place) {
          buffer.resize(size_bytes);
          to = buffer;
        }
        readers_.of(chunks.object).read(chunks.range, to);
        found.data = to;
        found.intact = true;
      } catch (const std::exception&) {
        // Each rank that needs it reads it itself, and tells what is wrong.
      }
      return found;
    }));
    return true;
  }

  const std::vector<ObjectChunks> reads_;
  ObjectReaders& readers_;
  const Manifest& manifest_;
  const std::vector<std::vector<Piece>>& pieces_;
  std::size_t started_ = 0;
  std::array<std::vector<std::byte>, kInFlight + 1> buffers_;
  std::deque<std::future<Found>> flying_;  // last member: its destructor waits for what uses those above
};

}  // namespace

std::uint64_t range_bytes(const Manifest& manifest, const ObjectChunks& chunks) {
  const std::uint64_t begin = chunks.range.first * manifest.chunk_bytes;
  return std::min(chunks.range.count * manifest.chunk_bytes, manifest.objects[chunks.object].data_bytes - begin);
}

std::vector<std::vector<SharedRead>> plan_shared_reads(const std::vector<std::vector<ObjectChunks>>& needs,
                                                       const std::vector<std::vector<std::uint8_t>>& at_hand,
                                                       const std::vector<int>& nodes, std::uint64_t most_chunks) {
  std::vector<Border> borders;
  for (std::size_t rank = 0; rank < needs.size(); ++rank) {
    for (const auto& [object, range] : needs[rank]) {
      borders.push_back({object, range.first, static_cast<int>(rank), true});
      borders.push_back({object, range.first + range.count, static_cast<int>(rank), false});
    }
  }
  // If a range of a rank begins where its last one ends, the end comes first.
  std::sort(borders.begin(), borders.end(), [](const Border& a, const Border& b) {
    return std::tie(a.object, a.chunk, a.begins, a.rank) < std::tie(b.object, b.chunk, b.begins, b.rank);
  });
  Planner planner(needs.size(), at_hand, nodes, most_chunks);
  std::set<int> needers;
  for (std::size_t i = 0; i < borders.size(); ++i) {
    const Border& border = borders[i];
    if (i > 0 && !needers.empty()) planner.share(border.object, borders[i - 1].chunk, border.chunk, needers);
    if (border.begins) {
      needers.insert(border.rank);
    } else {
      needers.erase(border.rank);
    }
  }
  return planner.rounds();
}

ObjectReaders::ObjectReaders(std::vector<const Tier*> tiers, const Manifest& manifest,
                             std::function<void(const std::string&)> warn)
    : tiers_(std::move(tiers)), manifest_(manifest), warn_(std::move(warn)) {}

ObjectReader& ObjectReaders::of(std::uint64_t object) {
  Opened& opened = [&]() -> Opened& {
    const std::lock_guard lock(mutex_);
    return readers_[object];
  }();
  const std::lock_guard lock(opened.mutex);
  std::unique_ptr<ObjectReader>& reader = opened.reader;
  if (!reader) {
    reader = std::make_unique<ObjectReader>(Source{tiers_, manifest_.version, static_cast<int>(object)},
                                            manifest_.objects[object], manifest_.chunk_bytes,
                                            [this](const std::string& text) {
                                              const std::lock_guard warning(warning_);
                                              warn_(text);
                                            });
  }
  return *reader;
}

void read_shared(Peers& peers, const std::vector<std::vector<SharedRead>>& rounds, ObjectReaders& readers,
                 const Manifest& manifest, const std::vector<std::vector<Piece>>& pieces,
                 std::vector<std::vector<std::uint64_t>>& needed) {
  std::vector<ObjectChunks> mine;
  for (const std::vector<SharedRead>& round : rounds) {
    for (const SharedRead& read : round) {
      if (read.reader == peers.rank()) mine.push_back(read.chunks);
    }
  }
  OwnReads own(std::move(mine), readers, manifest, pieces);
  std::vector<std::set<std::uint64_t>> got(needed.size());
  std::vector<std::uint8_t> intact(static_cast<std::size_t>(peers.size()));
  std::vector<std::byte> buffer;
  for (const std::vector<SharedRead>& round : rounds) {
    OwnReads::Found found;
    for (const SharedRead& read : round) {
      if (read.reader == peers.rank()) found = own.next();
    }
    const std::uint8_t is_intact = found.intact ? 1 : 0;
    peers.allgather(std::as_bytes(std::span(&is_intact, 1)), std::as_writable_bytes(std::span(intact)));
    for (const auto& [chunks, reader] : round) {
      if (intact[static_cast<std::size_t>(reader)] == 0) continue;
      const std::uint64_t offset_bytes = chunks.range.first * manifest.chunk_bytes;
      const std::uint64_t size_bytes = range_bytes(manifest, chunks);
      const std::vector<std::uint64_t>& wanted = needed[chunks.object];
      const bool is_needed = std::binary_search(wanted.begin(), wanted.end(), chunks.range.first);
      Bytes data;
      bool in_place = false;
      if (reader == peers.rank()) {
        // A root's buffer is only read.
        data = {const_cast<std::byte*>(found.data.data()), found.data.size()};
        in_place = found.in_place;
      } else {
        if (is_needed) data = target_of(pieces[chunks.object], offset_bytes, size_bytes);
        in_place = !data.empty();
        if (!in_place) {
          if (buffer.size() < size_bytes) buffer.resize(size_bytes);
          data = Bytes(buffer).first(size_bytes);
        }
      }
      peers.broadcast(data, reader);
      if (!is_needed) continue;
      if (!in_place) copy_from(pieces[chunks.object], offset_bytes, data);
      got[chunks.object].insert(chunks.range.first);
    }
  }
  // A range is needed as a whole or not at all.
  for (const std::vector<SharedRead>& round : rounds) {
    for (const auto& [chunks, reader] : round) {
      if (!got[chunks.object].contains(chunks.range.first)) continue;
      std::vector<std::uint64_t>& left = needed[chunks.object];
      const auto begin = std::lower_bound(left.begin(), left.end(), chunks.range.first);
      left.erase(begin, begin + static_cast<std::ptrdiff_t>(chunks.range.count));
    }
  }
}

}  // namespace penstock::checkpoint
