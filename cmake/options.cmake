option(PENSTOCK_TESTS "Build the C++ tests" ${PROJECT_IS_TOP_LEVEL})
option(PENSTOCK_PYTHON "Build the Python extension module" OFF)
option(PENSTOCK_HWLOC "Read the topology of the machine by hwloc, where it is installed" ON)
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
endif()

if(PENSTOCK_SANITIZE)
  add_compile_options(-fsanitize=${PENSTOCK_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=undefined)
  add_link_options(-fsanitize=${PENSTOCK_SANITIZE})
endif()
