// librados, loaded when the first rados: URL is opened: a build and a wheel need none of Ceph.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>

namespace penstock::store {

struct RadosCalls {
#define PENSTOCK_RADOS_CALL(name, result, arguments) result(*name) arguments = nullptr;
#include "store/rados_calls.def"
#undef PENSTOCK_RADOS_CALL

  /// The library of this machine. Throws unsupported, saying what to install.
  static const RadosCalls& load();
};

}  // namespace penstock::store
