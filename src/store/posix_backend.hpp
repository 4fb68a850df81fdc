// Objects as files below one directory. Needs of the file system no more than link(2), which is atomic everywhere
// (NFS and the parallel file systems included); never fcntl or flock, and rename over an existing name for repair
// alone.
#pragma once

#include <memory>
#include <string>

#include "store/backend.hpp"
#include "store/posix_calls.hpp"

namespace penstock::store {

/// `root` is an absolute path. `calls` must outlive the backend.
std::shared_ptr<Backend> open_directory(const std::string& root, const std::string& url, const BackendOptions& options,
                                        PosixCalls& calls);

}  // namespace penstock::store
