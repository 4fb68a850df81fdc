// What travels between ranks through shared cells, and between nodes in packets beside the messages of steps.
#pragma once

#include <cstdint>
#include <type_traits>

namespace penstock::engine {

enum class MessageKind : std::uint8_t {
  eager,      ///< a whole message
  rts,        ///< a long message is ready at `address` of the sender; asks for fin or cts
  cts,        ///< the receiver is ready: stream it in `data` messages
  data,       ///< a piece of a long message, at offset `address` of it
  fin,        ///< the receiver has copied the long message, or read the loan, by itself
  loan,       ///< a lend step: `bytes` at `address` of the sender may be read; asks for fin
  expose,     ///< an expose step; the sender's shared buffer of this operation lies at `address` of its arena
  notice,     ///< the operation failed at the source; the payload is a Notice and the text
  probe,      ///< nothing but the signature: makes a difference between ranks show while they wait for each other
  completed,  ///< answers a probe: the operation is over at the source, which has sent all it will
  sent,       ///< between nodes: items [`address`, ...) of `bytes` SentMessages; `tag` says of which kind
  counts,     ///< between nodes: the source has sent `bytes` messages to this rank up to the end of epoch `sequence`
  recount,    ///< between nodes: asks which messages these are in that epoch
};

struct Header {
  std::uint64_t sequence = 0;  ///< of the operation within its communicator
  std::uint64_t signature = 0;
  std::uint64_t bytes = 0;    ///< of the whole message
  std::uint64_t address = 0;  ///< see MessageKind
  std::uint32_t source = 0;   ///< rank in the communicator
  std::uint32_t tag = 0;
  std::uint32_t sender_transfer = 0;  ///< ids of the two ends of a long message, each chosen by its end
  std::uint32_t receiver_transfer = 0;
  std::uint32_t payload_bytes = 0;  ///< that follow this header
  MessageKind kind = MessageKind::eager;
  std::uint16_t communicator = 0;  ///< between nodes: Node::communicator
};
static_assert(sizeof(Header) == 56 && std::is_trivially_copyable_v<Header>);

struct Notice {
  std::int32_t code = 0;      ///< ErrorCode
  std::int32_t is_death = 0;  ///< the culprit was found dead; 1 or 0
  std::int32_t culprit = -1;  ///< Error::rank()
  std::int32_t partner = -1;  ///< the rank that shares the failure (mismatch); or -1
  /// 1 or 0. A rank that has completed the operation tells the one alone that asked, and that one the others.
  std::int32_t is_told_to_all = 1;
};
inline constexpr std::uint32_t kNoticeTextBytes = 900;
inline constexpr std::uint32_t kNoticeBytes = sizeof(Notice) + kNoticeTextBytes;  ///< at most

}  // namespace penstock::engine
