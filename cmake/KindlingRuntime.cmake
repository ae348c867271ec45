# kindling_install_runtime(<program> [COMPONENT <name>]): a component of the installation (`runtime` when not named) that holds
# the program and exactly the shared libraries that it needs beside those of the system: of LibTorch's, of Kindling's and
# its own. What it makes is a folder that runs elsewhere:
#
#   cmake --install build --component runtime --prefix dist --strip        →  dist/bin/<program>, dist/lib/lib*.so
#
# Not part of an installation of everything.
function(kindling_install_runtime program)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "COMPONENT" "")
  if(NOT arg_COMPONENT)
    set(arg_COMPONENT runtime)
  endif()
  get_target_property(rpath ${program} INSTALL_RPATH)
  if(NOT rpath)
    set_target_properties(${program} PROPERTIES INSTALL_RPATH $ORIGIN/../lib)
  endif()
  # A library that is built in the same project is no dependency that CMake would look up.
  get_target_property(is_installed kindling::kindling IMPORTED)
  if(NOT is_installed)
    set(own_libraries kindling)
  endif()
  install(TARGETS ${program} ${own_libraries} RUNTIME_DEPENDENCY_SET ${program}_runtime
    RUNTIME DESTINATION bin COMPONENT ${arg_COMPONENT} EXCLUDE_FROM_ALL
    LIBRARY DESTINATION lib COMPONENT ${arg_COMPONENT} EXCLUDE_FROM_ALL NAMELINK_SKIP)
  install(RUNTIME_DEPENDENCY_SET ${program}_runtime
    PRE_EXCLUDE_REGEXES "^libcuda\\.so"              # comes with the driver
    POST_INCLUDE_REGEXES "/lib(png16|jpeg|webp|sharpyuv|tiff|jbig|Lerc|deflate|zstd|lzma)\\.so"  # small systems lack them, and others have other versions
    POST_EXCLUDE_REGEXES "^/(usr/)?lib(64)?/"        # comes with the system
    LIBRARY DESTINATION lib COMPONENT ${arg_COMPONENT} EXCLUDE_FROM_ALL)
endfunction()
