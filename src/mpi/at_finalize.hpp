// Something that has to happen before MPI ends.
#pragma once

#include <functional>
#include <memory>

namespace penstock::mpi {

/// While it lives, its action runs once at the beginning of MPI_Finalize, when MPI still works. Destroying it from
/// another thread waits while the action runs. Movable; empty when default-constructed.
class AtFinalize {
 public:
  AtFinalize() = default;
  explicit AtFinalize(std::function<void()> action);

 private:
  struct Entry;
  std::shared_ptr<Entry> entry_;
};

}  // namespace penstock::mpi
