#include "scalapack/report.hpp"

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <map>
#include <string>

#include "penstock/options.hpp"

namespace penstock::scalapack {
namespace {

class Report {
 public:
  Report() : prefix_(options().report) {}
  ~Report() {
    if (prefix_.empty() || counts_.empty()) return;
    std::string routines;
    for (const auto& [name, counts] : counts_)
      routines += (routines.empty() ? "" : ", ") + std::string("{\"routine\": \"") + name +
                  "\", \"calls\": " + std::to_string(counts.calls) + ", \"plans\": " + std::to_string(counts.plans) +
                  ", \"passed_on\": " + std::to_string(counts.passed_on) +
                  ", \"failed\": " + std::to_string(counts.failed) + "}";
    const std::string path = prefix_ + "." + std::to_string(::getpid()) + ".jsonl";
    std::ofstream file(path, std::ios::app);
    file << "{\"scalapack\": [" + routines + "]}\n" << std::flush;
    if (!file)
      std::fprintf(stderr, "penstock: cannot write the report %s; give another path in PENSTOCK_REPORT\n",
                   path.c_str());
  }

  Counts& of(const char* routine) { return counts_[routine]; }

 private:
  std::string prefix_;
  std::map<std::string, Counts> counts_;
};

}  // namespace

Counts& counts_of(const char* routine) {
  static Report report;
  return report.of(routine);
}

}  // namespace penstock::scalapack
