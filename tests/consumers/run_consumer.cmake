# cmake -DSOURCE=<folder> -DWORK=<folder> -DCOMPILER=<c++> -DOPTIONS=<list> -DRUN=<list> [-DEXPECT=<regex>] [-DSHIP=ON] -P run_consumer.cmake
# cmake -DSOURCE=<folder> -DWORK=<folder> -DCOMPILER=<c++> -DOPTIONS=<list> -DBUILD=<list of targets> -P run_consumer.cmake
#
# Does what a user of Kindling does: copies a project into an empty folder, configures and builds it with all warnings as
# errors, runs RUN there (its first word is a program in the build folder) and looks for EXPECT in what it prints.
# With SHIP the program runs from its runtime component alone, in a folder of its own, without an environment.
cmake_minimum_required(VERSION 3.25)

function(run step)
  execute_process(COMMAND ${ARGN} WORKING_DIRECTORY ${WORK} RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT code EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${step} ended with ${code}:\n${command}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE ${WORK})
file(COPY ${SOURCE}/ DESTINATION ${WORK}/project)
run(configure ${CMAKE_COMMAND} -S project -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER=${COMPILER}
    "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror" ${OPTIONS})
if(output MATCHES "CMake [a-zA-Z ]*Warning")
  message(FATAL_ERROR "configure warns:\n${output}")
endif()
if(BUILD)
  run(build ${CMAKE_COMMAND} --build build --target ${BUILD})
  return()
endif()
run(build ${CMAKE_COMMAND} --build build)
list(POP_FRONT RUN program)
if(SHIP)
  run(ship ${CMAKE_COMMAND} --install build --component runtime --prefix ${WORK}/dist --strip)
  file(RENAME ${WORK}/build ${WORK}/hidden)  # nothing may be found there
  run(run ${CMAKE_COMMAND} -E env --unset=LD_LIBRARY_PATH OMP_NUM_THREADS=1 ${WORK}/dist/bin/${program} ${RUN})
  file(GLOB libraries RELATIVE ${WORK}/dist/lib ${WORK}/dist/lib/*)
  list(JOIN libraries " " libraries)
  string(APPEND output "\nlibraries: ${libraries}")
else()
  run(run ${CMAKE_COMMAND} -E env OMP_NUM_THREADS=1 ${WORK}/build/${program} ${RUN})
endif()
message("${output}")
if(EXPECT AND NOT output MATCHES "${EXPECT}")
  message(FATAL_ERROR "found no '${EXPECT}' in the output")
endif()
