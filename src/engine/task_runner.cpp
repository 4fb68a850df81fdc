#include "engine/task_runner.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "host/process_memory.hpp"
#include "kernels/arithmetic.hpp"
#include "kernels/copy.hpp"
#include "kernels/reduce_sorted.hpp"
#include "penstock/error.hpp"

namespace penstock::engine {
namespace {

// Two blocks fit in the second-level cache, and a system call per block is cheap compared with its copy.
constexpr std::uint64_t kBlockBytes = 64 << 10;
// For all sources together, if the operation needs all of them at once.
constexpr std::uint64_t kReduceSortedBytes = 256 << 10;

// Room for a block at any offset in a cache line. With the same offset as in the other process, the kernel's copies run
// at full speed on every processor (kernels/copy.hpp).
constexpr std::uint64_t kLineBytes = 64;
using Block = std::array<std::byte, kBlockBytes + kLineBytes>;

struct Blocks {
  alignas(kLineBytes) Block sum;
  alignas(kLineBytes) Block incoming;
};

Bytes aligned_like(std::uint64_t address, Block& block, std::uint64_t bytes) {
  return Bytes(block).subspan(address % kLineBytes, bytes);
}

Blocks& blocks() {
  thread_local const std::unique_ptr<Blocks> own = std::make_unique<Blocks>();
  return *own;
}

std::byte* here(const Place& place, std::uint64_t offset_bytes) {
  return reinterpret_cast<std::byte*>(place.address + offset_bytes);
}

int fetch(const Place& from, std::uint64_t offset_bytes, Bytes to) {
  if (from.process != 0) return host::read_memory(from.process, from.address + offset_bytes, to);
  kernels::copy_bytes(to.data(), here(from, offset_bytes), to.size());
  return 0;
}

int put(ConstBytes from, const Place& to, std::uint64_t offset_bytes) {
  if (to.process != 0) return host::write_memory(to.process, to.address + offset_bytes, from);
  kernels::copy_bytes(here(to, offset_bytes), from.data(), from.size());
  return 0;
}

constexpr std::size_t kNone = ~std::size_t{0};

/// Where a sum is built. A target in this process saves its copy.
struct Accumulator {
  std::size_t first = 0;       ///< the source with which it begins
  std::size_t target = kNone;  ///< kNone: a block of this thread
  bool holds_source = false;   ///< the first source is that target
};

Accumulator accumulator_of(const Arithmetic& arithmetic, std::span<const Place> sources, std::span<const Place> targets,
                           std::uint64_t size_bytes) {
  const std::size_t last = sources.size() - 1;
  // Of two operands that commute, either may come first. More would be combined in another order on another rank.
  const bool may_swap = sources.size() == 2 && (!arithmetic.user || arithmetic.user->commutative);
  Accumulator found{.first = last};
  for (std::size_t t = 0; t < targets.size(); ++t) {
    if (targets[t].process != 0) continue;
    bool overlaps = false;
    for (std::size_t i = 0; i < sources.size(); ++i) {
      if (sources[i].process != 0) continue;
      if (sources[i].address == targets[t].address && (i == last || may_swap))
        return {.first = i, .target = t, .holds_source = true};
      overlaps |=
          sources[i].address < targets[t].address + size_bytes && targets[t].address < sources[i].address + size_bytes;
    }
    if (!overlaps && found.target == kNone) found.target = t;
  }
  return found;
}

// For several sources, all of which are needed at once.
TaskResult reduce_sorted_task(const Arithmetic& arithmetic, std::span<const Place> sources,
                              std::span<const Place> targets, std::uint64_t size_bytes) {
  const std::uint64_t element_bytes =
      arithmetic.user ? arithmetic.user->element_bytes : penstock::size_bytes(arithmetic.dtype);
  const std::uint64_t row_bytes =
      std::max(kReduceSortedBytes / sources.size() / kLineBytes * kLineBytes, std::uint64_t{1}) / element_bytes *
      element_bytes;
  const std::uint64_t block_bytes = std::max(row_bytes, element_bytes);
  const std::uint64_t stride_bytes = (block_bytes + kLineBytes - 1) / kLineBytes * kLineBytes;
  thread_local std::vector<std::byte> rows;
  if (rows.size() < stride_bytes * (sources.size() + 1)) rows.resize(stride_bytes * (sources.size() + 1));
  thread_local std::vector<ConstBytes> parts;
  for (std::uint64_t offset = 0; offset < size_bytes; offset += block_bytes) {
    const std::uint64_t bytes = std::min(block_bytes, size_bytes - offset);
    parts.clear();
    for (std::size_t i = 0; i < sources.size(); ++i) {
      const Bytes row(rows.data() + i * stride_bytes, bytes);
      if (sources[i].process == 0) {
        parts.emplace_back(here(sources[i], offset), bytes);
        continue;
      }
      if (const int error = fetch(sources[i], offset, row); error != 0) return {error, sources[i].rank};
      parts.emplace_back(row);
    }
    const Bytes sum(rows.data() + sources.size() * stride_bytes, bytes);
    kernels::reduce_sorted(arithmetic, parts, sum);
    for (const Place& target : targets)
      if (const int error = put(sum, target, offset); error != 0) return {error, target.rank};
  }
  return {};
}

}  // namespace

TaskResult run_task(const Arithmetic& arithmetic, std::span<const Place> sources, std::span<const Place> targets,
                    std::uint64_t size_bytes) {
  if (arithmetic.reproducible && sources.size() > 1)
    return reduce_sorted_task(arithmetic, sources, targets, size_bytes);
  const Place& last = sources.back();
  const std::uint64_t element_bytes = arithmetic.user && sources.size() > 1 ? arithmetic.user->element_bytes : 1;
  if (element_bytes > kBlockBytes)
    throw Error(ErrorCode::internal, "a shared task has elements of " + std::to_string(element_bytes) + " bytes");
  const std::uint64_t block_bytes = kBlockBytes / element_bytes * element_bytes;
  const Accumulator accumulator = accumulator_of(arithmetic, sources, targets, size_bytes);
  for (std::uint64_t offset = 0; offset < size_bytes; offset += block_bytes) {
    const std::uint64_t bytes = std::min(block_bytes, size_bytes - offset);
    ConstBytes value;
    std::size_t first_target = 0;
    if (sources.size() == 1 && last.process == 0) {
      value = {here(last, offset), bytes};
    } else if (sources.size() == 1 && targets[0].process == 0) {
      // The first target is in this process: copy to it directly, and from it to the others.
      const Bytes to(here(targets[0], offset), bytes);
      if (const int error = fetch(last, offset, to); error != 0) return {error, last.rank};
      value = to;
      first_target = 1;
    } else {
      const Bytes sum = accumulator.target == kNone ? aligned_like(targets.back().address, blocks().sum, bytes)
                                                    : Bytes(here(targets[accumulator.target], offset), bytes);
      if (!accumulator.holds_source)
        if (const int error = fetch(sources[accumulator.first], offset, sum); error != 0)
          return {error, sources[accumulator.first].rank};
      for (std::size_t i = sources.size(); i-- > 0;) {
        if (i == accumulator.first) continue;
        ConstBytes source(here(sources[i], offset), bytes);
        if (sources[i].process != 0) {
          const Bytes incoming = aligned_like(sources[i].address, blocks().incoming, bytes);
          if (const int error = fetch(sources[i], offset, incoming); error != 0) return {error, sources[i].rank};
          source = incoming;
        }
        kernels::reduce(arithmetic, source, sum);
      }
      value = sum;
    }
    for (const Place& target : targets.subspan(first_target)) {
      if (sources.size() > 1 && &target == targets.data() + accumulator.target) continue;
      // In place: the data is there already, in memory that may be read-only.
      if (sources.size() == 1 && target.process == last.process && target.address == last.address) continue;
      if (const int error = put(value, target, offset); error != 0) return {error, target.rank};
    }
  }
  return {};
}

}  // namespace penstock::engine
