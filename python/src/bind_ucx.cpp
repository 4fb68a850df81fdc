// Communicators over UCX, and the messages of their groups.
#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "buffer.hpp"
#include "comm_handle.hpp"
#include "penstock/ucx.hpp"

namespace nb = nanobind;

namespace penstock::python {
namespace {

/// A message and its memory. Destroyed with the GIL held.
class PendingMessage {
 public:
  PendingMessage(ucx::Message message, ArrayView memory) : message_(std::move(message)), memory_(std::move(memory)) {}
  PendingMessage(PendingMessage&&) = default;
  PendingMessage& operator=(PendingMessage&&) = delete;
  ~PendingMessage() {
    // UCX may still use the memory, so it stays.
    if (!is_over_ && !message_.cancel()) static_cast<void>(new ArrayView(std::move(memory_)));
  }

  bool test() {
    if (is_over_) return true;
    const nb::gil_scoped_release released;
    is_over_ = message_.test();
    return is_over_;
  }
  int source() const { return message_.source(); }
  std::uint64_t size_bytes() const { return message_.size_bytes(); }
  bool cancel() noexcept { return message_.cancel(); }

 private:
  ucx::Message message_;
  ArrayView memory_;
  bool is_over_ = false;
};

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(std::min(seconds, 1e9) * 1e3));
}

nb::bytes open(const std::vector<std::string>& candidates) {
  std::string address;
  {
    const nb::gil_scoped_release released;
    address = ucx::open(candidates);
  }
  return nb::bytes(address.data(), address.size());
}

nb::tuple join(int rank, int size, std::uint64_t nonce, const std::map<int, nb::bytes>& addresses, double timeout_s,
               int progress_cores) {
  ucx::Group group{.rank = rank, .size = size, .nonce = nonce, .timeout = milliseconds(timeout_s)};
  for (const auto& [peer, address] : addresses) group.addresses[peer] = {address.c_str(), address.size()};
  std::shared_ptr<ucx::Messages> messages;
  Comm* comm = nullptr;
  {
    const nb::gil_scoped_release released;
    ucx::Joined joined = ucx::join(group, {.progress_cores = progress_cores});
    messages = std::move(joined.messages);
    comm = without_gil(joined.comm);
  }
  return nb::make_tuple(nb::cast(comm, nb::rv_policy::take_ownership), messages);
}

}  // namespace
}  // namespace penstock::python

void bind_ucx(nb::module_& module) {
  using namespace penstock;
  using python::PendingMessage;

  nb::class_<PendingMessage>(module, "UcxMessage")
      .def("test", &PendingMessage::test, nb::lock_self())
      .def("cancel", &PendingMessage::cancel, nb::lock_self())
      .def_prop_ro("source", &PendingMessage::source)
      .def_prop_ro("size_bytes", &PendingMessage::size_bytes);

  nb::class_<ucx::Messages>(module, "UcxMessages")
      .def_prop_ro("max_tag", &ucx::Messages::max_tag)
      .def(
          "send",
          [](ucx::Messages& messages, nb::handle buffer, int peer, int tag) {
            python::ArrayView memory = python::view(buffer, python::Access::read, "buf");
            return PendingMessage(messages.send(memory.bytes(), peer, tag), std::move(memory));
          },
          nb::arg("buf"), nb::arg("peer"), nb::arg("tag"),
          nb::sig("def send(self, buf: object, peer: int, tag: int) -> UcxMessage"))
      .def(
          "receive",
          [](ucx::Messages& messages, nb::handle buffer, int peer, int tag) {
            python::ArrayView memory = python::view(buffer, python::Access::write, "buf");
            return PendingMessage(messages.receive(memory.writable_bytes(), peer, tag), std::move(memory));
          },
          nb::arg("buf"), nb::arg("peer"), nb::arg("tag"),
          nb::sig("def receive(self, buf: object, peer: int, tag: int) -> UcxMessage"));

  module.def("ucx_open", &python::open, nb::arg("candidates"));
  module.def("ucx_description", &ucx::description);
  module.def("ucx_connections", &ucx::connections);
  module.def(
      "ucx_flush", [](double seconds) { ucx::flush(python::milliseconds(seconds)); }, nb::arg("seconds"),
      nb::call_guard<nb::gil_scoped_release>());
  module.def("ucx_first_peers", &ucx::first_peers, nb::arg("rank"), nb::arg("size"));
  module.def("ucx_join", &python::join, nb::arg("rank"), nb::arg("size"), nb::arg("nonce"), nb::arg("addresses"),
             nb::arg("timeout_s"), nb::arg("progress_cores"),
             nb::sig("def ucx_join(rank: int, size: int, nonce: int, addresses: dict[int, bytes], timeout_s: float, "
                     "progress_cores: int) -> tuple[Comm, UcxMessages]"));
}
