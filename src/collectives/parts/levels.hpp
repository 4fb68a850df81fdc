// Collectives over two levels, nodes and the ranks inside them, as pipelines of segments (paper 001, section III): a
// composition of four stages that each move one segment.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collectives/parts/node_tasks.hpp"
#include "collectives/parts/stage.hpp"
#include "penstock/tuning.hpp"

namespace penstock::collectives {

/// How the leaders of the nodes are joined.
enum class Between : std::uint8_t { binomial, binary, chain, two_tree };
/// How the ranks of a node are: by messages along a binomial tree; by tasks that any core of the node takes, so that
/// one core of communication serves all of its ranks; or by tasks where those are possible and the message is long.
enum class Inside : std::uint8_t { messages, tasks, automatic };

struct LevelsRow {
  std::string_view name;
  Between between;
  Inside inside;
};

/// The row of levels.def with this name, or nullptr.
const LevelsRow* levels_row(std::string_view name);

/// The stages of one rank. The paper's names: sr and ir reduce inside the nodes and between their leaders, ib and sb
/// broadcast between the leaders and inside the nodes. What runs one after the other here overlaps wherever the data
/// allows it: ib(0) with sr(1), and so on.
class Levels {
 public:
  /// Neighbouring segments that pass through a node's shared memory together: the engine has room for few shares.
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
  Region into(std::uint32_t segment) const;

  Sequence& sequence_;
  Collective collective_;
  Segments segments_;
  Group node_;
  bool by_tasks_;
  Region own_;
  Region target_;
  Region sum_of_node_;  ///< with tasks: of the leader
  int levels_between_ = 0;
  Tree inner_;
  std::vector<Tree> trees_;  ///< between the leaders, taking turns; empty on other ranks
  std::optional<ReduceStage> up_inside_;
  std::vector<ReduceStage> up_between_;
  std::vector<Region> sums_;  ///< by segment: where the sum lies that this rank has so far
  std::vector<Batch> batches_;
};

}  // namespace penstock::collectives
