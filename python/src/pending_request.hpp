// Operations that were started from Python.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>

#include "buffer.hpp"
#include "penstock/comm.hpp"

namespace penstock::python {

/// A request and what keeps its memory. The destructor waits, so that the memory outlives the operation.
class PendingRequest {
 public:
  /// `memory` is released with the GIL held.
  PendingRequest(Request request, std::shared_ptr<void> memory)
      : request_(std::move(request)), memory_(std::move(memory)) {}
  PendingRequest(Request request, std::vector<ArrayView> arrays)
      : PendingRequest(std::move(request), std::make_shared<std::vector<ArrayView>>(std::move(arrays))) {}
  PendingRequest(PendingRequest&&) = default;
  ~PendingRequest() { drop_request(); }

  void wait() {
    {
      const nanobind::gil_scoped_release released;
      request_.wait();
    }
    forget();
  }
  bool test() {
    bool complete = false;
    {
      const nanobind::gil_scoped_release released;
      complete = request_.test();
    }
    if (complete) forget();
    return complete;
  }

 private:
  /// Releases the GIL: the thread that holds the engine's lock may be about to call Python.
  void drop_request() {
    const nanobind::gil_scoped_release released;
    request_ = {};
  }
  void forget() {
    drop_request();
    memory_.reset();
  }

  Request request_;
  std::shared_ptr<void> memory_;
};

}  // namespace penstock::python
