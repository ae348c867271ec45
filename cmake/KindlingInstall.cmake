# What `cmake --install` puts where, and the package that find_package(kindling) finds there.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
include(KindlingRuntime)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/kindling)

# Next to the program or library first, then LibTorch: where it was found, or for a wheel, whose prefix is site-packages/kindling, in
# the package torch next to it.
set(libtorch_lib ${LibTorch_ROOT_DIR}/lib)
set(KINDLING_PC_LIBTORCH ${LibTorch_ROOT_DIR})
set(KINDLING_CONFIG_LIBTORCH ${LibTorch_ROOT_DIR})
if(KINDLING_WHEEL)
  set(libtorch_lib $ORIGIN/../../torch/lib)
  set(KINDLING_PC_LIBTORCH "\${prefix}/../torch")
  set(KINDLING_CONFIG_LIBTORCH "\${PACKAGE_PREFIX_DIR}/../torch")
  string(REGEX MATCH "^[0-9]+\\.[0-9]+" libtorch_minor "${LibTorch_VERSION}")
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/_built_with.py CONTENT "LIBTORCH_MINOR = \"${libtorch_minor}\"\n")
  install(FILES ${PROJECT_BINARY_DIR}/_built_with.py DESTINATION .)
endif()
set_target_properties(kindling PROPERTIES INSTALL_RPATH "$ORIGIN;${libtorch_lib}")
install(TARGETS kindling EXPORT kindlingTargets)
install(TARGETS kindling_fast_mkl EXPORT kindlingTargets OBJECTS DESTINATION ${CMAKE_INSTALL_LIBDIR}/kindling)
install(FILES ${PROJECT_SOURCE_DIR}/include/kindling_mpi.h TYPE INCLUDE)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/kindling TYPE INCLUDE PATTERN program EXCLUDE PATTERN cli EXCLUDE)
if(KINDLING_BUILD_PROGRAM)
  file(RELATIVE_PATH to_libraries /${CMAKE_INSTALL_BINDIR} /${CMAKE_INSTALL_LIBDIR})
  set_target_properties(kindling_app PROPERTIES
    INSTALL_RPATH "$ORIGIN/${to_libraries};${libtorch_lib}")
  install(TARGETS kindling_app)
  install(TARGETS kindling_program EXPORT kindlingTargets)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/kindling/program ${PROJECT_SOURCE_DIR}/include/kindling/cli
    DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/kindling)
  set_target_properties(kindling_c PROPERTIES INSTALL_RPATH "$ORIGIN;${libtorch_lib}")
  set_target_properties(kindling_fortran PROPERTIES EXPORT_NAME fortran)
  set_target_properties(kindling_fortran_mpi PROPERTIES EXPORT_NAME fortran_mpi)
  install(TARGETS kindling_c kindling_fortran kindling_fortran_mpi EXPORT kindlingTargets)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/src/bindings/fortran DESTINATION ${CMAKE_INSTALL_DATADIR}/kindling)
  install(FILES ${PROJECT_SOURCE_DIR}/include/kindling_c.h ${PROJECT_SOURCE_DIR}/include/kindling_c_mpi.h TYPE INCLUDE)
  kindling_install_runtime(kindling_app)
endif()
install(EXPORT kindlingTargets NAMESPACE kindling:: DESTINATION ${package_dir})

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/kindlingConfig.cmake.in
  ${PROJECT_BINARY_DIR}/kindlingConfig.cmake INSTALL_DESTINATION ${package_dir})
# Before 1.0 a new minor version may change anything.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/kindlingConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES
  ${PROJECT_BINARY_DIR}/kindlingConfig.cmake ${PROJECT_BINARY_DIR}/kindlingConfigVersion.cmake
  ${PROJECT_SOURCE_DIR}/cmake/FindLibTorch.cmake ${PROJECT_SOURCE_DIR}/cmake/LibTorchNeeds.cmake
  ${PROJECT_SOURCE_DIR}/cmake/KindlingPrecompile.cmake ${PROJECT_SOURCE_DIR}/cmake/KindlingRuntime.cmake
  DESTINATION ${package_dir})

# For build systems that ask pkg-config.
file(RELATIVE_PATH KINDLING_PC_TO_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" KINDLING_PC_TO_PREFIX "${KINDLING_PC_TO_PREFIX}")
configure_file(${PROJECT_SOURCE_DIR}/cmake/kindling.pc.in ${PROJECT_BINARY_DIR}/kindling.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/kindling.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
if(TARGET kindling_c)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/kindling_c.pc.in ${PROJECT_BINARY_DIR}/kindling_c.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/kindling_c.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endif()
