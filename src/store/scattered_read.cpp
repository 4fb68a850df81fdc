#include "store/scattered_read.hpp"

#include <algorithm>

#include "penstock/error.hpp"
#include "store/in_parallel.hpp"

namespace penstock::store {

namespace {

std::uint64_t begin_of(std::span<const Source::Chunk> chunks) { return chunks.front().offset_bytes; }
std::uint64_t end_of(std::span<const Source::Chunk> chunks) {
  return chunks.back().offset_bytes + chunks.back().size_bytes;
}

}  // namespace

void ScatteredRead::add(const Source& source, std::uint64_t offset_bytes, Bytes to) {
  if (to.empty()) return;
  if (offset_bytes > source.size_bytes() || to.size() > source.size_bytes() - offset_bytes) {
    throw Error(ErrorCode::corrupt, backend_.url() + ": a record refers beyond the end of object " +
                                        (source.is_object() ? source.object().key : std::string("(inlined)")));
  }
  if (!source.is_object()) {
    std::copy_n(source.inlined().data() + offset_bytes, to.size(), to.data());
    return;
  }
  total_bytes_ += to.size();
  if (!pieces_.empty()) {
    Piece& last = pieces_.back();
    if (last.source == &source && last.end_bytes() == offset_bytes && last.to.data() + last.to.size() == to.data()) {
      last.to = {last.to.data(), last.to.size() + to.size()};
      return;
    }
  }
  pieces_.push_back({&source, offset_bytes, to});
}

void ScatteredRead::run() {
  if (pieces_.empty()) return;
  sort();
  load_tables();
  plan();
  const std::uint64_t useful = shape_.thread_bytes == 0 ? runs_.size() : total_bytes_ / shape_.thread_bytes;
  const std::size_t threads = std::max<std::size_t>(1, std::min<std::uint64_t>(useful, shape_.in_flight));
  std::vector<ReadBuffer> buffers(threads);
  in_parallel(runs_.size(), threads, [&](std::size_t i, std::size_t thread) { execute(runs_[i], buffers[thread]); });
}

void ScatteredRead::sort() {
  const auto before = [](const Piece& a, const Piece& b) {
    return a.source != b.source ? std::less<>()(a.source, b.source) : a.offset_bytes < b.offset_bytes;
  };
  if (!std::is_sorted(pieces_.begin(), pieces_.end(), before)) std::sort(pieces_.begin(), pieces_.end(), before);
}

void ScatteredRead::load_tables() {
  std::vector<const Source*> sources;
  for (const Piece& piece : pieces_) {
    if (sources.empty() || sources.back() != piece.source) sources.push_back(piece.source);
  }
  in_parallel(sources.size(), shape_.thread_bytes == 0 ? shape_.in_flight : 1,
              [&](std::size_t i, std::size_t) { sources[i]->chunks(backend_); });
}

void ScatteredRead::plan() {
  const std::span<const Piece> all = pieces_;
  for (std::size_t begin = 0; begin < all.size();) {
    std::size_t end = begin + 1;
    while (end < all.size() && all[end].source == all[begin].source &&
           all[end].offset_bytes >= all[end - 1].end_bytes()) {
      ++end;
    }
    plan(all.subspan(begin, end - begin));
    begin = end;
  }
}

/// Plans the runs for disjoint pieces of one source, sorted by offset.
void ScatteredRead::plan(std::span<const Piece> pieces) {
  const std::span<const Source::Chunk> chunks = pieces.front().source->chunks(backend_);
  const std::size_t most_bytes = shape_.piece_bytes;
  const auto holder = [&](std::uint64_t offset_bytes) {
    return std::upper_bound(
               chunks.begin(), chunks.end(), offset_bytes,
               [](std::uint64_t offset, const Source::Chunk& chunk) { return offset < chunk.offset_bytes; }) -
           chunks.begin() - 1;
  };
  std::uint64_t done_bytes = pieces.front().offset_bytes;
  for (std::size_t piece = 0; piece < pieces.size();) {
    const auto first = static_cast<std::size_t>(holder(std::max(done_bytes, pieces[piece].offset_bytes)));
    const std::size_t first_piece = piece;
    std::size_t next = first;
    std::uint64_t bytes = 0;
    do {
      bytes += chunks[next].size_bytes;
      done_bytes = chunks[next].offset_bytes + chunks[next].size_bytes;
      ++next;
      while (piece < pieces.size() && pieces[piece].end_bytes() <= done_bytes) ++piece;
    } while (piece < pieces.size() && next < chunks.size() &&
             pieces[piece].offset_bytes < done_bytes + chunks[next].size_bytes &&
             bytes + chunks[next].size_bytes <= most_bytes);
    const bool shared = piece < pieces.size() && pieces[piece].offset_bytes < done_bytes;
    runs_.push_back(
        {chunks.subspan(first, next - first), pieces.subspan(first_piece, piece + (shared ? 1 : 0) - first_piece)});
  }
}

std::vector<ScatteredRead::Part> ScatteredRead::parts_of(const Run& run) {
  std::vector<Part> parts;
  parts.reserve(run.pieces.size());
  for (const Piece& piece : run.pieces) {
    const std::uint64_t begin = std::max(piece.offset_bytes, begin_of(run.chunks));
    const std::uint64_t end = std::min(piece.end_bytes(), end_of(run.chunks));
    parts.push_back({begin, piece.to.subspan(begin - piece.offset_bytes, end - begin)});
  }
  return parts;
}

/// Whether the run can be read straight to the targets: the parts leave no gap, every chunk lies in one part, and no
/// copy is slow.
bool ScatteredRead::can_go_straight(const Run& run, std::span<const Part> parts) {
  std::uint64_t at = begin_of(run.chunks);
  auto chunk = run.chunks.begin();
  for (const Part& part : parts) {
    if (part.offset_bytes != at || copies_slowly(at, part.to.data())) return false;
    at += part.to.size();
    while (chunk != run.chunks.end() && chunk->offset_bytes + chunk->size_bytes <= at) ++chunk;
    if (chunk != run.chunks.end() && chunk->offset_bytes < at) return false;
  }
  return at == end_of(run.chunks);
}

void ScatteredRead::execute(const Run& run, ReadBuffer& buffer) const {
  const Source& source = *run.pieces.front().source;
  const std::string& key = source.object().key;
  const std::uint64_t begin = begin_of(run.chunks);
  const std::vector<Part> parts = parts_of(run);
  auto chunk = run.chunks.begin();
  if (can_go_straight(run, parts)) {
    std::vector<Bytes> targets;
    targets.reserve(parts.size());
    for (const Part& part : parts) targets.push_back(part.to);
    backend_.read_scattered(key, begin, targets);
    for (const Part& part : parts) {
      for (Bytes rest = part.to; !rest.empty(); ++chunk) {
        verify(source, *chunk, rest.first(chunk->size_bytes));
        rest = rest.subspan(chunk->size_bytes);
      }
    }
    return;
  }
  const Bytes whole = buffer.take(begin, end_of(run.chunks) - begin);
  backend_.read(key, begin, whole);
  for (; chunk != run.chunks.end(); ++chunk) {
    verify(source, *chunk, whole.subspan(chunk->offset_bytes - begin, chunk->size_bytes));
  }
  for (const Part& part : parts) {
    std::copy_n(whole.data() + (part.offset_bytes - begin), part.to.size(), part.to.data());
  }
}

void ScatteredRead::verify(const Source& source, const Source::Chunk& chunk, ConstBytes found) const {
  const Checksum sum = checksum(found);
  if (sum == chunk.sum) return;
  throw Error(ErrorCode::corrupt, backend_.url() + ": object " + source.object().key + " is damaged at offset " +
                                      std::to_string(chunk.offset_bytes) + " (" + std::to_string(chunk.size_bytes) +
                                      " bytes): expected checksum " + to_string(chunk.sum) + ", found " +
                                      to_string(sum));
}

}  // namespace penstock::store
