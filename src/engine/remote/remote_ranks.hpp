// The ranks of other nodes, and which of them have left.
#pragma once

#include <set>
#include <vector>

#include "engine/core.hpp"

namespace penstock::engine {

/// A rank that has left posts nothing more, and answers each packet by one that says so. The engine's lock protects it.
class RemoteRanks {
 public:
  explicit RemoteRanks(const Core& core) {
    for (int peer = 0; peer < core.node.team.size(); ++peer)
      if (!core.is_near(peer)) all_.push_back(peer);
  }

  const std::vector<int>& all() const { return all_; }
  bool has_left(int peer) const { return !left_.empty() && left_.contains(peer); }
  void note_left(int peer) { left_.insert(peer); }
  /// Those that have not left.
  std::set<int> present() const {
    std::set<int> ranks(all_.begin(), all_.end());
    for (const int peer : left_) ranks.erase(peer);
    return ranks;
  }

 private:
  std::vector<int> all_;
  std::set<int> left_;
};

}  // namespace penstock::engine
