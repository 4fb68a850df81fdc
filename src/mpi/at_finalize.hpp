// Actions at the beginning of MPI_Finalize.
#pragma once

#include <functional>
#include <memory>

namespace penstock::mpi {

/// If it lives when MPI_Finalize begins, its action runs once; MPI still works then. Its destructor waits while another
/// thread runs the action. Movable; empty if default-constructed.
class AtFinalize {
 public:
  AtFinalize() = default;
  explicit AtFinalize(std::function<void()> action);

 private:
  struct Entry;
  std::shared_ptr<Entry> entry_;
};

}  // namespace penstock::mpi
