# cmake -DLIBRARY=<file> [-DFOLDERS=<list>] -P LibTorchNeeds.cmake: prints the shared libraries that LIBRARY needs, directly or not,
# and that the dynamic loader would not find. A script, because CMake reads dependencies in scripts only.
cmake_minimum_required(VERSION 3.25)
file(GET_RUNTIME_DEPENDENCIES LIBRARIES ${LIBRARY} DIRECTORIES ${FOLDERS}
  RESOLVED_DEPENDENCIES_VAR found UNRESOLVED_DEPENDENCIES_VAR missing CONFLICTING_DEPENDENCIES_PREFIX conflicts)
# The driver's own library comes with the card.
list(REMOVE_ITEM missing libcuda.so.1)
list(JOIN missing ", " missing)
execute_process(COMMAND ${CMAKE_COMMAND} -E echo "${missing}")
