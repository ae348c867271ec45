#include "training/libtorch_errors.h"

#include <exception>
#include <string_view>

#include "kindling/base/error.h"

namespace kindling {

void rethrow_translated(const char* place, const c10::Error& error) {
  const std::string_view text = error.what_without_backtrace();
  const std::string first_line(text.substr(0, text.find('\n')));
  if (text.find("Expected all tensors to be on the same device") != std::string_view::npos)
    std::throw_with_nested(
        DeviceError({.place = place,
                     .found = first_line,
                     .wanted = "every tensor of a step on the trainer's device",
                     .remedy = "move it with kindling::move_to(tensor, other.device()), or make it with "
                               "other.options()"}));
  std::throw_with_nested(Error({.place = place, .found = first_line}));
}

}  // namespace kindling
