#include "kindling/loggers/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace kindling {

bool is_terminal(int fd) { return ::isatty(fd) == 1; }

int terminal_width(int fd) {
  constexpr int kUnknown = 80;
  struct winsize size = {};
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUnknown;
}

namespace {

// Open MPI connects the output of its processes to such a terminal and copies it to files.
bool has_no_size(int fd) {
  struct winsize size = {};
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col == 0 && size.ws_row == 0;
}

}  // namespace

bool wants_color(int fd) {
  const char* const no_color = std::getenv("NO_COLOR");
  if (no_color != nullptr && *no_color != '\0') return false;
  const char* const terminal = std::getenv("TERM");
  return is_terminal(fd) && !has_no_size(fd) && terminal != nullptr && std::string_view(terminal) != "dumb";
}

}  // namespace kindling
