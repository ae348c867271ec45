#include "data/sources/skipped_samples.h"

#include <algorithm>

#include "kindling/base/log.h"

namespace kindling {

void warn_of_skipped(const std::vector<std::string>& errors, std::size_t num_samples,
                     const std::string& samples) {
  constexpr std::size_t kMostNamed = 5;
  std::string text = "data.on_broken: skipped " + std::to_string(errors.size()) + " of " +
                     std::to_string(num_samples) + " " + samples + ", which cannot be used:";
  for (std::size_t i = 0; i < std::min(errors.size(), kMostNamed); ++i) text += "\n  " + errors[i];
  if (errors.size() > kMostNamed)
    text +=
        "\n  and " + std::to_string(errors.size() - kMostNamed) + " more; `kindling data check` lists all";
  log_warning(text);
}

}  // namespace kindling
