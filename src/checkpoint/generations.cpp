#include "checkpoint/generations.hpp"

#include <unistd.h>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "checkpoint/keys.hpp"
#include "penstock/error.hpp"

namespace penstock::checkpoint {

namespace {

// Records of jobs are never removed, so a listing cannot miss the newest between two removals.
constexpr std::string_view kJobs = "checkpoints/jobs";

std::string record_of_this_job() {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  return json::Object().string("host", host).number("pid", getpid()).finish() + '\n';
}

/// " (host node7, process 812)", or nothing if that cannot be read.
std::string who(const store::Backend& slow, std::uint64_t generation) {
  try {
    const std::vector<std::byte> bytes = slow.contents(store::numbered_key(kJobs, generation));
    const json::Value record = json::Value::parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    return " (host " + record.at("host").text() + ", process " + std::to_string(record.at("pid").number()) + ")";
  } catch (const Error&) {
    return "";
  }
}

std::uint64_t last_job(const store::Backend& slow) {
  const std::vector<std::string> jobs = slow.list(kJobs);
  return jobs.empty() ? 0 : store::number_of(jobs.back());
}

}  // namespace

std::uint64_t take_generation(store::Backend& slow, std::uint64_t seen) {
  const std::string record = record_of_this_job();
  const ConstBytes piece = std::as_bytes(std::span(record));
  return slow.append(kJobs, std::max(last_job(slow), seen) + 1, std::span(&piece, 1));
}

std::uint64_t newest_generation(const store::Backend& tier) {
  std::uint64_t newest = 0;
  for (const auto& [version, holding] : list_versions(tier)) newest = std::max(newest, version.generation);
  return newest;
}

void check_generation(const store::Backend& slow, std::uint64_t generation) {
  const std::uint64_t newest = last_job(slow);
  if (newest <= generation) return;
  throw Error(ErrorCode::exists, slow.url() + ": job " + std::to_string(newest) + who(slow, newest) +
                                     " saves checkpoints here since this one, job " + std::to_string(generation) +
                                     ", began; end this job, or open the place and restore again to go on from there");
}

}  // namespace penstock::checkpoint
