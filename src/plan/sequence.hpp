// Builds a plan from a sequential program: it derives the dependencies from the memory that the steps access.
#pragma once

#include <array>
#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "penstock/plan.hpp"

namespace penstock::plan {

/// One copy of Sequence::move().
struct Move {
  Region from;
  Region to;
};

/// A planner calls the members in the order of a correct sequential program of its rank. Each step waits for exactly
/// the earlier steps that wrote what it reads, or that used what it overwrites. So steps overlap if they can: a loop
/// over segments becomes a pipeline. Further rules:
/// - A `signal` waits for every earlier write of this rank's shared buffer. A `read` waits for the latest `wait` for
/// its
///   peer. Before a rank overwrites published memory, the caller must name the wait for its readers in `after`.
/// - A step on an empty region, and a copy of a region to itself, is left out; kNone is returned. Sender and receiver
///   know the size, so both leave the message out. `empty_send` and `empty_recv` are for an empty message that orders
///   two ranks.
/// - `publish_tasks` takes part in this order by the memory of this rank that its tasks access.
class Sequence {
 public:
  /// Further steps to wait for; kNone is ignored.
  struct After : std::span<const StepId> {
    After() = default;
    After(std::initializer_list<StepId> steps) : span(steps.begin(), steps.size()) {}
    After(const std::vector<StepId>& steps) : span(steps) {}
  };
  static constexpr StepId kNone = PlanBuilder::kNone;

  Sequence(std::string algorithm, const Team& team) : builder_(std::move(algorithm), team.rank, team.size()) {}

  Sequence& at(int level, std::uint32_t segment = 0) {
    builder_.at(static_cast<std::uint16_t>(level), segment);
    return *this;
  }
  Sequence& tree_levels(int levels) {
    builder_.tree_levels(levels);
    return *this;
  }
  /// See Plan::by_flags.
  Sequence& by_flags() {
    builder_.by_flags();
    return *this;
  }

  std::size_t step_count() const { return builder_.so_far().steps.size(); }
  /// See PlanBuilder::in_order_after.
  Sequence& in_order_after(StepId step) {
    builder_.in_order_after(step);
    return *this;
  }

  StepId send(Region from, int peer, std::uint32_t tag, After after = {});
  StepId recv(Region to, int peer, std::uint32_t tag, After after = {});
  StepId copy(Region from, Region to, After after = {});
  StepId reduce(Region from, Region to, After after = {});
  /// See Computation::reduce_sorted.
  StepId reduce_sorted(Region from, Region to, After after = {});
  /// All copies of `moves` as one step. All sources lie in one buffer, all targets in one buffer, and no source
  /// overlaps a target. `element_bytes` is the element size of the plan.
  StepId move(std::span<const Move> moves, std::uint64_t element_bytes, After after = {});
  StepId signal(int peer, std::uint32_t tag, After after = {});
  /// The same with a length, see kToldLengthBytes.
  StepId signal_length(Region length, int peer, std::uint32_t tag, After after = {});
  StepId wait_length(Region length, int peer, std::uint32_t tag, After after = {});
  /// A signal that waits for the writes of this region of the shared buffer only; with an empty region, for none.
  StepId publish(Region published, int peer, std::uint32_t tag, After after = {});
  StepId wait(int peer, std::uint32_t tag, After after = {});
  StepId read(Region from, int peer, Region to, After after = {});
  StepId empty_send(int peer, std::uint32_t tag, After after = {});
  StepId empty_recv(int peer, std::uint32_t tag, After after = {});

  std::uint32_t task(const SharedTask& task, std::span<const RankRegion> sources, std::span<const RankRegion> targets) {
    return builder_.task(task, sources, targets);
  }
  /// Publishes the tasks that were added since the last publish_tasks(); kNone if there are none.
  StepId publish_tasks(After after = {});

  /// Reserves memory, aligned to 64 bytes.
  Region scratch(std::uint64_t size_bytes) { return builder_.scratch(size_bytes); }
  Region shared(std::uint64_t size_bytes) { return builder_.shared(size_bytes); }

  Plan finish(std::uint64_t input_bytes, std::uint64_t output_bytes) && {
    return std::move(builder_).finish(input_bytes, output_bytes);
  }

 private:
  // A piece of a buffer, keyed by its first byte, and the steps that accessed it last.
  struct Piece {
    std::uint64_t end_bytes;
    StepId writer;
    std::vector<StepId> readers;  // since that write
  };
  using Pieces = std::map<std::uint64_t, Piece>;

  Pieces& pieces(Region region) { return pieces_[static_cast<std::size_t>(region.buffer)]; }
  Pieces::iterator split(Pieces& pieces, std::uint64_t at_bytes);
  void begin(After after) { waits_.assign(after.begin(), after.end()); }
  void wait_for_shared();
  void wait_to_read(Region region);
  void wait_to_write(Region region);
  void has_read(Region region, StepId step);
  void has_written(Region region, StepId step);
  const std::vector<StepId>& waits();
  /// The step that `add(waits)` adds to the plan, which reads and writes these regions.
  template <typename Add>
  StepId add(std::span<const Region> read, std::span<const Region> written, After after, Add add);

  PlanBuilder builder_;
  std::array<Pieces, 4> pieces_;     // by Buffer
  std::map<int, StepId> last_wait_;  // by peer
  std::vector<StepId> waits_;        // of the step being added
  std::uint32_t shared_tasks_ = 0;
};

}  // namespace penstock::plan
