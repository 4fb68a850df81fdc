// The requests of served non-blocking operations: MPI's generalized requests, which every call of MPI that completes
// requests knows. A hook in MPI's own progress completes them, so that no such call has to be intercepted. It completes
// those of persistent operations (persistent.hpp), too.
#pragma once

#include PENSTOCK_MPI_HEADER

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>

#include "penstock/comm.hpp"

namespace penstock::preload {

/// Whether this MPI has a hook in its progress. Equal on all ranks of a job that uses one MPI.
bool has_progress_hook();

/// What a request stands for. test() is called inside MPI's progress, by one thread at a time, until it returns true or
/// throws.
class Operation {
 public:
  Operation() = default;
  virtual ~Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  virtual bool test() = 0;
  /// False if a test() would only make progress, which a test of another operation has made already.
  virtual bool may_be_complete() const noexcept { return true; }
  virtual void wait() = 0;                           ///< in place of test(): returns once it is complete, or throws
  virtual std::uint64_t bytes() const { return 0; }  ///< for the status, once complete
  virtual int code_of_failure(const std::exception& error) noexcept;
  virtual int cancel() noexcept { return MPI_SUCCESS; }  ///< MPI's code; the operation goes on
};

/// Gives an operation that waits for no other rank to a new request. Without a progress hook it is complete when this
/// returns. Local.
int make_request(std::unique_ptr<Operation> operation, MPI_Request* request);

/// An operation in flight whose request the hook completes.
struct Watched {
  int result = MPI_SUCCESS;  ///< MPI's code of its failure
  /// Called inside MPI's progress, by one thread at a time, until it returns true or throws.
  virtual bool test() = 0;
  /// As for Operation.
  virtual bool may_be_complete() const noexcept = 0;
  virtual int code_of_failure(const std::exception& error) noexcept;
  /// Called once, when it has completed or failed, on a thread that is inside MPI. It may have been deleted when this
  /// returns.
  virtual void complete() = 0;

  Watched() = default;
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;

 protected:
  ~Watched() = default;
};

/// Lets the hook watch a started operation. Any thread.
void watch(Watched& started);

/// How many operations of this process are in flight.
std::size_t in_flight() noexcept;

/// Completes all of a list by `wait_all`, MPI's function, in two calls: first those that are MPI_REQUEST_NULL.
int wait_all_without_null(int count, MPI_Request* requests, MPI_Status* statuses,
                          int (*wait_all)(int, MPI_Request*, MPI_Status*));

/// Gives the operation to a new request of MPI. Local.
int make_request(Request operation, MPI_Request* request);

}  // namespace penstock::preload
