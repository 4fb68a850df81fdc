#include "engine/peer_reads.hpp"

#include "engine/remote_read.hpp"
#include "host/process_memory.hpp"
#include "penstock/trace.hpp"
#include "plan/order.hpp"

namespace penstock::engine {

// True if the message has been read; false if its sender has failed meanwhile.
bool PeerReads::run(const Work& work) {
  const Operation& operation = *work.operation;
  const Step& what = operation.step(work.step);
  const trace::Span span("recv", what.lane == Lane::progress ? "progress" : "application", plan::consumed_bytes(what));
  const std::uint32_t peer = core_.local(what.peer);
  const pid_t process = core_.node.process[peer];
  const Bytes to = operation.target(what.to);
  const int error = what.kind == StepKind::compute ? remote_read(operation.plan(), what, operation.call.arithmetic,
                                                                 {process, work.message.address}, to)
                                                   : host::read_memory(process, work.message.address, to);
  // The sender's memory is valid only until its operation is over. It sets its failure bit before that.
  if (Failures::has(core_.slot(peer), operation.sequence)) return false;
  if (error != 0) core_.detector.throw_unreachable(operation, what.peer, error);
  return true;
}

void PeerReads::finish(const Work& work, bool was_valid) {
  const int peer = work.operation->step(work.step).peer;
  if (!was_valid) return refused_.push_back({work.operation, peer});
  Header fin = core_.header_for(*work.operation, MessageKind::fin);
  fin.transfer = {.sender = work.message.transfer, .receiver = 0, .offset_bytes = 0};
  core_.send(peer, fin, {}, work.operation);
  core_.complete(*work.operation, work.step);
}

}  // namespace penstock::engine
