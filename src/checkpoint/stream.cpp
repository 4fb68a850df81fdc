#include "checkpoint/stream.hpp"

#include <algorithm>
#include <system_error>

namespace penstock::checkpoint {

namespace {

constexpr std::uint64_t kBuffers = 6;

}  // namespace

void add_chunk(std::vector<ChunkRange>& ranges, std::uint64_t chunk, std::uint64_t most) {
  const bool follows = !ranges.empty() && ranges.back().first + ranges.back().count == chunk;
  if (!follows || ranges.back().count == most) ranges.push_back({chunk, 0});
  ++ranges.back().count;
}

StreamShape StreamShape::of(std::uint64_t data_bytes, std::uint64_t chunk_bytes, std::uint64_t preferred_bytes) {
  StreamShape shape;
  const std::uint64_t chunks = std::max<std::uint64_t>(1, preferred_bytes / chunk_bytes);
  shape.piece_bytes = std::min(chunks * chunk_bytes, data_bytes);
  if (shape.piece_bytes == 0) return shape;
  const std::uint64_t most = std::max<std::uint64_t>(2, kPieceBytes * kBuffers / shape.piece_bytes);
  const std::uint64_t pieces = (data_bytes + shape.piece_bytes - 1) / shape.piece_bytes;
  shape.buffers = std::min({most, kBuffers, pieces});
  return shape;
}

ReadAhead::ReadAhead(Load load, const std::vector<ChunkRange>& ranges, std::uint64_t chunk_bytes,
                     std::uint64_t data_bytes, const StreamShape& shape, Bytes memory)
    : load_(std::move(load)), shape_(shape), memory_(memory) {
  const std::uint64_t most = std::max<std::uint64_t>(1, shape.piece_bytes / chunk_bytes);
  for (const ChunkRange& range : ranges) {
    for (std::uint64_t first = range.first; first < range.first + range.count; first += most) {
      const std::uint64_t count = std::min(most, range.first + range.count - first);
      const std::uint64_t begin = first * chunk_bytes;
      parts_.push_back({{first, count}, std::min(count * chunk_bytes, data_bytes - begin)});
    }
  }
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error&) {
    // The system gives no more threads: next() reads itself.
  }
}

ReadAhead::~ReadAhead() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

Bytes ReadAhead::buffer(std::uint64_t part) const {
  return memory_.subspan(part % shape_.buffers * shape_.piece_bytes, parts_[part].size_bytes);
}

void ReadAhead::run() {
  for (std::uint64_t part = 0; part < parts_.size(); ++part) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return closing_ || part < released_ + shape_.buffers; });
      if (closing_) return;
    }
    std::exception_ptr failure;
    try {
      load_(parts_[part].range, buffer(part));
    } catch (...) {
      failure = std::current_exception();
    }
    {
      const std::lock_guard lock(mutex_);
      failure_ = failure;
      if (!failure) ++loaded_;
    }
    changed_.notify_all();
    if (failure) return;
  }
}

std::optional<ChunkStream::Piece> ReadAhead::next() {
  if (taken_ == parts_.size()) return std::nullopt;
  if (!thread_.joinable()) {
    load_(parts_[taken_].range, buffer(taken_));
  } else {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return loaded_ > taken_ || failure_; });
    if (loaded_ == taken_) std::rethrow_exception(failure_);
  }
  const std::uint64_t part = taken_++;
  return Piece{parts_[part].range.first, buffer(part)};
}

void ReadAhead::release() {
  {
    const std::lock_guard lock(mutex_);
    released_ = taken_;
  }
  changed_.notify_all();
}

/// The other half is being filled meanwhile.
bool ReadAhead::full() const {
  // Only the caller's thread changes released_.
  return taken_ - released_ >= std::max<std::uint64_t>(1, shape_.buffers / 2);
}

}  // namespace penstock::checkpoint
