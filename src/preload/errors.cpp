#include "preload/errors.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "penstock/error.hpp"

namespace penstock::preload {

namespace {

int code_in(int error_class, const std::exception& error) noexcept {
  constexpr std::size_t kMostTexts = 64;  // MPI keeps each text for ever
  static std::mutex mutex;
  static auto* const codes = new std::map<std::string, int>;
  try {
    const std::lock_guard lock(mutex);
    std::string text = std::string("penstock: ") + error.what();
    text.resize(std::min<std::size_t>(text.size(), MPI_MAX_ERROR_STRING - 1));
    if (const auto known = codes->find(text); known != codes->end()) return known->second;
    if (codes->size() >= kMostTexts) return error_class;
    int code = error_class;
    if (PMPI_Add_error_code(error_class, &code) != MPI_SUCCESS) return error_class;
    PMPI_Add_error_string(code, text.c_str());
    codes->emplace(text, code);
    return code;
  } catch (const std::exception&) {
    return error_class;
  }
}

}  // namespace

int code_of(const std::exception& error) noexcept { return code_in(MPI_ERR_OTHER, error); }

int file_code_of(const std::exception& error) noexcept {
  if (const auto* of_mpi = dynamic_cast<const FileError*>(&error)) return code_in(of_mpi->error_class(), error);
  const auto* known = dynamic_cast<const Error*>(&error);
  const auto class_of = [](ErrorCode code) {
    switch (code) {
      case ErrorCode::invalid_argument: return MPI_ERR_ARG;
      case ErrorCode::mismatch: return MPI_ERR_NOT_SAME;
      case ErrorCode::not_found: return MPI_ERR_NO_SUCH_FILE;
      case ErrorCode::exists: return MPI_ERR_FILE_EXISTS;
      case ErrorCode::no_space: return MPI_ERR_NO_SPACE;
      case ErrorCode::unsupported: return MPI_ERR_UNSUPPORTED_OPERATION;
      default: return MPI_ERR_IO;
    }
  };
  return code_in(known != nullptr ? class_of(known->code()) : MPI_ERR_OTHER, error);
}

int raise(MPI_File file, const std::exception& error) noexcept {
  const int code = file_code_of(error);
  PMPI_File_call_errhandler(file, code);
  return code;
}

int raise(MPI_Comm comm, const std::exception& error) noexcept {
  const int code = code_of(error);
  PMPI_Comm_call_errhandler(comm, code);
  return code;
}

}  // namespace penstock::preload
