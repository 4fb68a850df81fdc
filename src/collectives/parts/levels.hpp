// Collectives over two levels, between nodes and inside them, as pipelines of segments (HAN, section III). They
// are composed of four stages, each of which moves one segment.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collectives/parts/node_tasks.hpp"
#include "collectives/parts/stage.hpp"
#include "penstock/tuning.hpp"

namespace penstock::collectives {

/// The tree over the leaders of the nodes.
enum class Between : std::uint8_t { binomial, postal, binary, chain, two_tree };
/// How data moves inside a node: by messages along a binomial tree; by tasks, which any core of the node runs, so that
/// one communication core works for all ranks; automatic: by tasks if they are possible and the message is long.
enum class Inside : std::uint8_t { messages, tasks, automatic };

struct LevelsRow {
  std::string_view name;
  Between between;
  Inside inside;
};

/// The row of levels.def with this name, or nullptr.
const LevelsRow* levels_row(std::string_view name);
/// Whether data moves by tasks inside the nodes, and then how many segments share a task group.
bool uses_tasks(const Team& team, const Collective& collective, Inside inside);
/// The same of a team with so many nodes, and so many ranks on the largest one.
bool uses_tasks(const Team& team, const Collective& collective, Inside inside, int nodes, int largest);
/// The rank that leads the root's node: the root. Beside communication cores, which send and receive for the first rank
/// of their node alone, that one, if data moves by tasks inside the nodes; tasks then bring the data from or to the
/// root.
int leader_at_root(const Team& team, const Collective& collective, bool by_tasks);
std::uint32_t segments_per_batch(CollectiveKind kind, std::uint32_t segments, bool has_other_leader = false);

/// The stages of one rank, with the paper's names: sr reduces inside a node, ir between the leaders, ib broadcasts
/// between the leaders, sb inside a node. Stages that do not depend on each other overlap when the plan runs: ib(0)
/// with sr(1).
class Levels {
 public:
  /// Consecutive segments that are published as one task group, since the engine has room for kMaxTaskGroups.
  struct Batch {
    std::uint32_t first;
    std::uint32_t count;
  };

  Levels(Sequence& sequence, const Team& team, const Collective& collective, const LevelsRow& row);

  const std::vector<Batch>& batches() const { return batches_; }
  void run(Stage stage, Batch batch);

 private:
  void sr(Batch batch);
  void ir(Batch batch);
  void ib(Batch batch);
  void sb(Batch batch);
  const Tree& tree(std::uint32_t segment) const { return trees_[segment % trees_.size()]; }
  void hand_to_root(Batch batch);
  Region into(std::uint32_t segment) const;

  Sequence& sequence_;
  Collective collective_;
  Segments segments_;
  Group node_;
  bool by_tasks_;
  std::optional<std::size_t> root_slot_;  ///< the root's index in node_, if another rank leads its node
  Region own_;
  Region target_;
  Region sum_of_node_;                 ///< with tasks: at the leader
  StepId combined_ = Sequence::kNone;  ///< publishes the tasks of the latest sr()
  int levels_between_ = 0;
  Tree inner_;
  std::vector<Tree> trees_;  ///< between the leaders; segments take turns; empty on other ranks
  std::optional<ReduceStage> up_inside_;
  std::vector<ReduceStage> up_between_;
  std::vector<Region> sums_;  ///< by segment: this rank's partial sum
  std::vector<Batch> batches_;
};

}  // namespace penstock::collectives
