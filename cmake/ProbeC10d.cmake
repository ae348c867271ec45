# Sets KINDLING_HAS_C10D: whether the engine of torch.distributed can be reached, whose header names types of Gloo's that LibTorch's
# packages do not declare (src/distributed/gloo_declarations does).
include(CheckCXXSourceCompiles)
function(kindling_probe_c10d declarations)
  set(CMAKE_REQUIRED_INCLUDES
      ${declarations} ${LibTorch_ROOT_DIR}/include ${LibTorch_ROOT_DIR}/include/torch/csrc/api/include)
  set(CMAKE_REQUIRED_DEFINITIONS -DUSE_DISTRIBUTED -DUSE_C10D_GLOO)
  set(CMAKE_REQUIRED_FLAGS -std=c++20)
  set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
  check_cxx_source_compiles("
    #include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
    c10::intrusive_ptr<c10d::Backend> join(const c10::intrusive_ptr<c10d::Store>& store) {
      auto options = c10d::ProcessGroupGloo::Options::create();
      options->devices.push_back(c10d::ProcessGroupGloo::createDefaultDevice());
      return c10::make_intrusive<c10d::ProcessGroupGloo>(store, 0, 1, options);
    }" KINDLING_HAS_C10D)
endfunction()

# Sets KINDLING_HAS_NCCL: whether its engine for CUDA can be reached, and KINDLING_NCCL_INCLUDE_DIRS: NCCL's header and those of CUDA's
# libraries that it reads, from a toolkit or from packages beside LibTorch's.
function(kindling_probe_nccl)
  find_path(KINDLING_NCCL_INCLUDE_DIR nccl.h HINTS ${LibTorch_ROOT_DIR}/../nvidia/nccl/include)
  set(directories ${KINDLING_CUDA_INCLUDE_DIR} ${LibTorch_CUDA_INCLUDE_DIRS})
  if(KINDLING_NCCL_INCLUDE_DIR)
    list(APPEND directories ${KINDLING_NCCL_INCLUDE_DIR})
  endif()
  # Since CUDA 13 headers of the toolkit ask for <nv/target>, which lies one folder deeper; nvcc alone looks there by itself.
  foreach(directory ${directories})
    if(EXISTS ${directory}/cccl/nv/target)
      list(APPEND directories ${directory}/cccl)
    endif()
  endforeach()
  set(CMAKE_REQUIRED_INCLUDES
      ${LibTorch_ROOT_DIR}/include ${LibTorch_ROOT_DIR}/include/torch/csrc/api/include ${directories})
  set(CMAKE_REQUIRED_DEFINITIONS -DUSE_DISTRIBUTED -DUSE_C10D_NCCL)
  set(CMAKE_REQUIRED_FLAGS -std=c++20)
  set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
  check_cxx_source_compiles("
    #include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
    c10::intrusive_ptr<c10d::Backend> join(const c10::intrusive_ptr<c10d::Store>& store) {
      return c10::make_intrusive<c10d::ProcessGroupNCCL>(store, 0, 1, c10d::ProcessGroupNCCL::Options::create());
    }" KINDLING_HAS_NCCL)
  if(NOT KINDLING_HAS_NCCL)
    message(NOTICE "-- Kindling: nccl.h or a header of CUDA's libraries is missing: several GPUs cannot train together "
                   "(from pip: nvidia-nccl-cu13, nvidia-cuda-cccl and nvidia-cuda-crt, for its CUDA 13; then configure with --fresh)")
  endif()
  set(KINDLING_NCCL_INCLUDE_DIRS ${directories} PARENT_SCOPE)
endfunction()
