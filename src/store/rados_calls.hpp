// The functions of librados. They are loaded when a process opens its first rados: URL, so a build and a wheel do not
// need Ceph.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>

namespace penstock::store {

struct RadosCalls {
#define PENSTOCK_RADOS_CALL(name, result, arguments) result(*name) arguments = nullptr;
#include "store/rados_calls.def"
#undef PENSTOCK_RADOS_CALL

  /// Loads the library of this machine, once. Throws Error(unsupported); the message says what to install.
  static const RadosCalls& load();
};

}  // namespace penstock::store
