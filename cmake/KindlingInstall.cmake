# What `cmake --install` puts where, and the package that find_package(kindling) finds there.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
include(KindlingRuntime)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/kindling)

# Beside the program or library first, then LibTorch where it was found.
set_target_properties(kindling PROPERTIES INSTALL_RPATH "$ORIGIN;${LibTorch_ROOT_DIR}/lib")
install(TARGETS kindling EXPORT kindlingTargets)
install(TARGETS kindling_fast_mkl EXPORT kindlingTargets OBJECTS DESTINATION ${CMAKE_INSTALL_LIBDIR}/kindling)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/kindling TYPE INCLUDE PATTERN program EXCLUDE)
if(KINDLING_BUILD_PROGRAM)
  file(RELATIVE_PATH to_libraries /${CMAKE_INSTALL_BINDIR} /${CMAKE_INSTALL_LIBDIR})
  set_target_properties(kindling_app PROPERTIES
    INSTALL_RPATH "$ORIGIN/${to_libraries};${LibTorch_ROOT_DIR}/lib")
  install(TARGETS kindling_app)
  install(TARGETS kindling_program EXPORT kindlingTargets)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/kindling/program DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/kindling)
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
  ${PROJECT_SOURCE_DIR}/cmake/KindlingRuntime.cmake
  DESTINATION ${package_dir})
