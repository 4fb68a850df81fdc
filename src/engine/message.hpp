// The engine's messages: in cells of shared memory, and between nodes in packets beside the messages of steps.
#pragma once

#include <cstdint>
#include <type_traits>

namespace penstock::engine {

enum class MessageKind : std::uint8_t {
  eager,       ///< a whole message
  rts,         ///< request to send: a long message is ready at `address` of the sender; answered by fin or cts
  cts,         ///< clear to send: stream the message as `data`
  data,        ///< a piece of a long message, at its offset `address`
  fin,         ///< the receiver has read the long message, or the offered memory
  offer_read,  ///< an offer_read step: `bytes` at `address` of the sender may be read; answered by fin
  signal,      ///< a signal step: the sender's shared buffer of this operation lies at offset `address` of its ring
  notice,      ///< the operation failed at the source; the payload is a Notice and the text
  probe,       ///< carries the signature, so that a mismatch is found while ranks wait for each other
  completed,   ///< answers a probe: the operation is complete at the source, which sends nothing more for it
  promised,    ///< answers a probe: the source still runs the operation, in which its plan has `bytes` messages for the
               ///< asker
  sent,        ///< between nodes: items [`address`, ...) of a list of `bytes` SentMessages; `tag` is its ListKind
  counts,      ///< between nodes: the source has sent this rank `bytes` messages up to the end of epoch `sequence`
  left,        ///< between nodes: answers any packet; the source has left, and takes part in no more operations
  recount,     ///< between nodes: asks which messages the source of `counts` has sent in epoch `sequence`
};

struct Header {
  std::uint64_t sequence = 0;  ///< of the operation within its communicator
  std::uint64_t signature = 0;
  std::uint64_t bytes = 0;    ///< of the whole message
  std::uint64_t address = 0;  ///< see MessageKind
  std::uint32_t source = 0;   ///< rank in the communicator
  std::uint32_t tag = 0;
  std::uint32_t sender_transfer = 0;    ///< the sender's id of a long message
  std::uint32_t receiver_transfer = 0;  ///< the receiver's id of it
  std::uint32_t payload_bytes = 0;      ///< bytes that follow this header
  MessageKind kind = MessageKind::eager;
  std::uint16_t communicator = 0;  ///< between nodes: Node::communicator
};
static_assert(sizeof(Header) == 56 && std::is_trivially_copyable_v<Header>);

struct Notice {
  std::int32_t code = 0;      ///< ErrorCode
  std::int32_t is_death = 0;  ///< 1: the culprit has died
  std::int32_t culprit = -1;  ///< Error::rank()
  std::int32_t partner = -1;  ///< of a mismatch: the other rank concerned; or -1
  /// 1: the source sends the notice to all ranks. 0: it sends the notice to one rank, which must tell the others. A
  /// rank that has completed the operation answers late messages with 0.
  std::int32_t is_told_to_all = 1;
};
inline constexpr std::uint32_t kNoticeTextBytes = 900;
inline constexpr std::uint32_t kNoticeBytes = sizeof(Notice) + kNoticeTextBytes;  ///< at most

}  // namespace penstock::engine
