#include "engine/notices.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/ranks_text.hpp"
#include "engine/core.hpp"

namespace penstock::engine {

void Notices::tell(const Operation& failed, bool is_death, int partner) const {
  for (int peer = 0; peer < core_.node.team.size(); ++peer)
    if (peer != core_.rank) send(MessageKind::notice, peer, failed.sequence, *failed.error, is_death, partner);
}

Error Notices::mismatch(int peer, const std::string& where, const std::string& what) const {
  return {ErrorCode::mismatch,
          base::ranks_text(std::array{core_.rank, peer}) + " do not match in " + where + ": " + what +
              "; every rank must make the same calls in the same order with matching counts, types and roots",
          core_.rank};
}

void Notices::send(MessageKind kind, int peer, std::uint64_t sequence, const Error& error, bool is_death,
                   int partner) const {
  const std::size_t text_bytes = std::min<std::size_t>(error.message().size(), kNoticeTextBytes);
  const Notice notice{static_cast<std::int32_t>(error.code()), is_death ? 1 : 0, error.rank(), partner};
  std::array<std::byte, kNoticeBytes> body;
  std::memcpy(body.data(), &notice, sizeof notice);
  std::memcpy(body.data() + sizeof notice, error.message().data(), text_bytes);
  Header header = core_.header(sequence, kind);
  header.payload_bytes = static_cast<std::uint32_t>(sizeof notice + text_bytes);
  core_.send(peer, header, ConstBytes(body).first(sizeof notice + text_bytes), nullptr);
}

void Notices::on_notice(const Header& header, ConstBytes payload) const {
  Notice notice;
  std::memcpy(&notice, payload.data(), sizeof notice);
  if (notice.is_death != 0) core_.detector.note_death(notice.culprit, header.sequence);
  core_.has_failed_elsewhere(header.sequence);
  if (header.sequence < core_.operations.base()) return;
  Operation& failing = core_.operations.at(header.sequence);
  const ConstBytes rest = payload.subspan(sizeof notice);
  const std::string text(reinterpret_cast<const char*>(rest.data()), rest.size());
  const int origin = static_cast<int>(header.source);
  const bool must_tell = header.kind == MessageKind::refusal;
  if (notice.partner == core_.rank)
    core_.fail(failing, Error(static_cast<ErrorCode>(notice.code), text, origin), must_tell);
  else if (notice.is_death != 0)  // a third rank has died
    core_.fail(failing, PeerGone(text, notice.culprit), must_tell);
  else
    core_.fail(
        failing,
        Error(ErrorCode::peer_failed, "rank " + std::to_string(origin) + " failed in this operation: " + text, origin),
        false);
}

// A message for an operation that is over here. If it was completed without that message, its sender waits for an
// answer.
void Notices::on_late(const Header& header) const {
  const OperationTable::Past& past = core_.operations.past(header.sequence);
  if (past.sequence == header.sequence && past.failed) return;
  const int peer = static_cast<int>(header.source);
  if (header.kind == MessageKind::probe && (past.sequence != header.sequence || past.signature == header.signature)) {
    Header answer = core_.header(header.sequence, MessageKind::completed);
    answer.signature = header.signature;
    return core_.send(peer, answer, {}, nullptr);
  }
  const std::string where = "operation " + std::to_string(header.sequence);
  if (const int gone = core_.detector.find_dead(); gone >= 0)  // as in Core::fail_mismatch()
    return send(MessageKind::refusal, peer, header.sequence, FailureDetector::gone_error(gone, where), true, -1);
  send(MessageKind::refusal, peer, header.sequence,
       mismatch(peer, where,
                "rank " + std::to_string(core_.rank) + " completed it without the message that rank " +
                    std::to_string(peer) + " sent"),
       false, peer);
}

}  // namespace penstock::engine
