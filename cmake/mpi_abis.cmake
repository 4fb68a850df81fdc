# The MPI ABIs that src/mpi is built for. Each installation in PENSTOCK_MPI_ROOTS (or the one around mpicc) adds the
# ABIs whose header and library it holds: `mpich`, `openmpi`, and `abi`, the standard ABI of MPI 5.0.
#
# penstock_mpi_targets: list of imported targets penstock_mpi_<abi>.
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
  target_link_libraries(penstock_mpi_${abi}_headers INTERFACE ${library})
  message(STATUS "MPI ABI ${abi}: ${library}")
  set(penstock_mpi_abis ${penstock_mpi_abis} ${abi} PARENT_SCOPE)
endfunction()

if(NOT PENSTOCK_MPI_ROOTS)
  find_program(PENSTOCK_MPICC mpicc)
  if(PENSTOCK_MPICC)
    get_filename_component(_bin ${PENSTOCK_MPICC} DIRECTORY)
    get_filename_component(_roots ${_bin} DIRECTORY)
  endif()
else()
  set(_roots ${PENSTOCK_MPI_ROOTS})
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
