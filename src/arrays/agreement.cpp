// Agreement of the ranks on a redistribution.
#include <algorithm>
#include <string>
#include <utility>

#include "arrays/planned_redistribution.hpp"
#include "base/hash.hpp"
#include "kernels/arithmetic.hpp"
#include "penstock/error.hpp"
#include "plan/memory.hpp"
#include "redistribute/overlay.hpp"

namespace penstock::arrays {
namespace {

std::uint64_t hash_of_part(const RedistributionOptions& options) {
  std::uint64_t part = options.has_subarray() ? 1 : 0;
  for (const auto* list : {&options.source_begin, &options.target_begin, &options.shape}) {
    part = base::mix(part, list->size());
    for (const std::int64_t length : *list) part = base::mix(part, static_cast<std::uint64_t>(length));
  }
  return part;
}

void check_pair(const LayoutPair& pair, const RedistributionOptions& options, std::int32_t ranks) {
  const MovedLayouts moved = moved_layouts(pair.source, pair.target, options);
  redistribute::Pairing(moved.source, moved.target, options.op);
  kernels::check_conversion(options.input_dtype(), options.dtype);
  const std::int32_t needed = std::max(pair.source.ranks(), pair.target.ranks());
  if (needed > ranks)
    throw Error(ErrorCode::invalid_argument, "redistribute: the layouts are for " + std::to_string(needed) +
                                                 " ranks; the communicator has only " + std::to_string(ranks));
}

/// Throws Error(mismatch) if the ranks' arguments differ. Otherwise sets `signature`, a hash of the arguments.
void check_agreement(Comm& comm, std::uint64_t sources, std::uint64_t targets, const RedistributionOptions& options,
                     std::uint64_t& signature) {
  struct Digest {
    std::uint64_t source, target, dtype, op, relabel, segment_bytes, part;
  };
  const Digest mine{sources,
                    targets,
                    static_cast<std::uint64_t>(options.dtype) << 8 | static_cast<std::uint64_t>(options.input_dtype()),
                    static_cast<std::uint64_t>(options.op),
                    static_cast<std::uint64_t>(options.relabel) << 1 | std::uint64_t{options.relabel_jointly},
                    options.segment_bytes,
                    hash_of_part(options)};
  std::vector<Digest> all(static_cast<std::size_t>(comm.size()));
  comm.allgather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  for (std::size_t r = 1; r < all.size(); ++r) {
    const std::pair<const char*, bool> differences[] = {
        {"source layout", all[r].source != all[0].source},
        {"target layout", all[r].target != all[0].target},
        {"dtype", all[r].dtype != all[0].dtype},
        {"op", all[r].op != all[0].op},
        {"choice to relabel", all[r].relabel != all[0].relabel},
        {"segment length", all[r].segment_bytes != all[0].segment_bytes},
        {"subarray to be moved", all[r].part != all[0].part}};
    for (const auto& [what, differs] : differences)
      if (differs)
        throw Error(ErrorCode::mismatch,
                    std::string("redistribute: the ") + what + " of rank " + std::to_string(r) +
                        " differs from that of rank 0; give the same on all ranks",
                    static_cast<int>(r));
  }
  signature = base::mix(base::kSeed, "redistribute");
  for (const std::uint64_t word :
       {mine.source, mine.target, mine.dtype, mine.op, mine.relabel, mine.segment_bytes, mine.part})
    signature = base::mix(signature, word);
}

/// Runs on rank 0. All ranks would compute the same, but each would need the memory and the time.
std::vector<Relabeling> compute_relabelings(const std::vector<LayoutPair>& pairs, const RedistributionOptions& options,
                                            std::int32_t ranks) {
  RelabelOptions how{.element_bytes = size_bytes(kernels::wire_dtype(options.input_dtype(), options.dtype)),
                     .op = options.op,
                     .ranks = ranks,
                     .cost = options.cost,
                     .policy = options.relabel,
                     .expected_runs = options.expected_runs};
  std::vector<MovedLayouts> moved;
  for (const LayoutPair& pair : pairs) moved.push_back(moved_layouts(pair.source, pair.target, options));
  std::vector<Relabeling> relabelings;
  if (!options.relabel_jointly) {
    for (const MovedLayouts& each : moved) relabelings.push_back(relabel(each.source, each.target, how));
    return relabelings;
  }
  std::vector<RelabelTransfer> transfers;
  for (const MovedLayouts& each : moved) transfers.push_back({each.source, each.target});
  const Relabeling joint = relabel(transfers, how);
  how.policy = RelabelPolicy::never;  // below: each pair's share of the bytes and of the cost
  for (const MovedLayouts& each : moved) {
    const Relabeling before = relabel(each.source, each.target, how);
    const Relabeling after = relabel(each.source, each.target.relabeled(joint.permutation), how);
    relabelings.push_back({joint.permutation, before.bytes_before, after.bytes_before, before.cost_before,
                           after.cost_before, joint.skipped});
  }
  return relabelings;
}

void bcast(Comm& comm, Bytes bytes) { comm.run({.kind = CollectiveKind::bcast, .count = bytes.size()}, {}, bytes); }

/// Copies rank 0's relabelings to all ranks. Collective.
std::vector<Relabeling> broadcast_relabelings(Comm& comm, std::vector<Relabeling> relabelings, std::size_t pairs) {
  struct Facts {
    std::uint64_t bytes_before, bytes_after;
    double cost_before, cost_after;
    char skipped[256];
  };
  relabelings.resize(pairs);
  for (Relabeling& each : relabelings) {
    Facts facts{each.bytes_before, each.bytes_after, each.cost_before, each.cost_after, {}};
    each.skipped.copy(facts.skipped, sizeof facts.skipped - 1);
    bcast(comm, std::as_writable_bytes(std::span(&facts, 1)));
    each.permutation.resize(static_cast<std::size_t>(comm.size()));
    bcast(comm, std::as_writable_bytes(std::span(each.permutation)));
    each.bytes_before = facts.bytes_before;
    each.bytes_after = facts.bytes_after;
    each.cost_before = facts.cost_before;
    each.cost_after = facts.cost_after;
    each.skipped = facts.skipped;
  }
  return relabelings;
}

}  // namespace

MemoryPlacement PlannedRedistribution::placement_of(std::span<const LayoutPair> pairs,
                                                    const RedistributionOptions& options, int rank) {
  MemoryPlacement placement;
  const auto place = [&](const Layout& layout, const std::optional<LocalMemory>& given, std::int64_t leading_elems) {
    if (given || leading_elems == 0) return given;
    return std::optional(layout.local_memory(rank, leading_elems));
  };
  for (const LayoutPair& pair : pairs) {
    placement.inputs.push_back(place(pair.source, pair.source_memory, options.source_leading_elems));
    placement.outputs.push_back(place(pair.target, pair.target_memory, options.target_leading_elems));
  }
  return placement;
}

std::uint64_t PlannedRedistribution::agree_on_bytes(Comm& comm) const {
  const std::uint64_t mine = plan::memory_bytes(*local().plan()) + layouts_bytes_;
  std::vector<std::uint64_t> all(static_cast<std::size_t>(comm.size()));
  comm.allgather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  return *std::ranges::max_element(all);
}

std::shared_ptr<PlannedRedistribution> PlannedRedistribution::plan(Comm& comm, std::vector<LayoutPair> given_pairs,
                                                                   const RedistributionOptions& options) {
  const std::shared_ptr<PlannedRedistribution> planned(new PlannedRedistribution(std::move(given_pairs), options));
  std::vector<LayoutPair>& pairs = planned->pairs_;
  std::uint64_t sources = pairs.size();
  std::uint64_t targets = pairs.size();
  comm.agree([&] {
    if (pairs.empty())
      throw Error(ErrorCode::invalid_argument, "redistribute: a batch without pairs given; expected at least one");
    if (pairs.size() > 1 &&
        (options.has_subarray() || options.source_leading_elems != 0 || options.target_leading_elems != 0))
      throw Error(ErrorCode::invalid_argument,
                  "redistribute: a subarray or a leading dimension given for several pairs; plan them one by one");
    if (options.relabel_jointly && options.relabel == RelabelPolicy::never)
      throw Error(ErrorCode::invalid_argument,
                  "redistribute: a joint relabeling given without a relabeling; expected `relabel` as well");
    for (const LayoutPair& pair : pairs) {
      for (const auto& [layout, hashed] : {std::pair(&pair.source, &sources), std::pair(&pair.target, &targets)}) {
        const std::string text = layout->serialize();
        *hashed = base::mix(*hashed, text);
        planned->layouts_bytes_ += sizeof(Layout) + text.size();
      }
      check_pair(pair, options, comm.size());
    }
  });
  check_agreement(comm, sources, targets, options, planned->signature_);
  std::vector<Relabeling> decided;
  comm.agree([&] {
    if (comm.rank() == 0) decided = compute_relabelings(pairs, options, comm.size());
  });
  planned->relabelings_ = broadcast_relabelings(comm, std::move(decided), pairs.size());
  comm.agree([&] {
    if (options.relabel != RelabelPolicy::never)
      for (std::size_t i = 0; i < pairs.size(); ++i)
        pairs[i].target = pairs[i].target.relabeled(planned->relabelings_[i].permutation);
    planned->planned_ =
        std::make_shared<LocalRedistribution>(pairs, options, comm.team(), placement_of(pairs, options, comm.rank()));
  });
  return planned;
}

}  // namespace penstock::arrays
