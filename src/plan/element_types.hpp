// The element types of source and target of a step that moves blocks.
#pragma once

#include "kernels/arithmetic.hpp"
#include "penstock/plan.hpp"

namespace penstock::plan {

inline kernels::ElementTypes element_types(const Arithmetic& arithmetic, const Step& step) {
  const DType input = arithmetic.input_dtype.value_or(arithmetic.dtype);
  const DType wire = kernels::wire_dtype(input, arithmetic.dtype);
  const auto of = [&](Buffer buffer) {
    return buffer == Buffer::input ? input : buffer == Buffer::output ? arithmetic.dtype : wire;
  };
  return {of(step.from.buffer), of(step.to.buffer)};
}

}  // namespace penstock::plan
