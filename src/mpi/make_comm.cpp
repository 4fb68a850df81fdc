#include <type_traits>

#include "comm/state.hpp"
#include "mpi/check.hpp"
#include "mpi/transport.hpp"
#include "penstock/error.hpp"
#include "penstock/mpi.hpp"

namespace penstock {

Comm mpi::make_comm_unless(const std::exception_ptr& failure, MPI_Comm given, const CommOptions& options) {
  require_running();
  if (given == MPI_COMM_NULL)
    throw Error(ErrorCode::invalid_argument, "the communicator is MPI_COMM_NULL; expected one that this rank is in");
  int is_inter = 0;
  check(MPI_Comm_test_inter(given, &is_inter), "MPI_Comm_test_inter");
  if (is_inter != 0)
    throw Error(ErrorCode::invalid_argument,
                "the communicator is an inter-communicator; merge it with MPI_Intercomm_merge first");
  // Only a communicator that is made keeps its MakeLink, and then nothing has failed.
  const auto make = [given, failed = failure != nullptr ? &failure : nullptr] {
    comm::Link link = make_link(given);
    if (link.failure == nullptr && failed != nullptr) link.failure = *failed;
    return link;
  };
  // Then a std::function holds it in place. A rank without memory must reach the first exchange, where the others wait.
  static_assert(std::is_trivially_copyable_v<decltype(make)> && sizeof make <= 2 * sizeof(void*));
  return comm::make_comm(make, options);
}

Comm make_comm(MPI_Comm given, const CommOptions& options) { return mpi::make_comm_unless(nullptr, given, options); }

}  // namespace penstock
