#include "loggers/missing_epochs.h"

#include <algorithm>
#include <string>

#include "kindling/base/log.h"

namespace kindling {

void MissingEpochs::found(std::int64_t epoch) {
  if (epoch >= 1 && epoch <= static_cast<std::int64_t>(is_found_.size()))
    is_found_[static_cast<std::size_t>(epoch - 1)] = true;
}

std::int64_t MissingEpochs::count() const { return std::ranges::count(is_found_, false); }

std::int64_t MissingEpochs::first() const {
  const auto missing = std::ranges::find(is_found_, false);
  return missing == is_found_.end() ? 0 : missing - is_found_.begin() + 1;
}

void report_damage(const std::filesystem::path& file, std::size_t num_damaged_lines,
                   const MissingEpochs& missing) {
  std::string text;
  if (num_damaged_lines > 0)
    text = std::to_string(num_damaged_lines) + (num_damaged_lines == 1
                                                    ? " line that cannot be read was removed"
                                                    : " lines that cannot be read were removed");
  if (missing.count() > 0) {
    if (!text.empty()) text += "; ";
    text += missing.count() == 1
                ? "the record of epoch " + std::to_string(missing.first()) + " is missing"
                : "the records of " + std::to_string(missing.count()) +
                      " epochs are missing, the first is epoch " + std::to_string(missing.first());
    text += ": the file was damaged, shortened or removed while the run was stopped";
  }
  if (!text.empty()) log_warning(file.string() + ": " + text);
}

}  // namespace kindling
