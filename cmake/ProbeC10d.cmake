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
