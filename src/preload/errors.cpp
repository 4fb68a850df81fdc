#include "preload/errors.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

namespace penstock::preload {

int code_of(const std::exception& error) noexcept {
  constexpr std::size_t kMostTexts = 64;  // MPI keeps each text for ever
  static std::mutex mutex;
  static auto* const codes = new std::map<std::string, int>;
  try {
    const std::lock_guard lock(mutex);
    std::string text = std::string("penstock: ") + error.what();
    text.resize(std::min<std::size_t>(text.size(), MPI_MAX_ERROR_STRING - 1));
    if (const auto known = codes->find(text); known != codes->end()) return known->second;
    if (codes->size() >= kMostTexts) return MPI_ERR_OTHER;
    int code = MPI_ERR_OTHER;
    if (PMPI_Add_error_code(MPI_ERR_OTHER, &code) != MPI_SUCCESS) return MPI_ERR_OTHER;
    PMPI_Add_error_string(code, text.c_str());
    codes->emplace(text, code);
    return code;
  } catch (const std::exception&) {
    return MPI_ERR_OTHER;
  }
}

int raise(MPI_Comm comm, const std::exception& error) noexcept {
  const int code = code_of(error);
  PMPI_Comm_call_errhandler(comm, code);
  return code;
}

}  // namespace penstock::preload
