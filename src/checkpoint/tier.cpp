#include "checkpoint/tier.hpp"

#include <algorithm>

#include "checkpoint/peers.hpp"

namespace penstock::checkpoint {

std::uint64_t newest_generation(const Tier& tier) {
  std::uint64_t newest = 0;
  for (const auto& [version, holding] : tier.list()) newest = std::max(newest, version.generation);
  return newest;
}

void try_to(const Warn& warn, const std::string& what, const std::function<void()>& action) {
  if (const std::optional<Error> error = attempt(what, -1, action)) warn(error->message());
}

Error fenced(const std::string& title, std::uint64_t newest, const std::string& who, std::uint64_t generation) {
  return {ErrorCode::fenced, title + ": job " + std::to_string(newest) + who +
                                 " saves checkpoints here since this one, job " + std::to_string(generation) +
                                 ", began; end this job, or open the place and restore again to go on from there"};
}

}  // namespace penstock::checkpoint
