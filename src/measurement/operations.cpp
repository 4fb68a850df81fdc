#include "measurement/operations.hpp"

namespace penstock::measurement {

void Operations::fail_left() {
  for (; left_ > 0; --left_) engine_.fail_next("the machine could not be measured, here or on another rank");
}

double Operations::run(const std::shared_ptr<const Plan>& plan, ConstBytes input, Bytes output) {
  return seconds_once([&] {
    // All ranks run the same operations, so the number of those left is a signature that is equal on all.
    const auto signature = static_cast<std::uint64_t>(left_);
    const auto run = engine_.start(plan, {.input = input, .output = output}, {}, signature);
    --left_;
    run->wait();
  });
}

void Operations::tell(const Team& team, Bytes data) {
  const Collective collective{.kind = CollectiveKind::bcast, .count = data.size()};
  run(plan_collective(team, collective), {}, data);
}

}  // namespace penstock::measurement
