#include <memory>
#include <mutex>

#include "comm/state.hpp"
#include "mpi/at_finalize.hpp"
#include "mpi/check.hpp"
#include "mpi/transport.hpp"
#include "penstock/error.hpp"
#include "penstock/mpi.hpp"

namespace penstock {
namespace {

/// What duplicates of a Penstock communicator are made from: the user's communicator may be gone by then.
class Parent {
 public:
  explicit Parent(MPI_Comm given) : comm_(mpi::duplicate(given)) {
    at_finalize_ = mpi::AtFinalize([this] { close(); });
  }
  ~Parent() {
    at_finalize_ = {};
    close();
  }
  Parent(const Parent&) = delete;
  Parent& operator=(const Parent&) = delete;

  MPI_Comm comm() const { return comm_; }

 private:
  void close() {
    const std::lock_guard lock(mutex_);
    if (comm_ != MPI_COMM_NULL && mpi::running()) MPI_Comm_free(&comm_);
    comm_ = MPI_COMM_NULL;
  }

  std::mutex mutex_;
  MPI_Comm comm_;
  mpi::AtFinalize at_finalize_;
};

}  // namespace

Comm make_comm(MPI_Comm given, const CommOptions& options) {
  mpi::require_running();
  if (given == MPI_COMM_NULL)
    throw Error(ErrorCode::invalid_argument, "the communicator is MPI_COMM_NULL; expected one that this rank is in");
  int is_inter = 0;
  mpi::check(MPI_Comm_test_inter(given, &is_inter), "MPI_Comm_test_inter");
  if (is_inter != 0)
    throw Error(ErrorCode::invalid_argument,
                "the communicator is an inter-communicator; merge it with MPI_Intercomm_merge first");
  auto parent = std::make_shared<Parent>(given);
  return comm::make_comm([parent = std::move(parent)] { return mpi::make_link(parent->comm()); }, options);
}

}  // namespace penstock
