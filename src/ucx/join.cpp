// The public functions.
#include "comm/link.hpp"
#include "host/node_names.hpp"
#include "penstock/error.hpp"
#include "ucx/transport.hpp"

namespace penstock::ucx {

std::string open(const std::vector<std::string>& candidates) { return Worker::open_process(candidates).address(); }

std::string description() { return library().description; }

std::size_t connections() {
  Worker* const worker = Worker::of_process();
  if (worker == nullptr) return 0;
  const auto locked = worker->lock();
  return worker->connections();
}

void flush(std::chrono::milliseconds patience) noexcept {
  if (Worker* const worker = Worker::of_process()) worker->flush(patience);
}

Joined join(const Group& group, const CommOptions& options) {
  Worker* const worker = Worker::of_process();
  if (worker == nullptr)
    throw Error(ErrorCode::invalid_argument,
                "ucx::join() was called before ucx::open(); call that first, and give "
                "its result to the other ranks");
  const Members members = find_members(*worker, group, host::node_of_process());
  Comm comm = comm::make_comm([&] { return make_link(*worker, group, members); }, options);
  return {std::move(comm), make_messages(*worker, group, members)};
}

}  // namespace penstock::ucx
