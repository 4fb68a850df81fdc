#include "preload/dispatch.hpp"

#include "preload/requests.hpp"

namespace penstock::preload {
namespace {

/// Whether the communicator may be prepared in this call: no rank can leave it before all have entered it, or MPI lets
/// it wait for all ranks, as it does when a persistent operation is made. That one also announces further use.
bool may_prepare(const Call& call, Form form, std::uint64_t calls_before) {
  if (form == Form::persistent) return true;
  return form == Form::blocking && calls_before >= settings().after && synchronises(call);
}

}  // namespace

const char* why_native(Communicator& on, const Call& call, Form form) {
  const std::uint64_t before = on.calls++;
  if (form != Form::blocking) {
    if (settings().verifies) return "verification, which is for blocking calls";
    if (!has_progress_hook()) return "this MPI has no hook for progress";
  }
  if (on.penstock == nullptr) {
    if (!settings().serves) return "a broken option";
    if (!on.why_native.empty()) return on.why_native.c_str();
    if (!may_prepare(call, form, before)) return "not prepared yet";
    prepare(on);
    if (on.penstock == nullptr) return on.why_native.c_str();
  }
  return form == Form::blocking || on.one_node ? nullptr : "a job on several nodes";
}

Request start(Communicator& on, const Translated& call) {
  Comm& comm = *on.penstock;
  if (call.items != nullptr) return comm.start_items(call.collective, call.items->send, call.items->receive);
  return comm.start(call.collective, call.input, call.output);
}

void run(Communicator& on, const Translated& call) {
  if (call.items != nullptr)
    start(on, call).wait();
  else
    on.penstock->run(call.collective, call.input, call.output);
}

}  // namespace penstock::preload
