#include "preload/settings.hpp"

#include PENSTOCK_MPI_HEADER

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <sstream>

#include "penstock/comm.hpp"
#include "penstock/options.hpp"
#include "preload/fortran.hpp"

namespace penstock::preload {

namespace {

Settings read_settings() {
  Settings read;
  try {
    const Options& given = options();
    check_options();
    read.after = static_cast<std::uint64_t>(std::max<std::int64_t>(given.preload_after, 0));
    read.report = given.preload_report;
    read.verifies = given.verify;
    read.measures = given.preload_measure && !read.verifies;
    read.is_strict = given.preload_strict;
    read.times = !read.report.empty();
    read.exports_files = given.files_export;
    std::istringstream globs(given.files);
    for (std::string glob; std::getline(globs, glob, ':');)
      if (!glob.empty()) read.files.push_back(glob);
  } catch (const std::exception& error) {
    read.serves = false;
    read.why_broken = error.what();
  }
  return read;
}

Settings& settings_of_process() {
  static Settings made = read_settings();
  return made;
}

}  // namespace

const Settings& settings() { return settings_of_process(); }

void agree_on_settings(bool reads_table) {
  Settings& mine = settings_of_process();
  int rank = 0;
  int ranks = 1;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  PMPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const std::string no_table = mine.serves && reads_table ? why_no_tuning() : "";
  std::array<int, 3> first{mine.serves ? ranks : rank, no_table.empty() ? ranks : rank,
                           fortran_writes_into_requests() ? rank : ranks};
  PMPI_Allreduce(MPI_IN_PLACE, first.data(), static_cast<int>(first.size()), MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  mine.serves_requests_of_lists = first[2] == ranks;
  if (first[0] < ranks) {
    mine.serves = false;
    if (rank == first[0] && std::getenv("PENSTOCK_PRELOAD_SAID") == nullptr)  // by `penstock run`
      std::fprintf(stderr, "penstock: %s; this program runs with MPI's own functions\n", mine.why_broken.c_str());
  } else if (first[1] < ranks) {
    options().tuning.clear();
    if (rank == first[1])
      std::fprintf(stderr, "penstock: tuning: %s; the default algorithms are used\n", no_table.c_str());
  }
}

}  // namespace penstock::preload
