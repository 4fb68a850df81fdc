// The report at MPI_Finalize: who served what.
#pragma once

#include <cstdint>
#include <string>

#include "preload/communicators.hpp"

namespace penstock::preload {

/// Keeps the tallies of a communicator that ends. Communicators of one name and size share their rows, so memory stays
/// bounded. Only rank 0 of a communicator reports it.
void add_to_report(const Communicator& ended);

/// A file that was opened.
struct FileRow {
  std::string path;
  int ranks = 1;
  bool is_stored = false;
  std::string why_native{};
  std::uint64_t opens = 0;  ///< 0 but on one rank
  std::uint64_t read_bytes = 0;
  std::uint64_t written_bytes = 0;
  std::uint64_t versions = 0;  ///< that others made meanwhile, too
};

/// Rows of one path, number of ranks and reason are summed. Any thread.
void add_file_to_report(FileRow row);

/// Rank 0 of MPI_COMM_WORLD gathers the rows of all ranks, prints the table on stderr and writes the JSON. `target`: ""
/// for no report, "-" for the table alone, or the path of the JSON. Collective.
void write_report(const std::string& target);

}  // namespace penstock::preload
