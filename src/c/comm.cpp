// Communicators and requests. A penstock_comm is a penstock::Comm, a penstock_request a penstock::Request.
#include "penstock/comm.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "c/handles.hpp"
#include "c/rows.hpp"
#include "c/status.hpp"

using namespace penstock;
using c::guarded;
using c::require;
using c::unwrap;

int penstock_comm_rank(const penstock_comm* comm) {
  int rank = 0;
  const int status = guarded([&] {
    require(comm, "penstock_comm_rank", "comm");
    rank = unwrap<Comm>(comm).rank();
  });
  return status == 0 ? rank : status;
}

int penstock_comm_size(const penstock_comm* comm) {
  int size = 0;
  const int status = guarded([&] {
    require(comm, "penstock_comm_size", "comm");
    size = unwrap<Comm>(comm).size();
  });
  return status == 0 ? size : status;
}

int penstock_comm_degrees(const penstock_comm* comm, size_t* sources, size_t* destinations) {
  return guarded([&] {
    require(comm, "penstock_comm_degrees", "comm");
    const auto& of = unwrap<Comm>(comm);
    if (of.graph() == nullptr)
      throw Error(
          ErrorCode::invalid_argument,
          "penstock_comm_degrees: the communicator has no neighbours; make it from one of MPI's with a topology");
    if (sources != nullptr) *sources = of.graph()->sources(of.rank()).size();
    if (destinations != nullptr) *destinations = of.graph()->destinations(of.rank()).size();
  });
}

int penstock_comm_duplicate(const penstock_comm* comm, penstock_comm** duplicate) {
  return guarded([&] {
    require(comm, "penstock_comm_duplicate", "comm");
    // Fails on all ranks: the others would wait for a rank whose `duplicate` is null.
    Comm parent = unwrap<Comm>(comm);
    parent.agree([&] { require(duplicate, "penstock_comm_duplicate", "duplicate"); });
    *duplicate = c::wrap<penstock_comm>(parent.duplicate());
  });
}

void penstock_comm_free(penstock_comm* comm) { c::destroy<Comm>(comm); }

int penstock_comm_report(const penstock_comm* comm, char* text, size_t capacity, size_t* length) {
  return guarded([&] {
    require(comm, "penstock_comm_report", "comm");
    const std::string report = unwrap<Comm>(comm).report();
    if (length != nullptr) *length = report.size();
    if (capacity == 0) return;
    require(text, "penstock_comm_report", "text");
    const std::size_t copied = std::min(capacity - 1, report.size());
    std::memcpy(text, report.data(), copied);
    text[copied] = '\0';
  });
}

int penstock_comm_use(penstock_comm* comm, penstock_collective collective, const char* algorithm,
                      uint64_t segment_bytes) {
  return guarded([&] {
    require(comm, "penstock_comm_use", "comm");
    const auto kind = c::collective_kind("penstock_comm_use", collective);
    unwrap<Comm>(comm).use(kind, algorithm == nullptr ? "" : algorithm, segment_bytes);
  });
}

int penstock_wait(penstock_request** request) {
  return guarded([&] {
    require(request, "penstock_wait", "request");
    const std::unique_ptr<Request> mine(c::release<Request>(*request));
    if (mine != nullptr) mine->wait();
  });
}

int penstock_test(penstock_request** request, int* complete) {
  return guarded([&] {
    require(request, "penstock_test", "request");
    require(complete, "penstock_test", "complete");
    *complete = 1;
    if (*request == nullptr) return;
    std::unique_ptr<Request> mine(c::release<Request>(*request));
    if (mine->test()) return;
    *complete = 0;
    *request = c::pointer<penstock_request>(mine.release());
  });
}
