// Penstock's errors as MPI's.
#pragma once

#include PENSTOCK_MPI_HEADER

#include <exception>
#include <string>
#include <utility>

namespace penstock::preload {

/// A code of MPI whose text is that of the error. Local, any thread.
int code_of(const std::exception& error) noexcept;

/// Calls the error handler of `comm`, and returns the code.
int raise(MPI_Comm comm, const std::exception& error) noexcept;

/// An error that has a class in MPI's chapter on files.
class FileError : public std::exception {
 public:
  FileError(int error_class, std::string text) : error_class_(error_class), text_(std::move(text)) {}
  const char* what() const noexcept override { return text_.c_str(); }
  int error_class() const noexcept { return error_class_; }

 private:
  int error_class_;
  std::string text_;
};

/// As code_of, in the error class that MPI has for a failure of a file.
int file_code_of(const std::exception& error) noexcept;

/// Calls the error handler of `file`, and returns the code. MPI_FILE_NULL: before it is open.
int raise(MPI_File file, const std::exception& error) noexcept;

}  // namespace penstock::preload
