# The MPI ABIs that src/mpi is built for. Each installation in PENSTOCK_MPI_ROOTS, a CMake or environment variable,
# adds the ABIs whose header and library it holds: `mpich`, `openmpi`, and `abi`, the standard ABI of MPI 5.0. Without
# it, the MPI that CMake finds is used.
#
# penstock_mpi_abis: list of these. Each has the targets penstock_mpi_<abi>_headers and penstock_mpi_<abi>, which adds the
# library.
set(penstock_mpi_abis "")

function(penstock_add_abi abi root library include header)
  if(abi IN_LIST penstock_mpi_abis)
    return()
  endif()
  add_library(penstock_mpi_${abi}_headers INTERFACE)
  target_include_directories(penstock_mpi_${abi}_headers SYSTEM INTERFACE ${include})
  target_compile_definitions(penstock_mpi_${abi}_headers INTERFACE OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX
                                                                   PENSTOCK_MPI_HEADER=<${header}>
                                                                   PENSTOCK_MPI_ABI="${abi}")
  add_library(penstock_mpi_${abi} INTERFACE)
  target_link_libraries(penstock_mpi_${abi} INTERFACE penstock_mpi_${abi}_headers ${library})
  message(STATUS "MPI ABI ${abi}: ${library}")
  set(penstock_mpi_abis ${penstock_mpi_abis} ${abi} PARENT_SCOPE)
endfunction()

set(_roots ${PENSTOCK_MPI_ROOTS})
if(NOT _roots)
  set(_roots $ENV{PENSTOCK_MPI_ROOTS})
endif()

if(NOT _roots)
  find_package(MPI QUIET COMPONENTS C)
  if(MPI_C_FOUND)
    set(_abi mpich)
    foreach(_include ${MPI_C_INCLUDE_DIRS})
      if(EXISTS ${_include}/mpi.h)
        file(STRINGS ${_include}/mpi.h _is_openmpi REGEX "define OMPI_MAJOR_VERSION")
        if(_is_openmpi)
          set(_abi openmpi)
        endif()
      endif()
    endforeach()
    penstock_add_abi(${_abi} "" "${MPI_C_LIBRARIES}" "${MPI_C_INCLUDE_DIRS}" mpi.h)
    unset(_include)
  endif()
endif()

foreach(_root ${_roots})
  find_path(_include mpi.h PATHS ${_root}/include NO_DEFAULT_PATH NO_CACHE)
  find_library(_mpi mpi PATHS ${_root}/lib NO_DEFAULT_PATH NO_CACHE)
  find_library(_mpi_abi mpi_abi PATHS ${_root}/lib NO_DEFAULT_PATH NO_CACHE)
  if(_include AND _mpi)
    file(STRINGS ${_include}/mpi.h _is_openmpi REGEX "define OMPI_MAJOR_VERSION")
    if(_is_openmpi)
      penstock_add_abi(openmpi ${_root} ${_mpi} ${_include} mpi.h)
    else()
      penstock_add_abi(mpich ${_root} ${_mpi} ${_include} mpi.h)
    endif()
  endif()
  if(_include AND _mpi_abi AND EXISTS ${_include}/mpi_abi.h)
    penstock_add_abi(abi ${_root} ${_mpi_abi} ${_include} mpi_abi.h)
  endif()
  unset(_include)
  unset(_mpi)
  unset(_mpi_abi)
endforeach()
