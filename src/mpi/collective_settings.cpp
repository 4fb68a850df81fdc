#include "mpi/collective_settings.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

namespace penstock::mpi {
namespace {

/// The prefixes of Open MPI, MPICH and Intel MPI. Launchers also pass their options by the environment. MPICH's
/// launchers set other variables too, such as the network interface.
bool is_about_collectives(std::string_view setting) {
  constexpr std::string_view kMpich = "MPIR_CVAR_";
  constexpr std::array<std::string_view, 8> kWords{"COLL",    "BCAST",    "REDUCE", "GATHER",
                                                   "SCATTER", "ALLTOALL", "SCAN",   "BARRIER"};
  if (setting.starts_with("OMPI_MCA_coll_") || setting.starts_with("I_MPI_ADJUST_")) return true;
  const std::string_view name = setting.substr(0, setting.find('='));
  return name.starts_with(kMpich) && std::ranges::any_of(kWords, [&](std::string_view word) {
           return name.find(word, kMpich.size()) != std::string_view::npos;
         });
}

}  // namespace

std::string collective_settings() {
  std::set<std::string_view> found;
  for (char** each = environ; each != nullptr && *each != nullptr; ++each) {
    const std::string_view setting = *each;
    if (is_about_collectives(setting)) found.insert(setting);
  }
  std::string text;
  for (const std::string_view setting : found) text += (text.empty() ? "" : " ") + std::string(setting);
  return text;
}

}  // namespace penstock::mpi
