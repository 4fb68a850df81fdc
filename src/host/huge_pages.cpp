#include "host/huge_pages.hpp"

#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <bit>
#include <fstream>
#include <iterator>
#include <string>

namespace penstock::host {
namespace {

constexpr std::int64_t kShare = 8;
constexpr int kCollapse = 25;  // MADV_COLLAPSE, which older headers lack
constexpr std::uint64_t kCacheLineBytes = 64;

/// MADV_COLLAPSE itself does not ask for the administrator's setting.
bool are_allowed() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  const std::string setting{std::istreambuf_iterator<char>(file), {}};
  return !setting.empty() && setting.find("[never]") == std::string::npos;
}

std::uint64_t nanoseconds_of(clockid_t clock, const auto& action) {
  const auto now = [&] {
    timespec time{};
    ::clock_gettime(clock, &time);
    return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(time.tv_nsec);
  };
  const std::uint64_t begin = now();
  action();
  return now() - begin;
}

/// One read decides for all of the program, so time that another process has the core for is none of it.
std::uint64_t read_page(const std::byte* page) {
  return nanoseconds_of(CLOCK_THREAD_CPUTIME_ID, [&] {
    for (std::uint64_t at = 0; at < PageMoves::kPageBytes; at += kCacheLineBytes)
      static_cast<void>(*static_cast<const volatile std::byte*>(page + at));
  });
}

std::uint64_t move_page(const std::byte* page) {
  return nanoseconds_of(CLOCK_MONOTONIC,
                        [&] { ::madvise(const_cast<std::byte*>(page), PageMoves::kPageBytes, kCollapse); });
}

}  // namespace

PageMoves::Entry& PageMoves::entry_of(ConstBytes memory) {
  auto found = std::ranges::find(entries_, memory.data(), &Entry::begin);
  if (found == entries_.end()) --found;
  std::rotate(entries_.begin(), found, found + 1);
  Entry& entry = entries_.front();
  if (entry.begin != memory.data() || entry.bytes != memory.size()) entry = {memory.data(), memory.size()};
  return entry;
}

void PageMoves::use(ConstBytes memory) {
  if (memory.size() < kLeastBytes) return;
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  const std::byte* const first = memory.data() + (kPageBytes - address % kPageBytes) % kPageBytes;
  const auto pages = static_cast<std::uint64_t>(memory.data() + memory.size() - first) / kPageBytes;
  std::unique_lock lock(mutex_);
  Entry work = entry_of(memory);
  if (++work.uses > 1) {
    if (page_read_ns_ == 0) page_read_ns_ = static_cast<std::int64_t>(std::max<std::uint64_t>(read_(first), 1));
    if (work.uses == 2) work.page_ns = 2 * page_read_ns_;
    if (work.moved_pages == pages && std::has_single_bit(work.uses)) work.moved_pages = 0;
    if (work.moved_pages < pages) work.saved_ns += static_cast<std::int64_t>(pages) * page_read_ns_ / kShare;
  }
  entry_of(memory) = work;
  if (work.moved_pages == pages || work.saved_ns < work.page_ns) return;
  lock.unlock();  // to move takes long
  // One by one: the kernel ends at the first that it cannot move.
  while (work.moved_pages < pages && work.saved_ns >= work.page_ns) {
    work.page_ns = static_cast<std::int64_t>(move_(first + work.moved_pages++ * kPageBytes));
    work.saved_ns -= work.page_ns;
  }
  lock.lock();
  entry_of(memory) = work;
}

void use_huge_pages(ConstBytes memory) noexcept {
  if (memory.size() < PageMoves::kLeastBytes) return;
  static const bool allowed = are_allowed();
  static PageMoves* const moves = new PageMoves(read_page, move_page);  // operations may outlive static objects
  if (allowed) moves->use(memory);
}

}  // namespace penstock::host
