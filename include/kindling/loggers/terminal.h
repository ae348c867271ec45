#pragma once

#include "kindling/base/export.h"

// What is at the other end of a file descriptor.
namespace kindling {

// Whether it is a terminal; the terminal's width.
KINDLING_API bool is_terminal(int fd);
KINDLING_API int terminal_width(int fd);  // columns; 80 when the terminal does not say or there is none

// Colours are for terminals, unless NO_COLOR is set and not empty (no-color.org) or TERM is "dumb".
KINDLING_API bool wants_color(int fd);

}  // namespace kindling
