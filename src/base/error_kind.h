#pragma once

#include "kindling/base/error.h"

namespace kindling {

// Calls the function; rethrows an error of another kind as a `Kind` with the same parts.
template <class Kind, class Call>
auto with_errors_as(Call call) -> decltype(call()) {
  try {
    return call();
  } catch (const Kind&) {
    throw;
  } catch (const Error& error) {
    throw Kind(error.parts());
  }
}

}  // namespace kindling
