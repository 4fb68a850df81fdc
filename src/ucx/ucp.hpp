// What Penstock uses of UCX's interface, as UCX 1.13 declares it. Structures grow only behind their field masks, so
// later versions of UCX 1 take these, and Penstock is built without UCX. tests/unit/ucx compares them with ucp.h.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace penstock::ucx {

enum ucs_status_t : std::int8_t {
  UCS_OK = 0,
  UCS_INPROGRESS = 1,
  UCS_ERR_MESSAGE_TRUNCATED = -9,
  UCS_ERR_CANCELED = -16,
  UCS_ERR_LAST = -100,
};

/// nullptr, a status, or a request.
using ucs_status_ptr_t = void*;
inline bool is_error(ucs_status_ptr_t pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) >= static_cast<std::uintptr_t>(std::intptr_t{UCS_ERR_LAST});
}
inline bool is_request(ucs_status_ptr_t pointer) { return pointer != nullptr && !is_error(pointer); }
inline ucs_status_t raw_status(ucs_status_ptr_t pointer) {
  return static_cast<ucs_status_t>(reinterpret_cast<std::intptr_t>(pointer));
}

using ucp_config_t = struct ucp_config;
using ucp_context_h = struct ucp_context*;
using ucp_worker_h = struct ucp_worker*;
using ucp_ep_h = struct ucp_ep*;
using ucp_address_t = struct ucp_address;
using ucp_tag_message_h = struct ucp_recv_desc*;
using ucp_tag_t = std::uint64_t;

constexpr std::uint64_t UCP_PARAM_FIELD_FEATURES = 1u << 0;
constexpr std::uint64_t UCP_FEATURE_TAG = 1u << 0;
struct ucp_params_t {
  std::uint64_t field_mask;
  std::uint64_t features;
  std::size_t request_size;
  void (*request_init)(void*);
  void (*request_cleanup)(void*);
  std::uint64_t tag_sender_mask;
  int mt_workers_shared;
  std::size_t estimated_num_eps;
  std::size_t estimated_num_ppn;
  const char* name;
  std::array<std::byte, 64> later_versions;
};

constexpr std::uint64_t UCP_WORKER_PARAM_FIELD_THREAD_MODE = 1u << 0;
enum ucs_thread_mode_t { UCS_THREAD_MODE_SERIALIZED = 1 };
struct ucp_worker_params_t {
  std::uint64_t field_mask;
  ucs_thread_mode_t thread_mode;
  std::array<std::uint64_t, 16> cpu_mask;
  unsigned events;
  void* user_data;
  int event_fd;
  std::uint64_t flags;
  const char* name;
  std::size_t am_alignment;
  std::uint64_t client_id;
  std::array<std::byte, 64> later_versions;
};

constexpr std::uint64_t UCP_EP_PARAM_FIELD_REMOTE_ADDRESS = 1u << 0;
constexpr std::uint64_t UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE = 1u << 1;
constexpr std::uint64_t UCP_EP_PARAM_FIELD_ERR_HANDLER = 1u << 2;
enum ucp_err_handling_mode_t { UCP_ERR_HANDLING_MODE_PEER = 1 };
struct ucp_err_handler_t {
  void (*cb)(void* arg, ucp_ep_h ep, ucs_status_t status);
  void* arg;
};
struct ucs_sock_addr_t {
  const sockaddr* addr;
  socklen_t addrlen;
};
struct ucp_ep_params_t {
  std::uint64_t field_mask;
  const ucp_address_t* address;
  ucp_err_handling_mode_t err_mode;
  ucp_err_handler_t err_handler;
  void* user_data;
  unsigned flags;
  ucs_sock_addr_t sockaddr;
  void* conn_request;
  const char* name;
  ucs_sock_addr_t local_sockaddr;
  std::array<std::byte, 64> later_versions;
};

struct ucp_tag_recv_info_t {
  ucp_tag_t sender_tag;
  std::size_t length;
};

constexpr std::uint32_t UCP_OP_ATTR_FIELD_CALLBACK = 1u << 1;
constexpr std::uint32_t UCP_OP_ATTR_FIELD_USER_DATA = 1u << 2;
constexpr std::uint32_t UCP_OP_ATTR_FIELD_FLAGS = 1u << 4;
constexpr std::uint32_t UCP_OP_ATTR_FIELD_RECV_INFO = 1u << 7;
constexpr std::uint32_t UCP_EP_CLOSE_FLAG_FORCE = 1u << 0;
struct ucp_request_param_t {
  std::uint32_t op_attr_mask;
  std::uint32_t flags;
  void* request;
  union {
    void (*send)(void* request, ucs_status_t status, void* user_data);
    void (*recv)(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info, void* user_data);
  } cb;
  std::uint64_t datatype;
  void* user_data;
  void* reply_buffer;
  int memory_type;
  union {
    std::size_t* length;
    ucp_tag_recv_info_t* tag_info;
  } recv_info;
  void* memh;
  std::array<std::byte, 64> later_versions;
};

}  // namespace penstock::ucx
