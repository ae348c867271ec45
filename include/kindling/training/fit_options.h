#pragma once

#include <filesystem>

namespace kindling {

// The options of one call of Trainer::fit().
struct FitOptions {
  // A checkpoint, or a directory, whose latest valid checkpoint is used: the run resumes exactly where it was
  // saved. Empty: a new run.
  std::filesystem::path resume{};
};

}  // namespace kindling
