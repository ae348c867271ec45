# The small libraries that Kindling compiles in. Each becomes an interface library kindling_<name>, found on the system or fetched at
# a pinned version. Of a fetched one the sources are used alone: none of its targets, options or flags reach a parent project.
#
# A library on the system is looked for in CMAKE_PREFIX_PATH and the usual folders.
#
# KINDLING_FETCH_DEPENDENCIES: AUTO fetches what the system lacks, ON fetches all, OFF fetches nothing. Sources that are already on
# the machine: FETCHCONTENT_SOURCE_DIR_KINDLING_<NAME>=FOLDER, an unpacked archive of the project.

set(KINDLING_FETCH_DEPENDENCIES AUTO CACHE STRING "Fetch small libraries: AUTO (those that the system lacks), ON (all) or OFF")
set_property(CACHE KINDLING_FETCH_DEPENDENCIES PROPERTY STRINGS AUTO ON OFF)
if(NOT KINDLING_FETCH_DEPENDENCIES MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "KINDLING_FETCH_DEPENDENCIES is '${KINDLING_FETCH_DEPENDENCIES}', expected AUTO, ON or OFF")
endif()
set(_kindling_missing "")
set(_kindling_with_sources "")  # those that are fetched and have something to compile

# kindling_dependency(<name> PACKAGE <Debian package> HEADER <header> [LIBRARY <names>...]
#                     URL <archive> SHA256 <checksum> [FOLDER <of the headers in the archive>] [SOURCES <C files>...]
#                     [DEFINITIONS <of the fetched sources>...])
function(kindling_dependency name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "PACKAGE;HEADER;URL;SHA256;FOLDER" "LIBRARY;SOURCES;DEFINITIONS")
  string(TOUPPER ${name} upper)
  add_library(kindling_${name} INTERFACE)
  if(NOT KINDLING_FETCH_DEPENDENCIES STREQUAL "ON")
    find_path(KINDLING_${upper}_INCLUDE_DIR ${arg_HEADER})
    set(library "")
    if(arg_LIBRARY)
      find_library(KINDLING_${upper}_LIBRARY NAMES ${arg_LIBRARY})
      set(library "${KINDLING_${upper}_LIBRARY}")
    endif()
    mark_as_advanced(KINDLING_${upper}_INCLUDE_DIR KINDLING_${upper}_LIBRARY)
    if(KINDLING_${upper}_INCLUDE_DIR AND NOT library MATCHES "NOTFOUND$")
      target_include_directories(kindling_${name} SYSTEM INTERFACE ${KINDLING_${upper}_INCLUDE_DIR})
      target_link_libraries(kindling_${name} INTERFACE ${library})
      return()
    endif()
  endif()
  if(KINDLING_FETCH_DEPENDENCIES STREQUAL "OFF")
    set(_kindling_missing ${_kindling_missing} "${name} (package ${arg_PACKAGE})" PARENT_SCOPE)
    return()
  endif()

  message(STATUS "Kindling: fetching ${name}")
  FetchContent_Declare(kindling_${name} URL ${arg_URL} URL_HASH SHA256=${arg_SHA256} DOWNLOAD_EXTRACT_TIMESTAMP ON
    SOURCE_SUBDIR none)  # a folder that does not exist: the archive's own CMakeLists.txt is not read
  FetchContent_MakeAvailable(kindling_${name})
  set(folder ${kindling_${name}_SOURCE_DIR})
  target_include_directories(kindling_${name} SYSTEM INTERFACE ${folder}/${arg_FOLDER})
  target_compile_definitions(kindling_${name} INTERFACE ${arg_DEFINITIONS})
  if(arg_SOURCES)
    list(TRANSFORM arg_SOURCES PREPEND ${folder}/)
    set(_kindling_${name}_sources ${arg_SOURCES} PARENT_SCOPE)
    set(_kindling_with_sources ${_kindling_with_sources} ${name} PARENT_SCOPE)
  endif()
endfunction()

include(FetchContent)
kindling_dependency(spdlog  # the log: levels, colours, formatting
  PACKAGE libspdlog-dev HEADER spdlog/logger.h FOLDER include
  URL https://github.com/gabime/spdlog/archive/refs/tags/v1.15.3.tar.gz
  SHA256 15a04e69c222eb6c01094b5c7ff8a249b36bb22788d72519646fb85feb267e67)
kindling_dependency(tomlplusplus  # config files
  PACKAGE libtomlplusplus-dev HEADER toml++/toml.h FOLDER include
  URL https://github.com/marzer/tomlplusplus/archive/refs/tags/v3.4.0.tar.gz
  SHA256 8517f65938a4faae9ccf8ebb36631a38c1cadfb5efa85d9a72e15b9e97d25155)
kindling_dependency(nlohmann_json  # metrics.jsonl, run.json, headers of safetensors and .pt2 files
  PACKAGE nlohmann-json3-dev HEADER nlohmann/json.hpp FOLDER include
  URL https://github.com/nlohmann/json/archive/refs/tags/v3.11.3.tar.gz
  SHA256 0d8ef5af7f9794e3263480193c491549b2ba6cc74bb018906202ada498a79406)
kindling_dependency(zlib  # compressed data files, the CRC-32 of zip archives
  PACKAGE zlib1g-dev HEADER zlib.h LIBRARY z
  URL https://github.com/madler/zlib/releases/download/v1.3.1/zlib-1.3.1.tar.gz
  SHA256 9a93b2b7dfdac77ceba5a558a580e74667dd6fede4585b91eefb60f03b72df23
  SOURCES adler32.c crc32.c inffast.c inflate.c inftrees.c zutil.c)
kindling_dependency(xxhash  # checksums of checkpoints
  PACKAGE libxxhash-dev HEADER xxhash.h
  URL https://github.com/Cyan4973/xxHash/archive/refs/tags/v0.8.3.tar.gz
  SHA256 aae608dfe8213dfd05d909a57718ef82f30722c392344583d3f39050c7f29a80)
kindling_dependency(utf8proc  # the width of text in tables; the library is compiled in where possible, so there is less to ship
  PACKAGE libutf8proc-dev HEADER utf8proc.h LIBRARY libutf8proc.a utf8proc
  URL https://github.com/JuliaStrings/utf8proc/archive/refs/tags/v2.8.0.tar.gz
  SHA256 a0a60a79fe6f6d54e7d411facbfcc867a6e198608f2cd992490e46f04b1bcecc
  SOURCES utf8proc.c DEFINITIONS UTF8PROC_STATIC)
if(KINDLING_BUILD_PROGRAM)
  kindling_dependency(cli11  # the command line of the program
    PACKAGE libcli11-dev HEADER CLI/CLI.hpp FOLDER include
    URL https://github.com/CLIUtils/CLI11/archive/refs/tags/v2.4.2.tar.gz
    SHA256 f2d893a65c3b1324c50d4e682c0cdc021dd0477ae2c048544f39eed6654b699a)
endif()
if(_kindling_missing)
  list(JOIN _kindling_missing ", " _kindling_missing)
  message(FATAL_ERROR "Kindling: missing libraries: ${_kindling_missing}. Install the packages, or let "
                      "KINDLING_FETCH_DEPENDENCIES=AUTO fetch the sources.")
endif()

# kindling_file_library(<name> PACKAGE <Debian package> HEADER <header> [FOLDER <of the header>] LIBRARY <names>...
#                       [WITHOUT <what happens without it>]): an interface library kindling_<name> of the system, which nothing fetches.
# KINDLING_<NAME>: AUTO uses it where it is found, ON requires it, OFF does without. Sets KINDLING_HAS_<NAME>. The wheel has none by
# default, because the libraries of its users' systems may be missing or other ones.
function(kindling_file_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "PACKAGE;HEADER;FOLDER;WITHOUT" "LIBRARY")
  string(TOUPPER ${name} upper)
  if(NOT arg_WITHOUT)
    set(arg_WITHOUT "${upper} files cannot be read")
  endif()
  set(default AUTO)
  if(KINDLING_WHEEL)
    set(default OFF)
  endif()
  set(KINDLING_${upper} ${default} CACHE STRING "Use ${arg_PACKAGE}: AUTO (if it is installed), ON or OFF (${arg_WITHOUT})")
  set_property(CACHE KINDLING_${upper} PROPERTY STRINGS AUTO ON OFF)
  add_library(kindling_${name} INTERFACE)
  set(KINDLING_HAS_${upper} OFF PARENT_SCOPE)
  if(KINDLING_${upper} STREQUAL "OFF")
    return()
  endif()
  find_path(KINDLING_${upper}_INCLUDE_DIR ${arg_HEADER} PATH_SUFFIXES ${arg_FOLDER})
  find_library(KINDLING_${upper}_LIBRARY NAMES ${arg_LIBRARY})
  mark_as_advanced(KINDLING_${upper}_INCLUDE_DIR KINDLING_${upper}_LIBRARY)
  if(KINDLING_${upper}_INCLUDE_DIR AND KINDLING_${upper}_LIBRARY)
    target_include_directories(kindling_${name} SYSTEM INTERFACE ${KINDLING_${upper}_INCLUDE_DIR})
    target_link_libraries(kindling_${name} INTERFACE ${KINDLING_${upper}_LIBRARY})
    set(KINDLING_HAS_${upper} ON PARENT_SCOPE)
  elseif(KINDLING_${upper} STREQUAL "AUTO")
    message(NOTICE "-- Kindling: ${arg_PACKAGE} is not installed: ${arg_WITHOUT}")
  else()
    message(FATAL_ERROR "Kindling: ${arg_PACKAGE} is missing. Install the package, or set KINDLING_${upper} to AUTO or OFF.")
  endif()
endfunction()

kindling_file_library(png PACKAGE libpng-dev HEADER png.h LIBRARY png)
kindling_file_library(jpeg PACKAGE libjpeg-dev HEADER jpeglib.h LIBRARY jpeg)
kindling_file_library(webp PACKAGE libwebp-dev HEADER webp/decode.h LIBRARY webp)
kindling_file_library(tiff PACKAGE libtiff-dev HEADER tiffio.h LIBRARY tiff)
# It inflates the pixels of PNG files and what HDF5 has compressed; without it, zlib does.
kindling_file_library(deflate PACKAGE libdeflate-dev HEADER libdeflate.h LIBRARY deflate WITHOUT "zlib inflates instead")
kindling_file_library(hdf5 PACKAGE libhdf5-dev HEADER hdf5.h FOLDER hdf5/serial LIBRARY hdf5_serial hdf5)
kindling_file_library(netcdf PACKAGE libnetcdf-dev HEADER netcdf.h LIBRARY netcdf)

# C is enabled only where it is needed, and not in a function, where CMake forbids it.
if(_kindling_with_sources)
  enable_language(C)
endif()
foreach(name ${_kindling_with_sources})
  add_library(kindling_${name}_code STATIC ${_kindling_${name}_sources})
  set_target_properties(kindling_${name}_code PROPERTIES
    POSITION_INDEPENDENT_CODE ON C_VISIBILITY_PRESET hidden UNITY_BUILD OFF)
  target_compile_options(kindling_${name}_code PRIVATE -w)  # of the parent's warnings
  target_include_directories(kindling_${name}_code PRIVATE
    $<TARGET_PROPERTY:kindling_${name},INTERFACE_INCLUDE_DIRECTORIES>)
  target_compile_definitions(kindling_${name}_code PRIVATE
    $<TARGET_PROPERTY:kindling_${name},INTERFACE_COMPILE_DEFINITIONS>)
  target_link_libraries(kindling_${name} INTERFACE kindling_${name}_code)
endforeach()

# Packages of spdlog that use the system's fmt come without their own.
get_target_property(_kindling_spdlog_folder kindling_spdlog INTERFACE_INCLUDE_DIRECTORIES)
if(NOT EXISTS ${_kindling_spdlog_folder}/spdlog/fmt/bundled)
  target_compile_definitions(kindling_spdlog INTERFACE SPDLOG_FMT_EXTERNAL)
endif()
target_compile_definitions(kindling_spdlog INTERFACE FMT_HEADER_ONLY)
