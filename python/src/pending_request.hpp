// Operations that were started from Python.
#pragma once

#include <utility>
#include <vector>

#include <nanobind/nanobind.h>

#include "buffer.hpp"
#include "penstock/comm.hpp"

namespace penstock::python {

/// A request and the memory that it uses. The destructor waits, so that the memory outlives the operation.
class PendingRequest {
 public:
  PendingRequest(Request request, ArrayView input, ArrayView output)
      : request_(std::move(request)), input_(std::move(input)), output_(std::move(output)) {}
  PendingRequest(Request request, std::vector<ArrayView> arrays)
      : request_(std::move(request)), more_(std::move(arrays)) {}
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
    input_ = {};
    output_ = {};
    more_.clear();
  }

  Request request_;
  ArrayView input_;
  ArrayView output_;
  std::vector<ArrayView> more_;
};

}  // namespace penstock::python
