// The opaque handles of the C interface: pointers to C++ objects.
#pragma once

#include <utility>

namespace penstock::c {

template <typename Handle, typename Object>
Handle* pointer(Object* object) {
  return reinterpret_cast<Handle*>(object);
}

template <typename Handle, typename Object>
Handle* wrap(Object object) {
  return pointer<Handle>(new Object(std::move(object)));
}

template <typename Object, typename Handle>
Object& unwrap(Handle* handle) {
  return *reinterpret_cast<Object*>(handle);
}

template <typename Object, typename Handle>
const Object& unwrap(const Handle* handle) {
  return *reinterpret_cast<const Object*>(handle);
}

/// Moves the object to the caller and sets the handle to null.
template <typename Object, typename Handle>
Object* release(Handle*& handle) {
  return reinterpret_cast<Object*>(std::exchange(handle, nullptr));
}

template <typename Object, typename Handle>
void destroy(Handle* handle) {
  delete reinterpret_cast<Object*>(handle);
}

}  // namespace penstock::c
