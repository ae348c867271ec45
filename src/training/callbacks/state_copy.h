#pragma once

#include "kindling/tensors/state_dict.h"

namespace kindling {

// A copy of a state in host memory, independent of later changes of the state. The next copy reuses the
// memory where names, shapes and dtypes are the same.
class StateCopy {
 public:
  void take(const StateDict& state);
  const StateDict& state() const noexcept { return copy_; }

 private:
  StateDict copy_;
};

}  // namespace kindling
