#include "penstock/comm.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <utility>
#include <vector>

#include "comm/state.hpp"
#include "engine/progress.hpp"
#include "measurement/machine.hpp"
#include "measurement/node_rows.hpp"
#include "penstock/error.hpp"
#include "penstock/tuning.hpp"

namespace penstock {

template <typename IsOver>
bool Request::Run::unpack_if(const IsOver& is_over) {
  if (unpacking == nullptr) return is_over();
  try {
    if (!is_over()) return false;
  } catch (...) {
    unpacking->drop();
    throw;
  }
  unpacking->finish();
  return true;
}

bool Request::Run::test() {
  return unpack_if([&] { return started.test(); });
}

void Request::Run::wait() {
  unpack_if([&] { return started.wait(), true; });
}

Request::Run::~Run() {
  if (unpacking == nullptr || started.run == nullptr) return;
  try {
    wait();
  } catch (const std::exception&) {
    // A destructor has no caller to report the error to.
  }
}

bool Request::test() { return run_ == nullptr || run_->test(); }

bool Request::done() const noexcept { return run_ == nullptr || run_->started.run == nullptr || run_->started.done(); }

void sleep_in_waits() noexcept { engine::Progress::sleep_in_waits(); }

void Request::wait() {
  if (run_ != nullptr) run_->wait();
}

Comm::Comm(std::shared_ptr<comm::State> state) : state_(std::move(state)) {}

int Comm::rank() const { return state_->team().rank; }
int Comm::size() const { return state_->team().size(); }
const Team& Comm::team() const { return state_->team(); }
const std::shared_ptr<const Graph>& Comm::graph() const { return state_->facts().graph; }
bool Comm::any_thread() const { return state_->facts().any_thread; }
Comm Comm::duplicate() const { return state_->duplicate(); }

void Comm::use(CollectiveKind kind, const std::string& algorithm, std::uint64_t segment_bytes) {
  state_->planner().use(kind, algorithm, segment_bytes);
}

Request Comm::start(const Collective& collective, ConstBytes input, Bytes output, std::shared_ptr<const UserOp> user) {
  return Request(std::make_shared<Request::Run>(state_, state_->start(collective, input, output, std::move(user))));
}

void Comm::run(const Collective& collective, ConstBytes input, Bytes output, std::shared_ptr<const UserOp> user) {
  state_->run(collective, input, output, std::move(user));
}

bool Comm::run_again(const PlainCall& call, const void* send, void* receive) {
  return state_->run_again(call, send, receive);
}

Persistent Comm::prepare(const Collective& collective, ConstBytes input, Bytes output,
                         std::shared_ptr<const UserOp> user) const {
  return Persistent(*this, [comm = *this, collective, input, output, user = std::move(user)]() mutable {
    return comm.start(collective, input, output, user);
  });
}

Request Comm::start_items(const Collective& collective, const SendItems& send, const ReceiveItems& receive) {
  auto run = std::make_shared<Request::Run>(state_);
  comm::ItemCall call;
  try {
    call = comm::item_call(state_->planner().with_graph(collective), rank(), size(), send, receive);
  } catch (const std::exception& error) {
    fail_next(error.what());
    throw;
  }
  const Collective bytes_of = call.collective;
  const Bytes input = call.send.bytes();
  const Bytes output = call.receive.bytes();
  run->unpacking = std::make_unique<comm::Unpacking>(std::move(call));
  run->started = state_->start(bytes_of, input, output, nullptr);
  return Request(std::move(run));
}

Persistent Comm::prepare_items(const Collective& collective, const SendItems& send, const ReceiveItems& receive) const {
  return Persistent(*this, [comm = *this, collective, send, receive]() mutable {
    return comm.start_items(collective, send, receive);
  });
}

Request Comm::start(std::shared_ptr<const Plan> plan, ConstBytes input, Bytes output, const Arithmetic& arithmetic,
                    std::uint64_t signature, Bytes scratch, std::span<const ConstBytes> parts) {
  return Request(std::make_shared<Request::Run>(
      state_, state_->start(std::move(plan), {input, output, scratch, parts}, arithmetic, signature)));
}

Request Comm::start_external(std::unique_ptr<ExternalOperation> operation, std::uint64_t signature) {
  return Request(std::make_shared<Request::Run>(state_, state_->start_external(std::move(operation), signature)));
}

void Comm::fail_next(const std::string& message) noexcept { state_->fail_next(message); }

void Comm::set_timeout(std::chrono::milliseconds timeout) noexcept { state_->set_timeout(timeout); }

void Comm::allgather(ConstBytes mine, Bytes all) {
  run({.kind = CollectiveKind::allgather, .count = mine.size()}, mine, all);
}

void Comm::agree(const std::function<void()>& action) {
  std::exception_ptr failure;
  std::array<char, 1024> text{};
  try {
    action();
  } catch (const std::exception& error) {
    failure = std::current_exception();
    std::strncpy(text.data(), error.what(), text.size() - 1);
  }
  const auto mine = static_cast<std::byte>(failure != nullptr);
  std::vector<std::byte> failed(static_cast<std::size_t>(size()));
  allgather({&mine, 1}, failed);
  const auto first = std::find(failed.begin(), failed.end(), std::byte{1});
  if (first == failed.end()) return;
  // All ranks know now that one has failed. A second operation distributes its text.
  const int first_rank = static_cast<int>(first - failed.begin());
  run({.kind = CollectiveKind::bcast, .count = text.size(), .root = first_rank}, {},
      std::as_writable_bytes(std::span(text)));
  if (failure != nullptr) std::rethrow_exception(failure);
  throw Error(ErrorCode::peer_failed, text.data(), first_rank);
}

MeasuredMachine Comm::machine(bool again) {
  measurement::Measurement found = measurement::measured_machine(state_->engine(), team(), state_->facts().mpi, again);
  const std::vector<std::int32_t>& nodes = team().node_of_rank;
  const auto ranks_here = std::ranges::count(nodes, nodes[0]);
  const bool has_network = ranks_here != std::ssize(nodes);
  const bool has_node = ranks_here != 1;
  std::vector<RowTime> rows;
  if (has_node && !has_network)
    rows = measurement::node_rows(state_->engine(), team(), state_->facts().mpi,
                                  again ? measurement::Purpose::show_again : measurement::Purpose::show)
               ->times;
  return {.machine = found.machine,
          .has_network = has_network,
          .has_node = has_node,
          .source = std::move(found.source),
          .seconds = found.seconds,
          .rows = std::move(rows)};
}
std::string Comm::tuning_key() const { return to_json(state_->facts().tuning_key()); }
std::string Comm::explain(const Collective& collective) const { return state_->planner().explain(collective); }
std::string Comm::report() const { return state_->report(); }

}  // namespace penstock
