#include "mpi/at_finalize.hpp"

#include PENSTOCK_MPI_HEADER

#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

#include "mpi/check.hpp"

namespace penstock::mpi {
namespace {

// Recursive, since an action may destroy other entries. Never destroyed: MPI_Finalize may run in an exit handler.
std::recursive_mutex& mutex() {
  static auto* const lock = new std::recursive_mutex;
  return *lock;
}

// In the order of their construction. Actions free communicators, which are made in the same order on all ranks.
std::map<std::uint64_t, std::function<void()>*>& actions() {
  static auto* const by_number = new std::map<std::uint64_t, std::function<void()>*>;
  return *by_number;
}

// MPI_Finalize first deletes the attributes of MPI_COMM_SELF (MPI 3.1, 8.7.1).
int run_actions(MPI_Comm, int, void*, void*) {
  const std::lock_guard lock(mutex());
  while (!actions().empty()) {
    const auto first = actions().extract(actions().begin());
    (*first.mapped())();
  }
  return MPI_SUCCESS;
}

void hook_once() {
  static bool hooked = false;
  if (hooked) return;
  int key = MPI_KEYVAL_INVALID;
  check(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, run_actions, &key, nullptr), "MPI_Comm_create_keyval");
  check(MPI_Comm_set_attr(MPI_COMM_SELF, key, nullptr), "MPI_Comm_set_attr");
  check(MPI_Comm_free_keyval(&key), "MPI_Comm_free_keyval");
  hooked = true;
}

}  // namespace

struct AtFinalize::Entry {
  Entry(std::function<void()> given, Order order) : action(std::move(given)) {
    const std::lock_guard lock(mutex());
    hook_once();
    static std::uint64_t made = 0;
    number = made++ | (order == last ? std::uint64_t{1} << 63 : 0);
    actions().emplace(number, &action);
  }
  ~Entry() {
    const std::lock_guard lock(mutex());
    actions().erase(number);
  }
  std::function<void()> action;
  std::uint64_t number = 0;
};

AtFinalize::AtFinalize(std::function<void()> action, Order order)
    : entry_(std::make_shared<Entry>(std::move(action), order)) {}

}  // namespace penstock::mpi
