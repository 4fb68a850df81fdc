// The declarations of src/ucx/ucp.hpp are those of UCX's header, if that is there.
#include <gtest/gtest.h>

#if __has_include(<ucp/api/ucp.h>)
#include <ucp/api/ucp.h>

#include <cstddef>

#include "ucx/ucp.hpp"

namespace own = penstock::ucx;

#define SAME_MEMBER(type, member)                                   \
  EXPECT_EQ(offsetof(own::type, member), offsetof(::type, member)); \
  EXPECT_EQ(sizeof(own::type::member), sizeof(::type::member))
#define SAME_VALUE(name) EXPECT_EQ(static_cast<long>(own::name), static_cast<long>(::name))

TEST(Ucp, StructuresAreUcxs) {
  SAME_MEMBER(ucp_params_t, field_mask);
  SAME_MEMBER(ucp_params_t, features);
  SAME_MEMBER(ucp_params_t, name);
  SAME_MEMBER(ucp_worker_params_t, field_mask);
  SAME_MEMBER(ucp_worker_params_t, thread_mode);
  SAME_MEMBER(ucp_worker_params_t, cpu_mask);
  SAME_MEMBER(ucp_worker_params_t, client_id);
  SAME_MEMBER(ucp_ep_params_t, field_mask);
  SAME_MEMBER(ucp_ep_params_t, address);
  SAME_MEMBER(ucp_ep_params_t, err_mode);
  SAME_MEMBER(ucp_ep_params_t, err_handler);
  SAME_MEMBER(ucp_ep_params_t, local_sockaddr);
  SAME_MEMBER(ucp_err_handler_t, cb);
  SAME_MEMBER(ucp_err_handler_t, arg);
  SAME_MEMBER(ucp_tag_recv_info_t, sender_tag);
  SAME_MEMBER(ucp_tag_recv_info_t, length);
  SAME_MEMBER(ucp_request_param_t, op_attr_mask);
  SAME_MEMBER(ucp_request_param_t, flags);
  SAME_MEMBER(ucp_request_param_t, cb);
  SAME_MEMBER(ucp_request_param_t, user_data);
  SAME_MEMBER(ucp_request_param_t, recv_info);
  SAME_MEMBER(ucp_request_param_t, memh);
  EXPECT_GE(sizeof(own::ucp_params_t), sizeof(::ucp_params_t));
  EXPECT_GE(sizeof(own::ucp_worker_params_t), sizeof(::ucp_worker_params_t));
  EXPECT_GE(sizeof(own::ucp_ep_params_t), sizeof(::ucp_ep_params_t));
  EXPECT_GE(sizeof(own::ucp_request_param_t), sizeof(::ucp_request_param_t));
  EXPECT_EQ(sizeof(own::ucs_status_t), sizeof(::ucs_status_t));
}

TEST(Ucp, ConstantsAreUcxs) {
  SAME_VALUE(UCS_OK);
  SAME_VALUE(UCS_INPROGRESS);
  SAME_VALUE(UCS_ERR_MESSAGE_TRUNCATED);
  SAME_VALUE(UCS_ERR_CANCELED);
  SAME_VALUE(UCS_ERR_LAST);
  SAME_VALUE(UCP_PARAM_FIELD_FEATURES);
  SAME_VALUE(UCP_FEATURE_TAG);
  SAME_VALUE(UCP_WORKER_PARAM_FIELD_THREAD_MODE);
  SAME_VALUE(UCS_THREAD_MODE_SERIALIZED);
  SAME_VALUE(UCP_EP_PARAM_FIELD_REMOTE_ADDRESS);
  SAME_VALUE(UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE);
  SAME_VALUE(UCP_EP_PARAM_FIELD_ERR_HANDLER);
  SAME_VALUE(UCP_ERR_HANDLING_MODE_PEER);
  SAME_VALUE(UCP_OP_ATTR_FIELD_CALLBACK);
  SAME_VALUE(UCP_OP_ATTR_FIELD_USER_DATA);
  SAME_VALUE(UCP_OP_ATTR_FIELD_FLAGS);
  SAME_VALUE(UCP_OP_ATTR_FIELD_RECV_INFO);
  SAME_VALUE(UCP_EP_CLOSE_FLAG_FORCE);
}

TEST(Ucp, PointersMeanWhatTheyMeanToUcx) {
  for (const long value : {0L, 1L, -9L, -99L, -100L, -101L, 4096L}) {
    void* const pointer = reinterpret_cast<void*>(value);
    EXPECT_EQ(own::is_error(pointer), bool(UCS_PTR_IS_ERR(pointer))) << value;
    EXPECT_EQ(own::is_request(pointer), bool(UCS_PTR_IS_PTR(pointer))) << value;
  }
  EXPECT_EQ(own::raw_status(reinterpret_cast<void*>(-16L)), own::UCS_ERR_CANCELED);
}
#else
TEST(Ucp, IsUcxs) { GTEST_SKIP() << "ucp/api/ucp.h is not installed (libucx-dev)"; }
#endif
