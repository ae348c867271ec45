#pragma once

#include <filesystem>

namespace kindling {

// Of one call of Trainer::fit().
struct FitOptions {
  // A checkpoint, or a folder whose latest valid one is taken: the training goes on where it was saved, as if
  // it had never stopped. Empty: a new training.
  std::filesystem::path resume{};
};

}  // namespace kindling
