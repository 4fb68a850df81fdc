#include "store/rados_stripes.hpp"

#include <algorithm>

namespace penstock::store {

namespace {

constexpr std::uint64_t kStripesAtLeast = 8;
constexpr std::uint64_t kShortStripeBytes = 1 << 20;
constexpr std::uint64_t kStripeUnitBytes = 64 << 10;

/// Cuts pieces into stripes. A stripe that lies in one piece is not copied.
class StripeCutter {
 public:
  StripeCutter(std::span<const ConstBytes> pieces, std::uint64_t stripe_bytes)
      : pieces_(pieces), stripe_bytes_(stripe_bytes) {}

  ConstBytes next() {
    while (piece_ < pieces_.size() && at_ == pieces_[piece_].size()) step();
    if (piece_ < pieces_.size() && pieces_[piece_].size() - at_ >= stripe_bytes_) {
      at_ += stripe_bytes_;
      return pieces_[piece_].subspan(at_ - stripe_bytes_, stripe_bytes_);
    }
    gathered_.clear();
    while (piece_ < pieces_.size() && gathered_.size() < stripe_bytes_) {
      const std::size_t size = std::min<std::size_t>(pieces_[piece_].size() - at_, stripe_bytes_ - gathered_.size());
      const ConstBytes part = pieces_[piece_].subspan(at_, size);
      gathered_.insert(gathered_.end(), part.begin(), part.end());
      at_ += size;
      if (at_ == pieces_[piece_].size()) step();
    }
    return gathered_;
  }

 private:
  void step() {
    ++piece_;
    at_ = 0;
  }

  const std::span<const ConstBytes> pieces_;
  const std::uint64_t stripe_bytes_;
  std::size_t piece_ = 0;
  std::size_t at_ = 0;
  std::vector<std::byte> gathered_;
};

}  // namespace

// A target copies and stores a stripe once it has all of it. The time for the last stripe adds to the total, so a
// stripe is short compared to the object.
std::uint64_t stripe_bytes_of(std::uint64_t size_bytes, std::uint64_t most_bytes) {
  const std::uint64_t share = size_bytes / kStripesAtLeast / kStripeUnitBytes * kStripeUnitBytes;
  return std::clamp(share, std::min(kShortStripeBytes, most_bytes), most_bytes);
}

void start_stripes(RadosBatch& batch, std::string_view key, const RadosEntry& entry,
                   std::span<const ConstBytes> pieces) {
  StripeCutter cutter(pieces, entry.stripe_bytes);
  for (std::uint64_t number = 0; number * entry.stripe_bytes < entry.size_bytes; ++number) {
    batch.write(stripe_name(key, entry.id, number), cutter.next());
  }
}

int read_stripes(const RadosIo& io, std::string_view key, const RadosEntry& entry, std::uint64_t offset_bytes,
                 Bytes to) {
  RadosBatch batch(io);
  while (!to.empty()) {
    const std::uint64_t number = offset_bytes / entry.stripe_bytes;
    const std::uint64_t skip = offset_bytes % entry.stripe_bytes;
    const std::size_t step = std::min<std::uint64_t>(to.size(), entry.stripe_bytes - skip);
    batch.read(stripe_name(key, entry.id, number), skip, to.first(step));
    to = to.subspan(step);
    offset_bytes += step;
  }
  return batch.wait();
}

int remove_stripes(const RadosIo& io, std::string_view key, const RadosEntry& entry) {
  if (entry.stripe_bytes == 0) return 0;
  RadosBatch batch(io);
  for (std::uint64_t number = 0; number * entry.stripe_bytes < entry.size_bytes; ++number) {
    batch.remove(stripe_name(key, entry.id, number));
  }
  return batch.wait();
}

}  // namespace penstock::store
