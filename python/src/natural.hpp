// Arguments that count or number something.
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

/// An integer from 0 to 2^63. Whatever else is given is kept, and becomes an Error that names the argument when the
/// number is asked for: a call of all ranks can then fail on all of them, and no user reads signatures of the
/// extension's.
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
    // An object whose own repr() fails must not end the process from a caster, which may not throw.
    const nanobind::object shown = nanobind::steal(PyObject_Repr(given.ptr()));
    const char* text = shown.is_valid() ? PyUnicode_AsUTF8(shown.ptr()) : nullptr;
    PyErr_Clear();
    made.wrong_ = text != nullptr ? text : Py_TYPE(given.ptr())->tp_name;
    return made;
  }

  void check() const {
    if (wrong_.empty()) return;
    throw Error(ErrorCode::invalid_argument,
                std::string(kName.text) + " is " + wrong_ + ", expected an integer from 0 to 2^63");
  }
  operator std::uint64_t() const {
    check();
    return value_;
  }

 private:
  static constexpr std::uint64_t kMost = std::uint64_t{1} << 63;

  std::uint64_t value_ = 0;
  std::string wrong_;  ///< as it was given
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
