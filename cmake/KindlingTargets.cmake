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
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    target_compile_options(${target} PRIVATE -Wno-restrict)  # false for std::string in GCC 12 (its bug 105329)
  endif()
  if(KINDLING_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${KINDLING_SANITIZE} -fno-sanitize-recover=undefined
                                             -fno-omit-frame-pointer
      $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)  # false under sanitizers
    target_link_options(${target} PRIVATE -fsanitize=${KINDLING_SANITIZE})
  endif()
endfunction()
