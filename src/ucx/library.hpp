// libucp, opened at run time: Penstock is compiled against its header and links nothing of it.
#pragma once

#include <ucp/api/ucp.h>

#include <string>
#include <vector>

namespace penstock::ucx {

/// The functions of libucp and libucs that Penstock calls. All are in UCX 1.13 and later; the structures that they take
/// grow only behind their field masks.
struct Library {
#define PENSTOCK_UCX_FUNCTIONS(DO) \
  DO(ucp_get_version)              \
  DO(ucp_get_version_string)       \
  DO(ucp_config_read)              \
  DO(ucp_config_modify)            \
  DO(ucp_config_release)           \
  DO(ucp_init_version)             \
  DO(ucp_cleanup)                  \
  DO(ucp_worker_create)            \
  DO(ucp_worker_destroy)           \
  DO(ucp_worker_get_address)       \
  DO(ucp_worker_release_address)   \
  DO(ucp_worker_progress)          \
  DO(ucp_worker_flush_nbx)         \
  DO(ucp_ep_create)                \
  DO(ucp_ep_close_nbx)             \
  DO(ucp_tag_send_nbx)             \
  DO(ucp_tag_recv_nbx)             \
  DO(ucp_tag_probe_nb)             \
  DO(ucp_tag_msg_recv_nbx)         \
  DO(ucp_request_cancel)           \
  DO(ucp_request_check_status)     \
  DO(ucp_request_free)             \
  DO(ucs_status_string)
#define PENSTOCK_UCX_MEMBER(name) decltype(&::name) name = nullptr;
  PENSTOCK_UCX_FUNCTIONS(PENSTOCK_UCX_MEMBER)
#undef PENSTOCK_UCX_MEMBER
  std::string description{};
};

/// See ucx::open. The first call opens it, for good.
const Library& library(const std::vector<std::string>& candidates = {});

}  // namespace penstock::ucx
