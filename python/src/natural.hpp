// Non-negative integer arguments.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include <nanobind/nanobind.h>

#include "penstock/error.hpp"

namespace penstock::python {

/// The name of an argument, as a template parameter.
template <std::size_t kSize>
struct ArgumentName {
  consteval ArgumentName(const char (&literal)[kSize]) { std::copy_n(literal, kSize, text); }
  char text[kSize];
};

/// An integer from 0 to 2^63. Another value is stored and raises an Error that names the argument when the number is
/// read. So a collective call can fail on all ranks, and users do not see signatures of the extension.
template <ArgumentName kName>
class Natural {
 public:
  Natural() = default;

  static Natural of(nanobind::handle given) {
    Natural made;
    if (const nanobind::object index = nanobind::steal(PyNumber_Index(given.ptr())); index.is_valid()) {
      made.value_ = PyLong_AsUnsignedLongLong(index.ptr());
      if (PyErr_Occurred() == nullptr && made.value_ <= kMost) return made;
    }
    PyErr_Clear();
    // A caster must not throw, so a failing repr() must not propagate.
    const nanobind::object shown = nanobind::steal(PyObject_Repr(given.ptr()));
    const char* text = shown.is_valid() ? PyUnicode_AsUTF8AndSize(shown.ptr(), nullptr) : nullptr;
    PyErr_Clear();
    made.wrong_ = text != nullptr ? text : "an object whose repr() fails";
    return made;
  }

  void check() const {
    if (wrong_.empty()) return;
    throw Error(ErrorCode::invalid_argument,
                std::string(kName.text) + " is " + wrong_ + "; expected an integer from 0 to 2^63");
  }
  operator std::uint64_t() const {
    check();
    return value_;
  }

 private:
  static constexpr std::uint64_t kMost = std::uint64_t{1} << 63;

  std::uint64_t value_ = 0;
  std::string wrong_;  ///< repr of an invalid value
};

}  // namespace penstock::python

namespace nanobind::detail {

template <penstock::python::ArgumentName kName>
struct type_caster<penstock::python::Natural<kName>> {
  NB_TYPE_CASTER(penstock::python::Natural<kName>, const_name("int"))

  bool from_python(handle source, uint8_t, cleanup_list*) noexcept {
    value = penstock::python::Natural<kName>::of(source);
    return true;
  }
};

}  // namespace nanobind::detail
