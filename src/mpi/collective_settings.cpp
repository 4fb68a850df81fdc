#include "mpi/collective_settings.hpp"

#include <unistd.h>

#include <algorithm>
#include <set>
#include <string_view>

namespace penstock::mpi {
namespace {

/// Of Open MPI, MPICH, and Intel MPI. Launchers put what is given to them as options into the environment, too.
constexpr std::string_view kPrefixes[] = {"OMPI_MCA_coll_", "MPIR_CVAR_", "I_MPI_ADJUST_"};

}  // namespace

std::string collective_settings() {
  std::set<std::string_view> found;
  for (char** each = environ; each != nullptr && *each != nullptr; ++each) {
    const std::string_view setting = *each;
    if (std::ranges::any_of(kPrefixes, [&](std::string_view prefix) { return setting.starts_with(prefix); }))
      found.insert(setting);
  }
  std::string text;
  for (const std::string_view setting : found) text += (text.empty() ? "" : " ") + std::string(setting);
  return text;
}

}  // namespace penstock::mpi
