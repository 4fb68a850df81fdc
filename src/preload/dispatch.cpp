#include "preload/dispatch.hpp"

#include "preload/requests.hpp"
#include "preload/settings.hpp"

namespace penstock::preload {
namespace {

/// Of these a longer call counts as one more: Penstock saves about as much in it.
constexpr std::uint64_t kBytesLikeACall = std::uint64_t{8} << 10U;

/// What a call counts for the decision to prepare. Equal on all ranks for correct calls.
std::uint64_t weight_of(const Call& call, const Members& members) {
  return 1 + agreed_bytes(call, members).value_or(0) / kBytesLikeACall;
}

/// Whether the communicator may be prepared in this call: no rank can leave it before all have entered it, or MPI lets
/// it wait for all ranks, as it does when a persistent operation is made. That one also announces further use.
bool may_prepare(const Call& call, Form form, std::uint64_t weight_before) {
  if (form == Form::persistent) return true;
  return form == Form::blocking && weight_before >= settings().after && synchronises(call);
}

}  // namespace

const char* why_native(Communicator& on, const Call& call, Form form) {
  if (form != Form::blocking) {
    if (settings().verifies) return "verification, which is for blocking calls";
    if (!has_progress_hook()) return "this MPI has no hook for progress";
    if (!settings().serves_requests_of_lists && has_counts(call.kind))
      return "Open MPI's Fortran interface writes into its request";
  }
  if (on.penstock == nullptr) {
    if (!on.why_native.empty()) return on.why_native.c_str();
    const bool is_due = may_prepare(call, form, on.weight);
    on.weight += weight_of(call, on.members());
    if (!is_due) return "not prepared yet";
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
  if (call.plain && on.penstock->run_again(*call.plain, call.input.data(), call.output.data())) return;
  if (call.items != nullptr)
    start(on, call).wait();
  else
    on.penstock->run(call.collective, call.input, call.output);
}

}  // namespace penstock::preload
