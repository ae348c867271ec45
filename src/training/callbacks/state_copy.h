#pragma once

#include "kindling/tensors/state_dict.h"

namespace kindling {

// A copy of a state in host memory, which changes no more when the state does. Taking another one uses the
// memory of the one before again where names, shapes and dtypes are the same.
class StateCopy {
 public:
  void take(const StateDict& state);
  const StateDict& state() const noexcept { return copy_; }

 private:
  StateDict copy_;
};

}  // namespace kindling
