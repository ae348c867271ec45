include(${CMAKE_CURRENT_LIST_DIR}/KindlingPrecompile.cmake)

# What every target of Kindling is built with. Properties of targets only: a project that takes Kindling in with
# add_subdirectory keeps its own flags.
function(kindling_target target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(${target} PROPERTIES
    CXX_EXTENSIONS OFF
    POSITION_INDEPENDENT_CODE ON
    CXX_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic)
  kindling_collect_less(${target})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    target_compile_options(${target} PRIVATE -Wno-restrict)  # false for std::string in GCC 12 (its bug 105329)
  endif()
  if(KINDLING_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${KINDLING_SANITIZE} -fno-sanitize-recover=undefined
                                             -fno-omit-frame-pointer
      $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>  # false under sanitizers
      $<$<CXX_COMPILER_ID:Clang>:-fno-sanitize=function>)  # NVML's functions are called with types of our own
    if(CMAKE_CXX_COMPILER_ID MATCHES "Clang" AND KINDLING_SANITIZE MATCHES "address")
      target_compile_definitions(${target} PRIVATE __SANITIZE_ADDRESS__=1)  # as GCC does
    endif()
    target_link_options(${target} PRIVATE -fsanitize=${KINDLING_SANITIZE})
  endif()
endfunction()

# kindling_share_precompiled(<target>... HEADERS <header>...): kindling_precompile_headers for targets of Kindling itself, in optimized
# builds. In a build of type Debug each source reads its headers itself, so that the presets dev and asan find an include that is
# missing, and tools such as clang-tidy can follow the compiler's commands.
function(kindling_share_precompiled)
  if(KINDLING_PRECOMPILE_HEADERS AND CMAKE_BUILD_TYPE MATCHES "^(Release|RelWithDebInfo|MinSizeRel)$")
    kindling_precompile_headers(${ARGN})
  endif()
endfunction()
