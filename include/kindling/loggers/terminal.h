#pragma once

#include "kindling/base/export.h"

// Properties of the terminal at a file descriptor.
namespace kindling {

// Return whether the descriptor is a terminal, and its width.
KINDLING_API bool is_terminal(int fd);
KINDLING_API int terminal_width(int fd);  // columns; 80 if unknown or not a terminal

// True for terminals, unless NO_COLOR is set and not empty (no-color.org), TERM is "dumb", or the size is 0 x
// 0 characters, as under Open MPI.
KINDLING_API bool wants_color(int fd);

}  // namespace kindling
