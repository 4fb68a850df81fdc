// Memory that the ranks of a communicator on one node share.
#pragma once

#include <cstddef>

#include "penstock/comm.hpp"

namespace penstock::preload {

/// A block of memory of the first rank's process. Each process has one file with room for some blocks, which its peers
/// map once: where ranks outnumber the cores, to unmap memory in each MPI_Comm_free takes longer than all else in it.
class SharedMemory {
 public:
  static constexpr std::size_t kMostBytes = 63 << 10;

  /// Collective over ranks of one node. Zeroed, on all ranks or on none. Nothing is left behind when processes die.
  /// Throws Penstock's Error.
  SharedMemory(Comm& comm, int rank, int ranks);
  /// The block is free for another communicator when all ranks have left.
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  /// kMostBytes, aligned to 64; nullptr if there is none.
  std::byte* data() const noexcept;

 private:
  std::byte* block_ = nullptr;
};

}  // namespace penstock::preload
