# Finds LibTorch 2.11 or newer and defines the imported target LibTorch::LibTorch. A version newer than the tested ones gives a
# warning.
#
# Looked for in this order: the variable or environment variable LIBTORCH (an unpacked LibTorch or the folder `torch` of
# a Python package), Torch_DIR or CMAKE_PREFIX_PATH (as find_package takes them), the `torch` of the Python on the PATH.
#
# A CUDA build of LibTorch comes in three situations:
#   - libraries that it needs are missing (on a machine without a GPU, for example): its CPU part alone is linked;
#   - they are there, but no CUDA toolkit is: LibTorch's own TorchConfig would end in a fatal error, so the same targets
#     are defined here by hand;
#   - with a toolkit, TorchConfig is told where it is.
# LIBTORCH_CUDA says otherwise: ON links CUDA without asking what is missing, OFF takes the CPU part alone.
#
# Sets LibTorch_FOUND, LibTorch_VERSION, LibTorch_ROOT_DIR, LibTorch_HAS_CUDA (whether its CUDA part is linked) and
# LibTorch_CUDA_INCLUDE_DIRS (of a CUDA build).

set(LibTorch_MIN_VERSION 2.11)
set(LibTorch_TESTED_VERSION 2.15)  # the newest minor version that scripts/check_libtorch_versions.sh tests
set(LIBTORCH_CUDA AUTO CACHE STRING "Link the CUDA part of LibTorch: AUTO (where it can be loaded), ON or OFF")
set_property(CACHE LIBTORCH_CUDA PROPERTY STRINGS AUTO ON OFF)

function(_libtorch_locate result)
  if(LIBTORCH)
    set(root ${LIBTORCH})
  elseif(DEFINED ENV{LIBTORCH} AND NOT "$ENV{LIBTORCH}" STREQUAL "")
    set(root $ENV{LIBTORCH})
  else()
    find_path(LibTorch_CONFIG_DIR TorchConfig.cmake
      HINTS ${Torch_DIR} $ENV{Torch_DIR}
      PATH_SUFFIXES share/cmake/Torch Torch)
    if(LibTorch_CONFIG_DIR)
      get_filename_component(root ${LibTorch_CONFIG_DIR}/../../.. ABSOLUTE)
    else()
      find_program(LibTorch_PYTHON NAMES python3 python)
      if(LibTorch_PYTHON)
        execute_process(
          COMMAND ${LibTorch_PYTHON} -c
            "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
          OUTPUT_VARIABLE root OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
      endif()
    endif()
  endif()
  set(${result} "${root}" PARENT_SCOPE)
endfunction()

function(_libtorch_version root result)
  set(text "")
  if(EXISTS ${root}/include/torch/headeronly/version.h)
    file(READ ${root}/include/torch/headeronly/version.h text)
  elseif(EXISTS ${root}/include/torch/csrc/api/include/torch/version.h)
    file(READ ${root}/include/torch/csrc/api/include/torch/version.h text)
  endif()
  set(version "")
  foreach(part MAJOR MINOR PATCH)
    if(text MATCHES "define TORCH_VERSION_${part} ([0-9]+)")
      list(APPEND version ${CMAKE_MATCH_1})
    endif()
  endforeach()
  list(JOIN version "." version)
  set(${result} "${version}" PARENT_SCOPE)
endfunction()

# Ends with an error for a LibTorch that cannot be used.
function(_libtorch_check root)
  if(NOT EXISTS ${root}/lib/libtorch_cpu.so)
    message(FATAL_ERROR "LibTorch: '${root}' has no lib/libtorch_cpu.so. Set LIBTORCH to an unpacked LibTorch or to the "
                        "folder `torch` of a Python package.")
  endif()
  _libtorch_version(${root} version)
  if(version VERSION_LESS LibTorch_MIN_VERSION)
    message(FATAL_ERROR "LibTorch: ${root} is version '${version}', expected ${LibTorch_MIN_VERSION} or newer. Run "
                        "`pip install torch`, or set LIBTORCH to a newer one.")
  endif()
  string(REGEX MATCH "^[0-9]+\\.[0-9]+" minor "${version}")
  if(minor VERSION_GREATER LibTorch_TESTED_VERSION)
    message(WARNING "LibTorch: ${root} is version ${version}; Kindling is tested with ${LibTorch_MIN_VERSION} to "
                    "${LibTorch_TESTED_VERSION}. If it does not build or its tests fail, set LIBTORCH to one of these.")
  endif()
  # std::string has two layouts in libstdc++; with the wrong one nothing links, and the linker does not say why.
  file(STRINGS ${root}/lib/libc10.so new_strings REGEX "__cxx11" LIMIT_COUNT 1)
  if(NOT new_strings)
    message(FATAL_ERROR "LibTorch: ${root} was built with the old layout of std::string (_GLIBCXX_USE_CXX11_ABI=0), expected "
                        "the new one. Take a package from pip, or the `cxx11 ABI` file of LibTorch.")
  endif()
  if(CMAKE_CXX_FLAGS MATCHES "_GLIBCXX_USE_CXX11_ABI=0")
    message(FATAL_ERROR "LibTorch: CMAKE_CXX_FLAGS ask for the old layout of std::string (_GLIBCXX_USE_CXX11_ABI=0), but "
                        "${root} has the new one. Leave that flag out.")
  endif()
endfunction()

# What libtorch_cuda.so needs and this machine does not have.
function(_libtorch_missing_for_cuda root result)
  set(folders ${CUDAToolkit_LIBRARY_DIR})
  string(REPLACE ":" ";" from_environment "$ENV{LD_LIBRARY_PATH}")
  execute_process(
    COMMAND ${CMAKE_COMMAND} -DLIBRARY=${root}/lib/libtorch_cuda.so "-DFOLDERS=${folders};${from_environment}"
            -P ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/LibTorchNeeds.cmake
    OUTPUT_VARIABLE missing OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  set(${result} "${missing}" PARENT_SCOPE)
endfunction()

# Sets `result` to the folders with CUDA's headers, and `missing` to a header that is in none of them, though the runtime's
# are. From CUDA 13 on, pip's package of the runtime needs a header of the compiler's package, which pip does not install
# with torch; Triton, which it does install, has a copy.
function(_libtorch_cuda_headers root result missing)
  set(header crt/host_config.h)
  file(GLOB folders ${root}/../nvidia/*/include)
  list(APPEND folders ${CUDAToolkit_INCLUDE_DIRS})
  find_file(_libtorch_header ${header} PATHS ${folders} NO_DEFAULT_PATH NO_CACHE)
  find_file(_libtorch_runtime cuda_runtime_api.h PATHS ${folders} NO_DEFAULT_PATH NO_CACHE)
  set(${missing} "" PARENT_SCOPE)
  if(NOT _libtorch_header AND EXISTS ${root}/../triton/backends/nvidia/include/${header})
    list(APPEND folders ${root}/../triton/backends/nvidia/include)  # last, so that all else is of the right version
  elseif(NOT _libtorch_header AND _libtorch_runtime)
    set(${missing} "the header ${header} (`pip install nvidia-cuda-crt`, of the version of CUDA)" PARENT_SCOPE)
  endif()
  set(${result} ${folders} PARENT_SCOPE)
endfunction()

# The same targets as TorchConfig's, made without asking for a CUDA toolkit.
function(_libtorch_by_hand root has_cuda)
  set(libraries torch_cpu c10)
  if(has_cuda)
    list(APPEND libraries c10_cuda torch_cuda)
  endif()
  foreach(name ${libraries})
    add_library(${name} SHARED IMPORTED GLOBAL)
    set_target_properties(${name} PROPERTIES IMPORTED_LOCATION ${root}/lib/lib${name}.so)
  endforeach()
  add_library(torch INTERFACE IMPORTED GLOBAL)
  target_include_directories(torch SYSTEM INTERFACE ${root}/include ${root}/include/torch/csrc/api/include)
  target_compile_definitions(torch INTERFACE USE_DISTRIBUTED USE_C10D_GLOO)
  target_compile_features(torch INTERFACE cxx_std_20)
  target_link_options(torch INTERFACE -Wl,--allow-shlib-undefined)
  file(GLOB nvidia_libs ${root}/../nvidia/*/lib)
  foreach(folder ${nvidia_libs})
    target_link_options(torch INTERFACE -Wl,-rpath-link,${folder})
  endforeach()
  target_link_libraries(torch INTERFACE torch_cpu c10)
  if(has_cuda)
    target_include_directories(torch SYSTEM INTERFACE ${LibTorch_CUDA_INCLUDE_DIRS})
    target_compile_definitions(torch INTERFACE USE_C10D_NCCL)
    # Nothing refers to torch_cuda by name: it registers itself when it is loaded.
    target_link_libraries(torch INTERFACE c10_cuda -Wl,--push-state,--no-as-needed torch_cuda -Wl,--pop-state)
  endif()
endfunction()

# A macro: what TorchConfig sets belongs to the caller.
macro(_libtorch_by_torch_config root)
  if(CUDAToolkit_FOUND)
    # TorchConfig needs both; without them its search for the toolkit and for an architecture fails.
    get_filename_component(CUDA_TOOLKIT_ROOT_DIR ${CUDAToolkit_BIN_DIR}/.. ABSOLUTE)
    if(NOT DEFINED TORCH_CUDA_ARCH_LIST AND NOT DEFINED ENV{TORCH_CUDA_ARCH_LIST})
      set(TORCH_CUDA_ARCH_LIST 9.0)  # of CUDA sources, which Kindling has none of
    endif()
  endif()
  # A static library that is not in the packages: libtorch_cpu.so has it inside. Looked for, it would be warned of.
  cmake_policy(PUSH)
  cmake_policy(SET CMP0125 NEW)  # find_library takes what is set
  set(kineto_LIBRARY torch)
  find_package(Torch REQUIRED CONFIG PATHS ${root} NO_DEFAULT_PATH)
  unset(kineto_LIBRARY)
  cmake_policy(POP)
endmacro()

_libtorch_locate(LibTorch_ROOT_DIR)
if(LibTorch_ROOT_DIR)
  get_filename_component(LibTorch_ROOT_DIR "${LibTorch_ROOT_DIR}" ABSOLUTE)
  _libtorch_check(${LibTorch_ROOT_DIR})
  _libtorch_version(${LibTorch_ROOT_DIR} LibTorch_VERSION)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch
  REQUIRED_VARS LibTorch_ROOT_DIR
  VERSION_VAR LibTorch_VERSION
  REASON_FAILURE_MESSAGE "`pip install torch`, or set LIBTORCH to an unpacked LibTorch")

if(LibTorch_FOUND AND NOT TARGET LibTorch::LibTorch)
  # What is found must reach every folder of a project, also the one that takes Kindling in with add_subdirectory.
  set(_libtorch_targets_global ${CMAKE_FIND_PACKAGE_TARGETS_GLOBAL})
  set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)
  set(LibTorch_HAS_CUDA OFF)
  if(EXISTS ${LibTorch_ROOT_DIR}/lib/libtorch_cuda.so)
    find_package(CUDAToolkit QUIET)
    _libtorch_cuda_headers(${LibTorch_ROOT_DIR} LibTorch_CUDA_INCLUDE_DIRS _libtorch_missing_header)
    set(LibTorch_HAS_CUDA ${LIBTORCH_CUDA})
    if(LIBTORCH_CUDA STREQUAL "AUTO")
      _libtorch_missing_for_cuda(${LibTorch_ROOT_DIR} _libtorch_missing)
      if(NOT _libtorch_missing)
        set(_libtorch_missing ${_libtorch_missing_header})
      endif()
      if(_libtorch_missing)
        message(STATUS "LibTorch: a CUDA build, but this machine lacks ${_libtorch_missing}: its CPU part alone is linked "
                       "(LIBTORCH_CUDA=ON links CUDA all the same)")
        set(LibTorch_HAS_CUDA OFF)
      else()
        set(LibTorch_HAS_CUDA ON)
      endif()
    endif()
    if(LibTorch_HAS_CUDA AND CUDAToolkit_FOUND)
      _libtorch_by_torch_config(${LibTorch_ROOT_DIR})
    else()
      _libtorch_by_hand(${LibTorch_ROOT_DIR} ${LibTorch_HAS_CUDA})
    endif()
  else()
    _libtorch_by_torch_config(${LibTorch_ROOT_DIR})
  endif()
  add_library(LibTorch::LibTorch INTERFACE IMPORTED GLOBAL)
  set_target_properties(LibTorch::LibTorch PROPERTIES INTERFACE_LINK_LIBRARIES torch)
  set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ${_libtorch_targets_global})
endif()
