# Configures a project with LibTorch folders of several versions: too old is an error, newer than tested a warning. Then with CUDA
# builds whose packages have a header of CUDA's compiler, or not.
#
#   cmake -DSOURCE=FOLDER -DWORK=FOLDER -DKINDLING_CMAKE=FOLDER -P libtorch_versions.cmake
function(make_libtorch folder major minor)
  file(WRITE ${folder}/lib/libtorch_cpu.so "")
  file(WRITE ${folder}/lib/libc10.so "_ZNSt7__cxx1112basic_string")
  file(WRITE ${folder}/share/cmake/Torch/TorchConfig.cmake "add_library(torch INTERFACE IMPORTED)\n")
  file(WRITE ${folder}/include/torch/headeronly/version.h
    "#define TORCH_VERSION_MAJOR ${major}\n#define TORCH_VERSION_MINOR ${minor}\n#define TORCH_VERSION_PATCH 1\n")
endfunction()

# expect_configured(<major> <minor> <exit code> <regex of the output> [option of CMake...])
function(expect_configured major minor code regex)
  set(name ${major}.${minor})
  make_libtorch(${WORK}/libtorch-${name} ${major} ${minor})
  execute_process(
    COMMAND ${CMAKE_COMMAND} -S ${SOURCE} -B ${WORK}/build-${name} -DKINDLING_CMAKE=${KINDLING_CMAKE}
            -DLIBTORCH=${WORK}/libtorch-${name} ${ARGN}
    RESULT_VARIABLE found_code OUTPUT_VARIABLE output ERROR_VARIABLE output)
  string(REGEX REPLACE "[ \n]+" " " output "${output}")
  if(NOT found_code EQUAL code OR NOT output MATCHES "${regex}")
    message(SEND_ERROR "LibTorch ${name}: exit code ${found_code}, expected ${code} and '${regex}':\n${output}")
  endif()
  if(regex MATCHES "^found" AND output MATCHES "Warning")
    message(SEND_ERROR "LibTorch ${name}: unexpected warning:\n${output}")
  endif()
endfunction()

file(REMOVE_RECURSE ${WORK})
expect_configured(2 10 1 "libtorch-2.10 is version '2.10.1', expected 2.11 or newer")
expect_configured(2 11 0 "found LibTorch 2.11.1")
expect_configured(2 15 0 "found LibTorch 2.15.1")
expect_configured(2 16 0 "Warning.*version 2.16.1; Kindling is tested with 2.11 to 2.15.*found LibTorch 2.16.1")
expect_configured(3 0 0 "Warning.*version 3.0.1; Kindling is tested with 2.11 to 2.15.*found LibTorch 3.0.1")

set(without_toolkit -DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON)
file(WRITE ${WORK}/libtorch-2.13/lib/libtorch_cuda.so "")
expect_configured(2 13 0 "found LibTorch 2.13.1 -- headers in " ${without_toolkit})
file(WRITE ${WORK}/nvidia/cu13/include/cuda_runtime_api.h "")
expect_configured(2 13 0 "lacks the header crt/host_config.h .`pip install nvidia-cuda-crt`, .*its CPU part alone.*found LibTorch 2.13.1 "
                  ${without_toolkit})
file(WRITE ${WORK}/triton/backends/nvidia/include/crt/host_config.h "")
expect_configured(2 13 0 "headers in .*/nvidia/cu13/include;[^;]*/triton/backends/nvidia/include" ${without_toolkit})
expect_configured(2 13 0 "found LibTorch 2.13.1 -- headers in " ${without_toolkit})
file(WRITE ${WORK}/nvidia/cu13/include/crt/host_config.h "")
expect_configured(2 13 0 "headers in [^ ]*/nvidia/cu13/include " ${without_toolkit})
