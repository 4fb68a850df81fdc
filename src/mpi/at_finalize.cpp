#include "mpi/at_finalize.hpp"

#include PENSTOCK_MPI_HEADER

#include <mutex>
#include <set>
#include <utility>

#include "mpi/check.hpp"

namespace penstock::mpi {
namespace {

// Recursive, since an action may destroy other entries. Never destroyed: MPI_Finalize may run in an exit handler.
std::recursive_mutex& mutex() {
  static auto* const lock = new std::recursive_mutex;
  return *lock;
}

std::set<std::function<void()>*>& actions() {
  static auto* const set = new std::set<std::function<void()>*>;
  return *set;
}

// MPI deletes the attributes of MPI_COMM_SELF first of all in MPI_Finalize (MPI 3.1, 8.7.1).
int run_actions(MPI_Comm, int, void*, void*) {
  const std::lock_guard lock(mutex());
  while (!actions().empty()) {
    std::function<void()>* const action = *actions().begin();
    actions().erase(actions().begin());
    (*action)();
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
  explicit Entry(std::function<void()> given) : action(std::move(given)) {
    const std::lock_guard lock(mutex());
    hook_once();
    actions().insert(&action);
  }
  ~Entry() {
    const std::lock_guard lock(mutex());
    actions().erase(&action);
  }
  std::function<void()> action;
};

AtFinalize::AtFinalize(std::function<void()> action) : entry_(std::make_shared<Entry>(std::move(action))) {}

}  // namespace penstock::mpi
