# A third of the time that a group of files takes to compile goes into reading the standard headers. Targets of one kind (object
# libraries, or programs: their code is generated differently) and one level of optimization share what was read once: with it
# GCC also takes over the level, which no warning says.
set(penstock_precompiled_headers
    <algorithm> <array> <atomic> <bit> <charconv> <chrono> <complex> <condition_variable> <cstring> <deque> <functional> <map>
    <memory> <mutex> <numeric> <optional> <random> <ranges> <set> <span> <string> <thread> <unordered_map> <vector>)

# penstock_precompile(target header…): the standard headers and these. The first target of a kind, which is told by the headers
# and the level, is the one that reads.
function(penstock_precompile target)
  if(NOT PENSTOCK_PRECOMPILE)
    return()
  endif()
  get_target_property(level ${target} PENSTOCK_LEVEL)
  string(MAKE_C_IDENTIFIER "penstock_precompiled_for_${level}_${ARGN}" reader)
  get_property(first GLOBAL PROPERTY ${reader})
  if(first)
    target_precompile_headers(${target} REUSE_FROM ${first})
  else()
    target_precompile_headers(${target} PRIVATE ${penstock_precompiled_headers} ${ARGN})
    set_property(GLOBAL PROPERTY ${reader} ${target})
  endif()
  # What the compiler cache needs to see through it. With them GCC 12 also sees overflows in std::string's operator+ that are
  # not there (GCC PR105329).
  set(options -fpch-preprocess -Wno-stringop-overflow -Wno-array-bounds)
  target_compile_options(${target} PRIVATE "$<$<CXX_COMPILER_ID:GNU>:${options}>")
endfunction()
