#include "data/sources/split_findings.h"

#include <cstddef>
#include <map>

#include "kindling/base/log.h"
#include "kindling/base/suggest.h"
#include "kindling/base/text.h"

namespace kindling {

void warn_of_unvalidated_classes(const std::vector<std::int64_t>& classes, const SplitIndices& split,
                                 const std::vector<std::string>& names, bool is_stratified,
                                 const std::string& place) {
  constexpr std::size_t kFewSamples = 20, kShown = 3;
  if (split.val.empty() || split.train.size() < kFewSamples) return;
  const auto classes_of = [&](const std::vector<std::int64_t>& samples) {
    std::map<std::int64_t, std::size_t> found;  // with the number of samples
    for (const std::int64_t sample : samples) ++found[classes[static_cast<std::size_t>(sample)]];
    return found;
  };
  const std::map<std::int64_t, std::size_t> train = classes_of(split.train), val = classes_of(split.val);
  std::vector<std::string> missing;
  std::size_t count = 0;
  bool can_divide = false;  // a class of one sample is on one side in any split
  for (const auto& [code, num_samples] : train) {
    if (val.contains(code)) continue;
    can_divide = can_divide || num_samples > 1;
    if (++count > kShown) continue;
    const auto index = static_cast<std::size_t>(code);
    missing.push_back(
        "'" + (code >= 0 && index < names.size() ? one_line(names[index]) : std::to_string(code)) + "'");
  }
  if (count == 0) return;
  log_warning(place + ": " + std::to_string(count) + " of " + std::to_string(train.size()) +
              " classes have no validation sample: " + list_names(missing) + (count > kShown ? ", …" : "") +
              (is_stratified || !can_divide ? "" : "; data.stratify = true divides each class"));
}

}  // namespace kindling
