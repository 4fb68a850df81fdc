#include "engine/remote/short_exchange.hpp"

namespace penstock::engine {

bool ShortExchange::poll() {
  complete_.clear();
  looked_at_ = 0;
  is_polling_ = true;
  core_.transport->poll_for(tokens_[static_cast<std::size_t>(std::countr_zero(is_posted_))], complete_);
  is_polling_ = false;
  return !complete_.empty();
}

// False if a message is not as planned: the general path fails the operation.
bool ShortExchange::take_complete(const Operation& operation) {
  for (; looked_at_ < complete_.size(); ++looked_at_) {
    const Transport::Completion& completion = complete_[looked_at_];
    const InFlight::Entry& done = in_flight_.at(completion.token);
    const bool is_receive = done.kind == InFlight::Kind::receive;
    if (is_receive && (completion.too_long || completion.bytes != operation.step(done.step).to.size_bytes))
      return false;
    steps_.note_done(operation, done);
    has_run_ |= 1U << done.step;
    is_posted_ &= ~(1U << done.step);
    in_flight_.drop(completion.token);
  }
  return true;
}

}  // namespace penstock::engine
