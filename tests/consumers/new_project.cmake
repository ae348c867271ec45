# cmake -DKINDLING=<installed program> -DWORK=<folder> -P new_project.cmake
#
# Writes a project with `kindling new` and types the commands that it prints, then runs the project's test. Only a unity build is added, so
# that LibTorch's headers are read once per program; consumers.custom_model_clang++ builds the same project with precompiled headers.
cmake_minimum_required(VERSION 3.25)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
execute_process(COMMAND ${KINDLING} new wave-net WORKING_DIRECTORY ${WORK} OUTPUT_VARIABLE printed COMMAND_ERROR_IS_FATAL ANY)
cmake_path(GET KINDLING PARENT_PATH bin)
cmake_path(GET bin PARENT_PATH prefix)
set(expected "10 files written to wave-net/

Build and train with:
  cd wave-net
  cmake -B build -DCMAKE_PREFIX_PATH=${prefix}
  cmake --build build
  build/wave-net fit -c config.toml
")
if(NOT printed STREQUAL expected)
  message(FATAL_ERROR "kindling new printed:\n${printed}\nexpected:\n${expected}")
endif()
string(REGEX REPLACE "^.*with:\n" "" commands "${printed}")
string(REPLACE "cmake -B build" "cmake -B build -DCMAKE_UNITY_BUILD=ON -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON" commands "${commands}")
set(ENV{CXXFLAGS} "-Wall -Wextra -Werror")
set(ENV{CMAKE_GENERATOR} Ninja)
set(ENV{OMP_NUM_THREADS} 1)
execute_process(COMMAND bash -e -c "${commands}\nctest --test-dir build" WORKING_DIRECTORY ${WORK}
  OUTPUT_VARIABLE output ERROR_VARIABLE output RESULT_VARIABLE code)
message("${output}")
if(NOT code EQUAL 0 OR NOT output MATCHES "best val acc (0.9|1.0).*100% tests passed")
  message(FATAL_ERROR "the printed commands ended with ${code}")
endif()
