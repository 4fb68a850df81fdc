#pragma once

namespace penstock::mpi {

/// Whether each call that looks for messages and finds none lets other threads have the core: Open MPI's
/// mpi_yield_when_idle, which it sets itself if ranks outnumber cores. MPI must be initialized.
bool yields_when_idle() noexcept;

/// While one lives, calls of MPI do not do so, if that can be helped. Open MPI cannot tell a call that has received
/// something over TCP from one that has found nothing, and yields in both. What its own functions read is set, so other
/// threads that are in a call of MPI meanwhile do not yield either.
class WithoutYields {
 public:
  WithoutYields() noexcept;
  ~WithoutYields();
  WithoutYields(const WithoutYields&) = delete;
  WithoutYields& operator=(const WithoutYields&) = delete;

  /// It cannot be helped.
  bool has_failed() const noexcept { return yields_ && !is_off_; }

 private:
  const bool yields_;
  bool is_off_ = false;
};

}  // namespace penstock::mpi
