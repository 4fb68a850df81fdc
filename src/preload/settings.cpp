#include "preload/settings.hpp"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <sstream>

#include "penstock/options.hpp"

namespace penstock::preload {

const Settings& settings() {
  static const Settings made = [] {
    Settings read;
    try {
      const Options& given = options();
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
      std::fprintf(stderr, "penstock: %s; this program runs with MPI's own functions\n", error.what());
    }
    return read;
  }();
  return made;
}

}  // namespace penstock::preload
