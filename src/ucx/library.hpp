// libucp, opened at run time: Penstock links nothing of it.
#pragma once

#include <string>
#include <vector>

#include "ucx/ucp.hpp"

namespace penstock::ucx {

/// The functions of libucp and libucs that Penstock calls. All are in UCX 1.13 and later.
#define PENSTOCK_UCX_FUNCTIONS(DO)                                                                                     \
  DO(void, ucp_get_version, (unsigned* major, unsigned* minor, unsigned* release))                                     \
  DO(ucs_status_t, ucp_config_read, (const char* prefix, const char* file, ucp_config_t** config))                     \
  DO(ucs_status_t, ucp_config_modify, (ucp_config_t * config, const char* name, const char* value))                    \
  DO(void, ucp_config_release, (ucp_config_t * config))                                                                \
  DO(ucs_status_t, ucp_init_version,                                                                                   \
     (unsigned major, unsigned minor, const ucp_params_t* params, const ucp_config_t* config, ucp_context_h* context)) \
  DO(void, ucp_cleanup, (ucp_context_h context))                                                                       \
  DO(ucs_status_t, ucp_worker_create,                                                                                  \
     (ucp_context_h context, const ucp_worker_params_t* params, ucp_worker_h* worker))                                 \
  DO(void, ucp_worker_destroy, (ucp_worker_h worker))                                                                  \
  DO(ucs_status_t, ucp_worker_get_address, (ucp_worker_h worker, ucp_address_t * *address, std::size_t * length))      \
  DO(void, ucp_worker_release_address, (ucp_worker_h worker, ucp_address_t * address))                                 \
  DO(unsigned, ucp_worker_progress, (ucp_worker_h worker))                                                             \
  DO(ucs_status_ptr_t, ucp_worker_flush_nbx, (ucp_worker_h worker, const ucp_request_param_t* param))                  \
  DO(ucs_status_t, ucp_ep_create, (ucp_worker_h worker, const ucp_ep_params_t* params, ucp_ep_h* ep))                  \
  DO(ucs_status_ptr_t, ucp_ep_close_nbx, (ucp_ep_h ep, const ucp_request_param_t* param))                              \
  DO(ucs_status_ptr_t, ucp_tag_send_nbx,                                                                               \
     (ucp_ep_h ep, const void* buffer, std::size_t count, ucp_tag_t tag, const ucp_request_param_t* param))            \
  DO(ucs_status_ptr_t, ucp_tag_recv_nbx,                                                                               \
     (ucp_worker_h worker, void* buffer, std::size_t count, ucp_tag_t tag, ucp_tag_t mask,                             \
      const ucp_request_param_t* param))                                                                               \
  DO(ucp_tag_message_h, ucp_tag_probe_nb,                                                                              \
     (ucp_worker_h worker, ucp_tag_t tag, ucp_tag_t mask, int remove, ucp_tag_recv_info_t* info))                      \
  DO(ucs_status_ptr_t, ucp_tag_msg_recv_nbx,                                                                           \
     (ucp_worker_h worker, void* buffer, std::size_t count, ucp_tag_message_h message,                                 \
      const ucp_request_param_t* param))                                                                               \
  DO(void, ucp_request_cancel, (ucp_worker_h worker, void* request))                                                   \
  DO(ucs_status_t, ucp_request_check_status, (void* request))                                                          \
  DO(void, ucp_request_free, (void* request))                                                                          \
  DO(const char*, ucs_status_string, (ucs_status_t status))

struct Library {
#define PENSTOCK_UCX_MEMBER(result, name, arguments) result(*name) arguments = nullptr;
  PENSTOCK_UCX_FUNCTIONS(PENSTOCK_UCX_MEMBER)
#undef PENSTOCK_UCX_MEMBER
  unsigned minor_version = 0;  // of version 1
  std::string description{};
};

/// See ucx::open. The first call opens it, for good.
const Library& library(const std::vector<std::string>& candidates = {});

}  // namespace penstock::ucx
