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
  /// Those that are not last run in the order of their construction.
  enum Order : bool { in_turn, last };
  explicit AtFinalize(std::function<void()> action, Order order = in_turn);

 private:
  struct Entry;
  std::shared_ptr<Entry> entry_;
};

}  // namespace penstock::mpi
