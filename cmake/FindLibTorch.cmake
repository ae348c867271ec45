# Finds LibTorch 2.11 to 2.13 and defines the imported target LibTorch::LibTorch.
#
# Looked for in this order: the variable or environment variable LIBTORCH (an unpacked LibTorch or the folder `torch` of
# a Python package), Torch_DIR or CMAKE_PREFIX_PATH (as find_package takes them), the `torch` of the Python on the PATH.
#
# LibTorch's own TorchConfig ends in a fatal error for a CUDA build on a machine without the CUDA toolkit, so for such
# a machine the same targets are defined here by hand.

set(LibTorch_MIN_VERSION 2.11)
set(LibTorch_END_VERSION 2.14)

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

# The same targets as TorchConfig's, for a CUDA build where no CUDA toolkit is installed.
function(_libtorch_by_hand root)
  file(GLOB nvidia_libs ${root}/../nvidia/*/lib)
  foreach(name c10 torch_cpu c10_cuda torch_cuda)
    if(NOT TARGET ${name})
      add_library(${name} SHARED IMPORTED GLOBAL)
      set_target_properties(${name} PROPERTIES IMPORTED_LOCATION ${root}/lib/lib${name}.so)
    endif()
  endforeach()
  if(NOT TARGET torch)
    add_library(torch INTERFACE IMPORTED GLOBAL)
    target_include_directories(torch SYSTEM INTERFACE ${root}/include ${root}/include/torch/csrc/api/include)
    target_compile_definitions(torch INTERFACE USE_DISTRIBUTED USE_C10D_GLOO)
    target_compile_features(torch INTERFACE cxx_std_20)
    # Nothing refers to torch_cuda by name: it registers itself when it is loaded.
    target_link_options(torch INTERFACE -Wl,--allow-shlib-undefined)
    foreach(dir ${nvidia_libs})
      target_link_options(torch INTERFACE -Wl,-rpath-link,${dir})
    endforeach()
    target_link_libraries(torch INTERFACE
      torch_cpu c10 c10_cuda -Wl,--push-state,--no-as-needed torch_cuda -Wl,--pop-state)
  endif()
endfunction()

_libtorch_locate(LibTorch_ROOT_DIR)
if(LibTorch_ROOT_DIR AND NOT EXISTS ${LibTorch_ROOT_DIR}/lib/libtorch_cpu.so)
  message(FATAL_ERROR "LibTorch: '${LibTorch_ROOT_DIR}' has no lib/libtorch_cpu.so. Set LIBTORCH to an unpacked LibTorch "
                      "or to the folder `torch` of a Python package.")
endif()
if(LibTorch_ROOT_DIR)
  _libtorch_version(${LibTorch_ROOT_DIR} LibTorch_VERSION)
  if(LibTorch_VERSION VERSION_LESS LibTorch_MIN_VERSION OR NOT LibTorch_VERSION VERSION_LESS LibTorch_END_VERSION)
    message(FATAL_ERROR "LibTorch: found version '${LibTorch_VERSION}' in ${LibTorch_ROOT_DIR}, wanted 2.11 to 2.13. "
                        "`pip install torch==2.13.0`, or set LIBTORCH to another one.")
  endif()
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch
  REQUIRED_VARS LibTorch_ROOT_DIR
  VERSION_VAR LibTorch_VERSION
  REASON_FAILURE_MESSAGE "`pip install torch==2.13.0`, or set LIBTORCH to an unpacked LibTorch")

if(LibTorch_FOUND AND NOT TARGET LibTorch::LibTorch)
  if(EXISTS ${LibTorch_ROOT_DIR}/lib/libtorch_cuda.so)
    find_package(CUDAToolkit QUIET)
  endif()
  if(EXISTS ${LibTorch_ROOT_DIR}/lib/libtorch_cuda.so AND NOT CUDAToolkit_FOUND)
    message(STATUS "LibTorch: a CUDA build without a CUDA toolkit on this machine; its targets are defined by hand")
    _libtorch_by_hand(${LibTorch_ROOT_DIR})
  else()
    if(CUDAToolkit_FOUND)
      # TorchConfig needs both; without them its search for the toolkit and for an architecture fails.
      get_filename_component(CUDA_TOOLKIT_ROOT_DIR ${CUDAToolkit_BIN_DIR}/.. ABSOLUTE)
      if(NOT DEFINED TORCH_CUDA_ARCH_LIST AND NOT DEFINED ENV{TORCH_CUDA_ARCH_LIST})
        set(TORCH_CUDA_ARCH_LIST 9.0)
      endif()
    endif()
    find_package(Torch REQUIRED CONFIG PATHS ${LibTorch_ROOT_DIR} NO_DEFAULT_PATH)
  endif()
  add_library(LibTorch::LibTorch INTERFACE IMPORTED GLOBAL)
  set_target_properties(LibTorch::LibTorch PROPERTIES INTERFACE_LINK_LIBRARIES torch)
endif()
