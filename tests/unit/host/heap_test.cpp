// The shared-memory heap: allocation, release, and detection of its owner's death.
#include "host/heap.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <random>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "eventually.hpp"
#include "penstock/error.hpp"

namespace {

/// A signal interrupts each call that allocates more.
std::uint64_t most_uninterrupted_bytes = ~std::uint64_t{0};
std::atomic<std::size_t> allocation_calls{0};
std::atomic<bool> is_full{false};
std::atomic<bool> is_nearly_full{false};

}  // namespace

// In place of the C library's.
extern "C" int posix_fallocate(int descriptor, off_t offset, off_t bytes) {
  ++allocation_calls;
  if (is_full) return ENOSPC;
  if (static_cast<std::uint64_t>(bytes) > most_uninterrupted_bytes) return EINTR;
  return ::fallocate(descriptor, 0, offset, bytes) == 0 ? 0 : errno;
}

extern "C" int fstatfs(int descriptor, struct statfs* facts) noexcept {
  const int result = static_cast<int>(::syscall(SYS_fstatfs, descriptor, facts));
  if (result == 0 && is_nearly_full) facts->f_bavail = 100;
  return result;
}

namespace penstock::host {
namespace {

constexpr std::uint64_t kPage = Heap::kPageBytes;

TEST(HeapRanges, GiveTheLowestThatFits) {
  HeapRanges ranges(10 * kPage);
  EXPECT_EQ(ranges.take(2 * kPage), 0u);
  EXPECT_EQ(ranges.take(3 * kPage), 2 * kPage);
  EXPECT_EQ(ranges.take(kPage), 5 * kPage);
  ranges.give_back(0, 2 * kPage);
  ranges.give_back(2 * kPage, 3 * kPage);
  EXPECT_EQ(ranges.take(5 * kPage), 0u) << "neighbours are joined";
  EXPECT_THROW(ranges.take(5 * kPage), Error);
  EXPECT_EQ(ranges.take(4 * kPage), 6 * kPage);
  EXPECT_THROW(ranges.take(kPage), Error);
  EXPECT_EQ(ranges.taken_bytes(), 10 * kPage);
}

// Compares with a reference that tracks every page.
TEST(HeapRanges, RandomSequencesNeverOverlapAndLoseNothing) {
  constexpr std::uint64_t kPages = 64;
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    HeapRanges ranges(kPages * kPage);
    std::vector<bool> taken(kPages, false);
    std::vector<std::pair<std::uint64_t, std::uint64_t>> held;  // in pages
    for (int i = 0; i < 300; ++i) {
      if (held.empty() || random() % 2 == 0) {
        const std::uint64_t pages = random() % 12 + 1;
        std::uint64_t lowest = 0;
        const auto is_free = [&](std::uint64_t first) {
          return std::none_of(taken.begin() + static_cast<std::ptrdiff_t>(first),
                              taken.begin() + static_cast<std::ptrdiff_t>(first + pages),
                              [](bool each) { return each; });
        };
        while (lowest + pages <= kPages && !is_free(lowest)) ++lowest;
        if (lowest + pages > kPages) {
          EXPECT_THROW(ranges.take(pages * kPage), Error);
          continue;
        }
        ASSERT_EQ(ranges.take(pages * kPage), lowest * kPage) << "seed " << seed << ", step " << i;
        std::fill_n(taken.begin() + static_cast<std::ptrdiff_t>(lowest), pages, true);
        held.emplace_back(lowest, pages);
      } else {
        std::swap(held[random() % held.size()], held.back());
        const auto [first, pages] = held.back();
        held.pop_back();
        ranges.give_back(first * kPage, pages * kPage);
        std::fill_n(taken.begin() + static_cast<std::ptrdiff_t>(first), pages, false);
      }
      ASSERT_EQ(ranges.taken_bytes(), kPage * static_cast<std::uint64_t>(std::ranges::count(taken, true)));
    }
  }
}

TEST(Heaps, GiveMemoryBackOnceItIsUnused) {
  Heap& heap = *Heap::of_process();
  const std::uint64_t before = heap.committed_bytes();
  const std::uint64_t taken = heap.taken_bytes();
  const std::uint64_t offset = heap.take(16 * kPage);
  EXPECT_EQ(heap.committed_bytes(), before) << "addresses only";
  heap.commit(offset, 8 * kPage);
  EXPECT_EQ(heap.committed_bytes(), before + 8 * kPage);
  std::memset(heap.base() + offset, 1, 8 * kPage);
  heap.commit(offset + kPage / 2, 8 * kPage);
  EXPECT_EQ(heap.committed_bytes(), before + 9 * kPage);
  EXPECT_EQ(heap.base()[offset + kPage], std::byte{1}) << "what is there stays";

  bool is_unused = false;
  heap.give_back(offset, 16 * kPage, [&] { return is_unused ? Heap::Use::none : Heap::Use::some; });
  EXPECT_EQ(heap.committed_bytes(), before + 9 * kPage);
  is_unused = true;
  const std::uint64_t again = heap.take(16 * kPage);
  EXPECT_EQ(again, offset);
  EXPECT_EQ(heap.committed_bytes(), before);
  heap.commit(again, kPage);
  EXPECT_EQ(heap.base()[again], std::byte{0}) << "new memory";
  heap.give_back(again, 16 * kPage, {});
  EXPECT_EQ(heap.committed_bytes(), before);
  EXPECT_EQ(heap.taken_bytes(), taken);
}

// Older kernels undo an allocation that a signal interrupts. A timer may fire more often than one takes.
TEST(Heaps, CommitMemoryWhileSignalsInterruptLongAllocations) {
  Heap& heap = *Heap::of_process();
  const std::uint64_t before = heap.committed_bytes();
  const std::uint64_t offset = heap.take(100 * kPage);
  most_uninterrupted_bytes = 3 * kPage;
  heap.commit(offset + 7, 90 * kPage);
  most_uninterrupted_bytes = ~std::uint64_t{0};
  EXPECT_EQ(heap.committed_bytes(), before + 91 * kPage);
  heap.give_back(offset, 100 * kPage, {});
}

TEST(Heaps, KeepTheMemoryOfAFewRangesOfWhichOnlyTheHeadHasSome) {
  Heap& heap = *Heap::of_process();
  const std::uint64_t before = heap.committed_bytes();
  const std::uint64_t taken = heap.taken_bytes();
  const auto give_back = [&](std::uint64_t offset) {
    heap.give_back(offset, 16 * kPage, [] { return Heap::Use::head; }, {.head_bytes = kPage});
  };
  const auto take = [&] { return heap.take(16 * kPage, kPage); };
  const std::uint64_t first = take();
  EXPECT_EQ(heap.committed_bytes(), before + kPage);
  heap.base()[first] = std::byte{7};
  give_back(first);
  EXPECT_EQ(heap.committed_bytes(), before + kPage);
  EXPECT_EQ(heap.taken_bytes(), taken);
  EXPECT_NE(heap.take(16 * kPage, 2 * kPage), first) << "another head";
  const std::size_t calls = allocation_calls;
  EXPECT_EQ(take(), first);
  EXPECT_EQ(allocation_calls, calls) << "it has its memory";
  EXPECT_EQ(heap.base()[first], std::byte{7});
  std::vector<std::uint64_t> many(20);
  for (std::uint64_t& offset : many) offset = take();
  for (const std::uint64_t offset : many) give_back(offset);
  EXPECT_LE(heap.committed_bytes(), before + 10 * kPage);
}

TEST(Heaps, KeepTheRangesThatWereGivenBackLast) {
  Heap& heap = *Heap::of_process();
  const auto use = [&](std::uint64_t bytes) {
    heap.give_back(heap.take(bytes, kPage), bytes, [] { return Heap::Use::head; }, {.head_bytes = kPage});
  };
  for (std::uint64_t pages = 30; pages < 50; ++pages) use(pages * kPage);
  use(20 * kPage);
  const std::uint64_t before = heap.committed_bytes();
  heap.give_back(heap.take(20 * kPage, kPage), 20 * kPage, {});
  EXPECT_EQ(heap.committed_bytes(), before - kPage) << "its head had kept its memory";
}

TEST(Heaps, KeepTheMemoryOfOneTail) {
  Heap& heap = *Heap::of_process();
  std::vector<std::uint64_t> emptying(10);  // of ranges that other tests have left
  for (const auto use : {Heap::Use::head, Heap::Use::none}) {
    for (std::uint64_t& offset : emptying) offset = heap.take(80 * kPage, kPage);
    for (const std::uint64_t offset : emptying)
      heap.give_back(offset, 80 * kPage, [use] { return use; }, {.head_bytes = kPage});
  }
  const std::uint64_t before = heap.committed_bytes();
  const std::uint64_t taken = heap.taken_bytes();
  constexpr RangeMemory memory{.head_bytes = kPage, .tail_begin = 8 * kPage + kPage / 2, .tail_bytes = 4 * kPage};
  const auto take = [&] { return heap.take(70 * kPage, kPage); };
  const auto fill = [&](std::uint64_t offset) {
    heap.commit(offset + 2 * kPage, 3 * kPage);
    heap.commit(offset + memory.tail_begin, memory.tail_bytes + 20 * kPage);
    std::memset(heap.base() + offset + 8 * kPage, 5, 4 * kPage);
  };
  const auto give_back = [&](std::uint64_t offset, Heap::Use use) {
    heap.give_back(
        offset, 70 * kPage, [use] { return use; }, memory);
  };
  const std::uint64_t first = take();
  fill(first);
  give_back(first, Heap::Use::more);
  EXPECT_EQ(heap.committed_bytes(), before + 6 * kPage) << "its head, and the pages of its tail";
  EXPECT_EQ(heap.taken_bytes(), taken);

  // Hardly used ranges keep what they were taken with, and others keep none meanwhile.
  const std::uint64_t other = heap.take(70 * kPage, 2 * kPage);
  EXPECT_NE(other, first) << "another head";
  heap.give_back(other, 70 * kPage, {});
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(take(), first);
    EXPECT_EQ(heap.base()[first + 9 * kPage], std::byte{5});
    const std::uint64_t second = take();
    ASSERT_NE(second, first);
    fill(second);
    give_back(second, Heap::Use::more);
    EXPECT_EQ(heap.committed_bytes(), before + 6 * kPage);
    give_back(first, Heap::Use::head);
  }
  // It is preferred to one with a head alone that was given back before.
  ASSERT_EQ(take(), first);
  const std::uint64_t short_lived = take();
  give_back(short_lived, Heap::Use::head);
  give_back(first, Heap::Use::more);
  EXPECT_EQ(take(), first);
  fill(first);
  give_back(first, Heap::Use::none);
  heap.give_back(take(), 70 * kPage, {});
  EXPECT_EQ(heap.committed_bytes(), before);

  is_nearly_full = true;
  const std::uint64_t last = take();
  fill(last);
  give_back(last, Heap::Use::more);
  is_nearly_full = false;
  EXPECT_EQ(heap.committed_bytes(), before) << "others may need it";
  EXPECT_EQ(heap.taken_bytes(), taken);
}

TEST(Heaps, WithoutMemoryForAHeadTakeNothing) {
  Heap& heap = *Heap::of_process();
  const std::uint64_t taken = heap.taken_bytes();
  is_full = true;
  EXPECT_THROW(heap.take(60 * kPage, kPage), Error);
  is_full = false;
  EXPECT_EQ(heap.taken_bytes(), taken);
}

TEST(Heaps, WithoutRoomAreAnErrorAndNotASignal) {
  try {
    Heap::of_process()->take(std::uint64_t{1} << 60);
    FAIL() << "an exabyte of addresses";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::no_space) << error.what();
  }
  try {
    Heap::of_process()->commit(0, std::uint64_t{1} << 60);
    FAIL() << "an exabyte of shared memory";
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("/dev/shm"), std::string::npos) << error.what();
  }
}

/// A peer process with its own heap. It sends the heap's address, then waits until it is killed.
class Peer {
 public:
  /// `in_pid_namespace`: it is process 1 of a PID namespace, where /proc still shows the processes of the outer one.
  explicit Peer(bool with_child, bool in_pid_namespace = false) {
    int up[2];
    int down[2];
    if (::pipe(up) != 0 || ::pipe(down) != 0) throw std::system_error(errno, std::generic_category());
    process_ = ::fork();
    if (process_ == 0) {
      ::close(down[1]);
      if (in_pid_namespace) enter_pid_namespace();
      const HeapAddress address = Heap::of_process()->address();
      if (with_child && ::fork() == 0) {  // keeps what it has inherited and outlives its parent
        char byte = 0;
        static_cast<void>(!::read(down[0], &byte, 1));
        ::_exit(0);
      }
      static_cast<void>(!::write(up[1], &address, sizeof address));
      for (;;) ::pause();
    }
    ::close(up[1]);
    ::close(down[0]);
    if (::read(up[0], &address_, sizeof address_) != sizeof address_) throw std::runtime_error("the peer has failed");
    ::close(up[0]);
    until_ = down[1];
  }
  ~Peer() {
    end();
    ::close(until_);
  }
  const HeapAddress& address() const { return address_; }
  void end() {
    if (process_ <= 0) return;
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
    process_ = -1;
  }

 private:
  /// Returns in a child, which ends with this process.
  static void enter_pid_namespace() {
    if (::unshare(CLONE_NEWPID) != 0) ::_exit(1);
    if (const pid_t child = ::fork(); child != 0) {
      ::waitpid(child, nullptr, 0);
      ::_exit(0);
    }
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  }

  pid_t process_ = -1;
  int until_ = -1;
  HeapAddress address_;
};

bool may_make_pid_namespaces() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(::unshare(CLONE_NEWPID) == 0 ? 0 : 1);
  int status = -1;
  ::waitpid(child, &status, 0);
  return status == 0;
}

std::size_t open_files() {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

TEST(Heaps, OfPeersAreMappedOnceAndSeenToDie) {
  static_cast<void>(Heap::of_process());
  for (const bool with_child : {false, true}) {
    Peer peer(with_child);
    const auto heap = Heap::open(peer.address());
    EXPECT_NE(heap->address().inode, Heap::of_process()->address().inode) << "a child has a heap of its own";
    EXPECT_EQ(Heap::open(peer.address()), heap);
    EXPECT_TRUE(heap->is_alive());
    heap->commit(0, kPage);
    heap->base()[0] = std::byte{7};
    peer.end();
    // A child releases its inherited heap once it runs, which may be after the peer's end.
    EXPECT_TRUE(test::eventually([&] { return !heap->is_alive(); })) << "its child lives: " << with_child;
    EXPECT_EQ(heap->base()[0], std::byte{7}) << "its memory stays while it is mapped";
  }
}

TEST(Heaps, OfProcessesWithOtherNumbersInProcAreFoundAndSeenToDie) {
  if (!may_make_pid_namespaces()) GTEST_SKIP() << "this user may not make PID namespaces";
  Peer peer(false, true);
  const auto heap = Heap::open(peer.address());
  EXPECT_TRUE(heap->is_alive());
  peer.end();
  EXPECT_TRUE(test::eventually([&] { return !heap->is_alive(); }));
}

TEST(Heaps, OfPeersThatAreGoneAreForgotten) {
  std::size_t most = 0;
  for (int i = 0; i < 20; ++i) {
    Peer peer(false);
    static_cast<void>(Heap::open(peer.address()));
    if (i == 1) most = open_files();
    if (i > 1) {
      EXPECT_LE(open_files(), most);
    }
  }
}

TEST(Heaps, OfAnotherProcessThanMeantAreRefused) {
  Peer peer(false);
  HeapAddress wrong = peer.address();
  wrong.process = ::getpid();
  wrong.descriptor = 0;
  EXPECT_THROW(Heap::open(wrong), Error);
  wrong = peer.address();
  peer.end();
  EXPECT_THROW(Heap::open(wrong), Error);
}

}  // namespace
}  // namespace penstock::host
