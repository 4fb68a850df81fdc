#include <algorithm>
#include <numeric>
#include <string>

#include "penstock/error.hpp"
#include "penstock/redistribute.hpp"

namespace penstock {

Relabeling relabel(const Layout& source, const Layout& target, std::size_t element_bytes, MatrixOp op,
                   std::int32_t ranks) {
  const std::vector<PairVolume> volumes = transfer_volumes(source, target, op);
  std::int64_t total_bytes = 0;
  if (__builtin_mul_overflow(source.size_elems(), static_cast<std::int64_t>(element_bytes), &total_bytes))
    throw Error(ErrorCode::invalid_argument, "redistribute: " + std::to_string(source.size_elems()) + " elements of " +
                                                 std::to_string(element_bytes) + " bytes do not fit into 63 bits");
  const auto remote_bytes = [&](std::int64_t local_elems) {
    return static_cast<std::uint64_t>(source.size_elems() - local_elems) * element_bytes;
  };

  const std::int32_t n = std::max({source.ranks(), target.ranks(), ranks});
  Relabeling result;
  result.permutation.resize(static_cast<std::size_t>(n));
  std::iota(result.permutation.begin(), result.permutation.end(), 0);
  std::int64_t local_before = 0;
  for (const PairVolume& volume : volumes)
    if (volume.source == volume.target) local_before += volume.elems;
  result.bytes_before = result.bytes_after = remote_bytes(local_before);
  if (result.bytes_before == 0) return result;

  // Remark 2: relabeling x to y gains V(y, x) and loses V(x, x), and the losses are the same for every permutation, so
  // the best one keeps the greatest sum of V(permutation[x], x) local.
  const auto size = static_cast<std::size_t>(n);
  std::vector<std::int64_t> kept_local(size * size, 0);
  for (const PairVolume& volume : volumes)
    kept_local[static_cast<std::size_t>(volume.target) * size + static_cast<std::size_t>(volume.source)] = volume.elems;
  const std::vector<std::int32_t> best = assign_max_weight(n, kept_local);
  std::int64_t local_after = 0;
  for (std::size_t x = 0; x < size; ++x) local_after += kept_local[x * size + static_cast<std::size_t>(best[x])];
  if (local_after <= local_before) return result;
  result.permutation = best;
  result.bytes_after = remote_bytes(local_after);
  return result;
}

}  // namespace penstock
