# Sets `result` to C++ string literals, one a line, that spell the file's bytes, and `size` to their number.
function(embedded_bytes result size file)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  file(READ ${file} hex HEX)
  string(LENGTH "${hex}" digits)
  math(EXPR num_bytes "${digits} / 2")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "\\\\x\\1" escaped "${hex}")
  # 64 bytes a line keep the source readable by tools that dislike long lines.
  string(REPEAT "\\\\x[0-9a-f][0-9a-f]" 64 line)
  string(REGEX REPLACE "(${line})" "\"\\1\"\n" broken "${escaped}")
  string(REGEX REPLACE "\n(\\\\x[^\n\"]+)$" "\n\"\\1\"" broken "${broken}")
  if(num_bytes LESS 64)
    set(broken "\"${broken}\"")
  endif()
  set(${result} "${broken}" PARENT_SCOPE)
  set(${size} ${num_bytes} PARENT_SCOPE)
endfunction()

# embed_file(<variable name> <file> <output.cpp>): C++ source that defines `const std::string_view <name>` with the file's bytes.
function(embed_file name file output)
  embedded_bytes(bytes size ${file})
  file(CONFIGURE OUTPUT ${output} CONTENT "// Made from a file by embed_file.
#include <string_view>

namespace kindling {
extern const std::string_view ${name};
const std::string_view ${name}(
${bytes}, ${size});
}  // namespace kindling
" @ONLY)
endfunction()

# embed_folder(<variable name> <folder> <output.cpp> <file>...): C++ source that defines a `const std::span` of pairs, each the name and
# the bytes of a file in the folder.
function(embed_folder name folder output)
  set(pairs "")
  foreach(file ${ARGN})
    embedded_bytes(bytes size ${folder}/${file})
    string(APPEND pairs "    {\"${file}\", std::string_view(
${bytes}, ${size})},\n")
  endforeach()
  file(CONFIGURE OUTPUT ${output} CONTENT "// Made from the files of a folder by embed_folder.
#include <span>
#include <string_view>
#include <utility>

namespace kindling {
namespace {
using EmbeddedFile = std::pair<std::string_view, std::string_view>;
const EmbeddedFile ${name}Files[] = {
${pairs}};
}  // namespace
extern const std::span<const EmbeddedFile> ${name};
const std::span<const EmbeddedFile> ${name}(${name}Files);
}  // namespace kindling
" @ONLY)
endfunction()
