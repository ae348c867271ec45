# embed_file(<variable name> <file> <output.cpp>): C++ source that defines `const std::string_view <name>` with the file's bytes.
function(embed_file name file output)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  file(READ ${file} hex HEX)
  string(LENGTH "${hex}" digits)
  math(EXPR size "${digits} / 2")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "\\\\x\\1" escaped "${hex}")
  # 64 bytes a line keep the source readable by tools that dislike long lines.
  string(REPEAT "\\\\x[0-9a-f][0-9a-f]" 64 line)
  string(REGEX REPLACE "(${line})" "\"\\1\"\n" broken "${escaped}")
  string(REGEX REPLACE "\n(\\\\x[^\n\"]+)$" "\n\"\\1\"" broken "${broken}")
  file(CONFIGURE OUTPUT ${output} CONTENT "// Made from a file by embed_file.
#include <string_view>

namespace kindling {
extern const std::string_view ${name};
const std::string_view ${name}(
${broken}, ${size});
}  // namespace kindling
" @ONLY)
endfunction()
