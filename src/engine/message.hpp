// The engine's messages: in cells of shared memory, and between nodes in packets beside the messages of steps.
#pragma once

#include <cstdint>
#include <type_traits>

namespace penstock::engine {

/// In brackets: the member of Header that belongs to the kind.
enum class MessageKind : std::uint8_t {
  eager,      ///< a whole message [message]
  rts,        ///< request to send: a long message is ready; answered by fin or cts [message]
  cts,        ///< clear to send: stream the message as `data` [transfer]
  data,       ///< a piece of a long message [transfer]
  fin,        ///< the receiver has read the long message [transfer]
  signal,     ///< a signal step [shared]
  notice,     ///< the operation failed at the source, which tells all ranks; the payload is a Notice and the text
  refusal,    ///< the same, but the source tells this rank alone, which must tell the others: it had completed it
  probe,      ///< carries the signature, so that a mismatch is found while ranks wait for each other
  completed,  ///< answers a probe: the operation is complete at the source, which sends nothing more for it
  promised,   ///< answers a probe: the source still runs the operation, and has so many messages for the asker [count]
  sent,       ///< between nodes: a part of a list of SentMessages, in order [list]
  counts,     ///< between nodes: how many messages the source has sent up to the end of the operation's epoch [count]
  left,       ///< between nodes: answers any packet; the source has left, and takes part in no more operations
  recount,    ///< between nodes: asks which messages the source of `counts` has sent in the operation's epoch
};

/// What a list of messages says.
enum class ListKind : std::uint32_t {
  sent,       ///< all that the source has sent; the operation has failed somewhere, and is over there
  sends,      ///< all that the source's plan sends
  receives,   ///< all that the source's plan receives
  recounted,  ///< all that the source has sent in the operation's epoch, for operations that have not failed
  forgotten,  ///< it completed the operation, or one of its epoch, too long ago to know
};

struct Header {
  struct Message {
    std::uint64_t bytes;
    std::uint64_t address;   ///< in the sender's process; not of an eager one
    std::uint32_t transfer;  ///< the sender's id; not of an eager one
  };
  struct Transfer {
    std::uint32_t sender;        ///< the sender's id
    std::uint32_t receiver;      ///< the receiver's id
    std::uint64_t offset_bytes;  ///< of a piece
  };
  struct SharedBuffer {
    std::uint64_t offset_bytes;  ///< of the sender's shared buffer in its ring
  };
  struct Count {
    std::uint64_t messages;
  };
  struct List {
    ListKind kind;
    std::uint64_t items;  ///< of the whole list
  };

  std::uint64_t sequence = 0;  ///< of the operation within its communicator
  std::uint64_t signature = 0;
  union {
    Message message{};
    Transfer transfer;
    SharedBuffer shared;
    Count count;
    List list;
  };
  std::uint32_t source = 0;         ///< rank in the communicator
  std::uint32_t tag = 0;            ///< in the plan
  std::uint32_t payload_bytes = 0;  ///< bytes that follow this header
  MessageKind kind = MessageKind::eager;
  std::uint16_t communicator = 0;  ///< between nodes: Node::communicator
};
static_assert(sizeof(Header) == 56 && std::is_trivially_copyable_v<Header>);

struct Notice {
  std::int32_t code = 0;      ///< ErrorCode
  std::int32_t is_death = 0;  ///< 1: the culprit has died
  std::int32_t culprit = -1;  ///< Error::rank()
  std::int32_t partner = -1;  ///< of a mismatch: the other rank concerned; or -1
};
inline constexpr std::uint32_t kNoticeTextBytes = 900;
inline constexpr std::uint32_t kNoticeBytes = sizeof(Notice) + kNoticeTextBytes;  ///< at most

}  // namespace penstock::engine
