// Which files of the program go to a store, and where there.
#pragma once

#include PENSTOCK_MPI_HEADER

#include <string>

#include "penstock/store.hpp"

namespace penstock::preload {

/// A file as the program names it.
struct FileChoice {
  bool is_stored = false;
  std::string why_native{};   ///< if it is not
  std::string url{};          ///< the blob: a store's URL, '/' and a name
  std::string plain_path{};   ///< "" if the program named the blob by its URL
  std::string export_path{};  ///< "": no export
};

/// By prefix, info key or glob. Local. Throws Error(invalid_argument) if an info key has a value that it cannot have.
FileChoice choose_file(const char* name, MPI_Info info);

/// The value of a key; "" without one.
std::string info_value(MPI_Info info, const char* key);

/// The path for MPI's own open: without the prefix.
const char* without_prefix(const char* name);

/// What rank 0 finds when the file is opened.
struct PreparedFile {
  enum class Outcome : int { stored, native, failed };
  Outcome outcome = Outcome::stored;
  int error_class = MPI_SUCCESS;  ///< if failed
  bool is_unusable = false;       ///< native or failed, since the store cannot be used
  std::string text{};             ///< why native or failed
};

/// Prepares the blob for an open with `amode`: makes it, or takes a plain file that is there as its next version.
PreparedFile prepare_blob(const FileChoice& choice, int amode);

/// Tags a version, unless another group of ranks has.
void tag_version(Blob& blob, const std::string& tag, std::uint64_t version);

/// Writes the newest version to the plain file, and remembers that it is this version.
void export_blob(const FileChoice& choice);

/// Removes the blob, if there is one. Returns whether there was.
bool remove_blob(const std::string& url);

}  // namespace penstock::preload
