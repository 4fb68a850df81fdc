if(PROJECT_IS_TOP_LEVEL AND NOT DEFINED PENSTOCK_TESTS)
  find_package(GTest QUIET)
endif()
option(PENSTOCK_TESTS "Build the C++ tests, which need GoogleTest" ${GTest_FOUND})
option(PENSTOCK_PYTHON "Build the Python extension module" OFF)
option(PENSTOCK_PRECOMPILE "Read the standard headers once for all files; hides a missing #include" ON)
option(PENSTOCK_HWLOC "Read the topology of the machine by hwloc, where it is installed" ON)
option(PENSTOCK_SIMGRID "Build what penstock simulate runs, where SimGrid is installed" ON)
set(PENSTOCK_SANITIZE "" CACHE STRING "Sanitizers for everything that is built: address,undefined or thread")
set(PENSTOCK_MPI_ROOTS "" CACHE STRING
    "Installations of MPI to build for, a list of prefixes with include/ and lib/; empty: whatever mpicc is found")

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
  if(PENSTOCK_PRECOMPILE)
    list(PREPEND CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros)
  endif()
endif()

# Ranks choose algorithms by computed costs, and promise sums of the same bits: a product and a sum are rounded one after the
# other everywhere. Without more flags no x86-64 can do otherwise.
if(CMAKE_CXX_COMPILER_ID MATCHES "GNU|Clang" AND
   (NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64" OR CMAKE_CXX_FLAGS MATCHES "-m(arch|fma)"))
  add_compile_options(-ffp-contract=off)
endif()

if(PENSTOCK_SANITIZE)
  # A null pointer that is used stops the program without a check, and the checks are a fifth of the time to compile.
  add_compile_options(-fsanitize=${PENSTOCK_SANITIZE} -fno-sanitize=null -fno-omit-frame-pointer -fno-sanitize-recover=undefined)
  add_link_options(-fsanitize=${PENSTOCK_SANITIZE})
endif()
