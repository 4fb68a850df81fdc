#include "mpi/yields.hpp"

#include <array>

#include "penstock/mpi.hpp"

#ifdef OPEN_MPI
// Not of MPI's interface. Open MPI has had it since its first versions; where it is missing, yields stay.
extern "C" bool opal_progress_set_yield_when_idle(bool yields) __attribute__((weak));
#endif

namespace penstock::mpi {

#ifdef OPEN_MPI
namespace {

// Open MPI says that it is a bool; some versions write an int.
bool read_variable(const char* name) {
  // Open MPI takes the level that is asked for here for that of all of MPI.
  int level = MPI_THREAD_SINGLE;
  if (MPI_Query_thread(&level) != MPI_SUCCESS || MPI_T_init_thread(level, &level) != MPI_SUCCESS) return false;
  std::array<int, 4> value{};
  int index = 0;
  int count = 0;
  MPI_T_cvar_handle handle;
  if (MPI_T_cvar_get_index(name, &index) == MPI_SUCCESS &&
      MPI_T_cvar_handle_alloc(index, nullptr, &handle, &count) == MPI_SUCCESS) {
    if (count == 1) MPI_T_cvar_read(handle, value.data());
    MPI_T_cvar_handle_free(&handle);
  }
  MPI_T_finalize();
  return value[0] != 0;
}

}  // namespace

bool yields_when_idle() noexcept {
  static const bool known = read_variable("mpi_yield_when_idle");
  return known;
}

WithoutYields::WithoutYields() noexcept : yields_(yields_when_idle()) {
  if (!yields_ || opal_progress_set_yield_when_idle == nullptr) return;
  opal_progress_set_yield_when_idle(false);
  is_off_ = true;
}

WithoutYields::~WithoutYields() {
  if (is_off_) opal_progress_set_yield_when_idle(true);
}
#else
bool yields_when_idle() noexcept { return false; }

WithoutYields::WithoutYields() noexcept : yields_(false) {}

WithoutYields::~WithoutYields() = default;
#endif

}  // namespace penstock::mpi
