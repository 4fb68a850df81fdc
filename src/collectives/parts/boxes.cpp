#include "collectives/parts/boxes.hpp"

#include <algorithm>

#include "collectives/parts/pieces.hpp"
#include "collectives/parts/stage.hpp"
#include "plan/rules.hpp"

namespace penstock::collectives {
namespace {

constexpr std::uint64_t kLineBytes = 64;

std::uint64_t lengths_bytes(int readers) { return kToldLengthBytes * static_cast<std::uint64_t>(readers); }

}  // namespace

bool Boxes::fit(int readers) { return lengths_bytes(readers) <= plan::kFlagMemoryBytes; }

Boxes::Boxes(Sequence& sequence, const Team& team, const Collective& collective, int readers)
    : sequence_(sequence), team_(team), collective_(collective), readers_(readers) {
  if (readers > 0) sequence_.by_flags();
}

/// The first cache line behind those of the lengths. One reader needs no line of its own.
std::uint64_t Boxes::first_byte(int readers) {
  const std::uint64_t used = lengths_bytes(readers);
  return readers == 1 ? used : (used + kLineBytes - 1) / kLineBytes * kLineBytes;
}

std::uint64_t Boxes::box_bytes(int readers) {
  const std::uint64_t all = plan::kFlagMemoryBytes - std::min(plan::kFlagMemoryBytes, first_byte(readers));
  return readers == 1 ? all : all / static_cast<std::uint64_t>(readers) / kLineBytes * kLineBytes;
}

Region Boxes::length(int reader, Region block) const {
  return {kToldLengthBytes * static_cast<std::uint64_t>(reader), block.size_bytes, Buffer::shared};
}

std::optional<Region> Boxes::place(int reader, std::uint64_t size_bytes) const {
  const auto index = static_cast<std::uint64_t>(reader);
  // If the blocks of all readers are that short, they lie in the line of the flag, behind the lengths.
  const std::uint64_t used = lengths_bytes(readers_);
  const std::uint64_t tiny_bytes =
      used < plan::kBesideFlagBytes ? (plan::kBesideFlagBytes - used) / static_cast<std::uint64_t>(readers_) : 0;
  if (readers_ > 1 && size_bytes <= tiny_bytes) return Region{used + index * tiny_bytes, size_bytes, Buffer::shared};
  const std::uint64_t box = box_bytes(readers_);
  if (size_bytes > box) return std::nullopt;
  return Region{first_byte(readers_) + index * box, size_bytes, Buffer::shared};
}

std::uint64_t Boxes::pieces(std::uint64_t size_bytes) const {
  const std::uint64_t elements = size_bytes / collective_.item_bytes();
  if (collective_.segment_bytes != 0)
    return pieces_of(size_bytes, collective_.segment_bytes, std::min<std::uint64_t>(elements, kMaxSegments));
  // A long message is read where it lies, by one copy, which is cheaper than two beyond the caches: of the core that
  // copies in the blocks of all readers, or the last level, half of which holds gathered blocks and what they become.
  const auto readers = static_cast<std::uint64_t>(readers_);
  const std::uint64_t most_bytes = collective_.kind == CollectiveKind::gatherv
                                       ? team_.last_cache_bytes / 4 / static_cast<std::uint64_t>(team_.size())
                                       : team_.core_cache_bytes / readers;
  // A piece goes into shared memory at once.
  const std::uint64_t fewest = team_.message_bytes > 0 ? (size_bytes - 1) / team_.message_bytes + 1 : kMaxSegments + 1;
  if (size_bytes > most_bytes || fewest > std::min<std::uint64_t>(elements, kMaxSegments)) return 1;
  return std::clamp(overlapping_pieces(size_bytes, readers), fewest, elements);
}

Region Boxes::piece(Region block, std::uint64_t index) const {
  const std::uint64_t item_bytes = collective_.item_bytes();
  return part_of(block, block.size_bytes / item_bytes, item_bytes, pieces(block.size_bytes), index);
}

void Boxes::put(int reader, Region block) {
  if (!has_memory_) sequence_.shared(plan::kFlagMemoryBytes);
  has_memory_ = true;
  if (const auto box = place(reader, block.size_bytes)) sequence_.copy(block, *box);
}

void Boxes::signal(int reader, int rank, Region block) {
  last_signal_ = sequence_.signal_length(length(reader, block), rank, 0);
}

void Boxes::send(int reader, int rank, Region block) {
  if (place(reader, block.size_bytes)) return;
  for (std::uint64_t i = 0; i < pieces(block.size_bytes); ++i)
    sequence_.at(0, static_cast<std::uint32_t>(i))
        .send(piece(block, i), rank, static_cast<std::uint32_t>(i), {last_signal_});
}

void Boxes::wait(int reader, int writer, Region block) { sequence_.wait_length(length(reader, block), writer, 0); }

void Boxes::take(int reader, int writer, Region block) {
  if (const auto box = place(reader, block.size_bytes)) {
    sequence_.at(0).read(*box, writer, block);
    return;
  }
  for (std::uint64_t i = 0; i < pieces(block.size_bytes); ++i)
    sequence_.at(0, static_cast<std::uint32_t>(i)).recv(piece(block, i), writer, static_cast<std::uint32_t>(i));
}

}  // namespace penstock::collectives
