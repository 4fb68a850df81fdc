# Installation: libraries, headers, the CMake package (find_package(penstock)) and pkg-config files. A wheel takes its
# files from python/CMakeLists.txt instead.
include(CMakePackageConfigHelpers)

set(installed penstock)
foreach(abi ${penstock_mpi_abis})
  if(TARGET penstock_${abi})
    list(APPEND installed penstock_${abi})
    set_target_properties(penstock_${abi} PROPERTIES EXPORT_NAME ${abi} INSTALL_RPATH "$ORIGIN")
    list(APPEND installed penstock_preload_${abi})
    set_target_properties(penstock_preload_${abi} PROPERTIES EXPORT_NAME preload_${abi} INSTALL_RPATH "$ORIGIN")
    foreach(width scalapack scalapack_ilp64)
      list(APPEND installed penstock_${width}_${abi})
      set_target_properties(penstock_${width}_${abi} PROPERTIES EXPORT_NAME ${width}_${abi} INSTALL_RPATH "$ORIGIN")
    endforeach()
  endif()
endforeach()
install(TARGETS ${installed} EXPORT penstock LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library)
install(DIRECTORY include/penstock DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT library)

if(TARGET penstock-simgrid)
  install(TARGETS penstock-simgrid RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT simgrid)
endif()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/penstock)
install(EXPORT penstock NAMESPACE penstock:: FILE penstockTargets.cmake DESTINATION ${package_dir} COMPONENT library)
configure_package_config_file(cmake/penstockConfig.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/penstockConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/penstockConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/penstockConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/penstockConfigVersion.cmake
        DESTINATION ${package_dir} COMPONENT library)

# penstock.pc for the library, penstock-<abi>.pc for programs that are compiled with that MPI's own mpicc,
# penstock-preload-<abi>.pc, whose library goes before MPI's, and penstock-scalapack-<abi>.pc, whose goes before ScaLAPACK's.
file(RELATIVE_PATH pc_to_prefix /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
string(REGEX REPLACE "/$" "" pc_to_prefix "${pc_to_prefix}")
foreach(target ${installed})
  set(pc_definitions " -DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX") # the C++ bindings that MPI has lost
  if(target STREQUAL penstock)
    set(pc_definitions "")
    set(pc_name penstock)
    set(pc_description "Keeps parallel programs fed: data movement behind computation")
    set(pc_requires "")
  elseif(target MATCHES "^penstock_(scalapack|scalapack_ilp64)_([^_]*)$")
    string(REPLACE "_" "-" pc_name ${target})
    set(pc_description "ScaLAPACK's redistribution routines over Penstock; link it before ScaLAPACK")
    set(pc_requires "penstock-${CMAKE_MATCH_2} = ${PROJECT_VERSION}")
  elseif(target MATCHES "^penstock_preload_(.*)$")
    set(pc_name penstock-preload-${CMAKE_MATCH_1})
    set(pc_description "MPI's collectives over Penstock, for programs without a change; link it before MPI")
    set(pc_requires "penstock = ${PROJECT_VERSION}")
  else()
    string(REPLACE "penstock_" "penstock-" pc_name ${target})
    set(pc_description "Penstock's communicators over MPI, ABI ${pc_name}")
    set(pc_requires "penstock = ${PROJECT_VERSION}")
  endif()
  set(pc_library ${target})
  configure_file(cmake/penstock.pc.in ${CMAKE_CURRENT_BINARY_DIR}/${pc_name}.pc @ONLY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${pc_name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
          COMPONENT library)
endforeach()
