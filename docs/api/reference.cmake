# Writes the API reference without a build folder, which needs no LibTorch: cmake -DOUTPUT=FOLDER -P docs/api/reference.cmake
# writes FOLDER/html. The target api_reference does the same in a build folder.
cmake_minimum_required(VERSION 3.25)
get_filename_component(PROJECT_SOURCE_DIR ${CMAKE_CURRENT_LIST_DIR}/../.. ABSOLUTE)
file(STRINGS ${PROJECT_SOURCE_DIR}/CMakeLists.txt project REGEX "^project\\(kindling VERSION ")
string(REGEX REPLACE ".*VERSION ([0-9.]+).*" "\\1" PROJECT_VERSION "${project}")
find_program(DOXYGEN doxygen REQUIRED)
find_program(Python3_EXECUTABLE python3 REQUIRED)
get_filename_component(KINDLING_API_FOLDER ${OUTPUT} ABSOLUTE)
file(MAKE_DIRECTORY ${KINDLING_API_FOLDER})
set(DOXYFILE ${KINDLING_API_FOLDER}/Doxyfile)
configure_file(${CMAKE_CURRENT_LIST_DIR}/Doxyfile.in ${DOXYFILE} @ONLY)
include(${CMAKE_CURRENT_LIST_DIR}/build.cmake)
