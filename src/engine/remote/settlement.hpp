// What is left of an operation between nodes that has failed: messages on their way that no step takes any more.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace penstock::engine {

/// A message of one rank to another, as the sender tells the receiver of it.
struct SentMessage {
  std::int32_t tag = 0;  ///< of the transport
  std::uint32_t unused = 0;
  std::uint64_t bytes = 0;
};

/// One rank's view of one operation. Each rank that ends it tells each other rank which messages it has posted to it,
/// and posts no more. A message that was posted and has not been received is sunk: received into memory that nobody
/// reads. The operation is settled once nothing can come for it any more; see docs/design/network.md.
class Settlement {
 public:
  using Received = std::multiset<std::pair<int, std::int32_t>>;  ///< source and tag
  struct Missing {
    int source = 0;
    SentMessage message;
  };

  /// The operation has ended here. `sources`: the ranks that must be heard before it is settled.
  void end(Received received, std::set<int> sources) {
    has_ended_ = true;
    received_ = std::move(received);
    for (const auto& [source, sent] : heard_) sources.erase(source);
    unheard_ = std::move(sources);
  }
  /// All that this rank has sent. What it tells again is ignored.
  void hear(int source, std::vector<SentMessage> sent) {
    if (gone_.contains(source) || !heard_.try_emplace(source, sent).second) return;
    unheard_.erase(source);
    for (const SentMessage& message : sent) to_match_.push_back({source, message});
  }
  /// The rank has left: it tells nothing any more. What it has told of is still on its way.
  void stop_hearing(int source) { unheard_.erase(source); }
  /// The rank's process has ended: nothing comes from it any more.
  void give_up(int source) {
    gone_.insert(source);
    unheard_.erase(source);
    std::erase_if(to_match_, [&](const Missing& each) { return each.source == source; });
  }

  bool has_ended() const { return has_ended_; }
  /// The messages to be sunk that have become known since the last call, of those sources from which receives may be
  /// posted; the others stay.
  template <typename MayReceive>
  std::vector<Missing> take_missing(MayReceive may_receive) {
    std::vector<Missing> missing;
    if (!has_ended_) return missing;
    for (const Missing& each : std::exchange(to_match_, {})) {
      const auto found = received_.find({each.source, each.message.tag});
      if (found != received_.end())
        received_.erase(found);
      else
        (may_receive(each.source) ? missing : to_match_).push_back(each);
    }
    sinking_ += missing.size();
    return missing;
  }
  void has_sunk() { --sinking_; }
  bool is_settled() const { return has_ended_ && unheard_.empty() && to_match_.empty() && sinking_ == 0; }

 private:
  bool has_ended_ = false;
  Received received_;
  std::set<int> unheard_;
  std::set<int> gone_;
  std::map<int, std::vector<SentMessage>> heard_;
  std::vector<Missing> to_match_;
  std::size_t sinking_ = 0;
};

}  // namespace penstock::engine
