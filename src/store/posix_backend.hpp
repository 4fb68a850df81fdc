// The backend that keeps objects as files below one directory. It needs only that link(2) is atomic and exclusive, as
// it is on local file systems, NFS and parallel file systems. It uses no fcntl or flock locks. Only repair renames a
// file over an existing one.
#pragma once

#include <memory>
#include <string>

#include "store/backend.hpp"
#include "store/posix_calls.hpp"

namespace penstock::store {

/// Opens the backend at `root`, an absolute path; `url` is for messages. `calls` must outlive the backend.
std::shared_ptr<Backend> open_directory(const std::string& root, const std::string& url, const BackendOptions& options,
                                        PosixCalls& calls);

}  // namespace penstock::store
