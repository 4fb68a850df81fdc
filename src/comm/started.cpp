#include "comm/started.hpp"

#include <utility>

#include "penstock/error.hpp"

namespace penstock::comm {

Guard::Guard(std::string operation, ConstBytes sent)
    : mutex_(std::make_unique<std::mutex>()),
      operation_(std::move(operation)),
      sent_(sent),
      before_(store::checksum(sent)) {}

void Guard::check() {
  if (mutex_ == nullptr) return;
  // Another thread that waits for the operation may change the memory once its wait has returned.
  const std::lock_guard lock(*mutex_);
  const ConstBytes sent = std::exchange(sent_, {});
  if (sent.empty() || store::checksum(sent) == before_) return;
  throw Error(ErrorCode::invalid_argument,
              operation_ +
                  ": the send buffer changed before the operation was complete, so other ranks may have received "
                  "old or new data; do not write to it until wait() has returned or test() has returned true");
}

bool Started::test() {
  if (agreement != nullptr && !agreement->test()) return false;
  if (!run->done()) {
    bool is_complete = false;
    try {
      is_complete = run->test();
    } catch (const Error&) {
      if (agreement != nullptr) agreement->wait();  // its text says more than the operation's own failure
      throw;
    }
    if (!is_complete) return false;
  }
  wait();
  return true;
}

void Started::wait() {
  try {
    run->wait();
  } catch (const Error&) {
    if (agreement != nullptr) agreement->wait();
    throw;
  }
  if (agreement != nullptr) agreement->wait();
  guard.check();
}

}  // namespace penstock::comm
