#include "host/huge_pages.hpp"

#include <sys/mman.h>

#include <array>
#include <bit>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <mutex>
#include <string>

namespace penstock::host {
namespace {

constexpr std::uint64_t kHugePageBytes = 2 << 20;
constexpr std::uint64_t kLeastMovedBytes = 2 * kHugePageBytes;  // has at least one whole huge page
constexpr int kCollapse = 25;                                   // MADV_COLLAPSE, which older headers lack

/// MADV_COLLAPSE itself does not ask for the administrator's setting.
bool are_allowed() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  const std::string setting{std::istreambuf_iterator<char>(file), {}};
  return !setting.empty() && setting.find("[never]") == std::string::npos;
}

/// How often which memory was used: of two that share an entry, the later one counts.
class Uses {
 public:
  std::uint32_t count(ConstBytes memory) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
    const std::lock_guard lock(mutex_);
    Entry& entry = entries_[address / 4096 * 0x9E3779B97F4A7C15u >> 56];
    if (entry.address != address || entry.bytes != memory.size()) entry = {address, memory.size(), 0};
    return ++entry.uses;
  }

 private:
  struct Entry {
    std::uintptr_t address = 0;
    std::uint64_t bytes = 0;
    std::uint32_t uses = 0;
  };
  std::mutex mutex_;
  std::array<Entry, 256> entries_{};
};

}  // namespace

// The program may have freed the memory and got it again, so one success is not for ever. What lies in huge pages
// already is passed over quickly.
void use_huge_pages(ConstBytes memory) noexcept {
  if (memory.size() < kLeastMovedBytes) return;
  static const bool allowed = are_allowed();
  static Uses* const uses = new Uses;  // operations may outlive static objects
  if (!allowed) return;
  const std::uint32_t count = uses->count(memory);
  if (count < 2 || !std::has_single_bit(count)) return;
  const auto begin = (reinterpret_cast<std::uintptr_t>(memory.data()) + kHugePageBytes - 1) / kHugePageBytes;
  const auto end = reinterpret_cast<std::uintptr_t>(memory.data() + memory.size()) / kHugePageBytes;
  // One by one: the kernel ends at the first that it cannot move.
  for (auto page = begin; page < end; ++page)
    ::madvise(reinterpret_cast<void*>(page * kHugePageBytes), kHugePageBytes, kCollapse);
}

}  // namespace penstock::host
