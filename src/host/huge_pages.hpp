// Huge pages for memory that operations use again and again.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <mutex>
#include <utility>

#include "penstock/types.hpp"

namespace penstock::host {

/// Tells that an operation uses this memory. If it is long and has been used before, asks the kernel to move some of it
/// into huge pages, for about an eighth of the time in which the memory can be read (PageMoves). Then a peer's read of
/// it, by the kernel, looks up one page instead of 512. Any thread. Does nothing if the system forbids huge pages, or
/// if the kernel cannot move pages at once (Linux 6.1 can).
void use_huge_pages(ConstBytes memory) noexcept;

/// Decides which huge pages move in which use of a memory. Moving one takes as long as a few to hundreds of reads of
/// it, which depends on the machine, and nobody knows how often a program will use its memory. So the time of the moves
/// is saved up: of each use, as long as an eighth of a read of the memory would take. A program that ends early has
/// lost no more than that and the last move. Thread-safe.
class PageMoves {
 public:
  static constexpr std::uint64_t kPageBytes = 2 << 20;
  static constexpr std::uint64_t kLeastBytes = 2 * kPageBytes;  ///< of a memory: it has at least one whole page

  /// Reads or moves the page that begins there. Returns the nanoseconds that it took.
  using Visit = std::function<std::uint64_t(const std::byte* page)>;

  PageMoves(Visit read, Visit move) : read_(std::move(read)), move_(std::move(move)) {}

  /// Counts a use and moves what may move in it. Nothing moves in the first use. When all pages have moved, the kernel
  /// is asked again in the 4th, 8th, 16th, … use: the program may have freed the memory and got it again.
  void use(ConstBytes memory);

 private:
  struct Entry {
    const std::byte* begin = nullptr;  ///< null: of no memory
    std::uint64_t bytes = 0;
    std::uint32_t uses = 0;
    std::uint64_t moved_pages = 0;  ///< of this round
    std::int64_t saved_ns = 0;      ///< below 0 after a page that took longer than the last one
    /// What the last move took; before any, as long as a copy.
    std::int64_t page_ns = std::numeric_limits<std::int64_t>::max();
  };
  /// Puts it first. A new one takes the place of the entry whose memory has not been used for longest.
  Entry& entry_of(ConstBytes memory);

  const Visit read_;
  const Visit move_;
  std::mutex mutex_;
  std::int64_t page_read_ns_ = 0;  ///< 0: unknown
  std::array<Entry, 256> entries_{};
};

}  // namespace penstock::host
