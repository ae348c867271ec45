#include "cli/data/label_text.h"

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "base/joined.h"
#include "kindling/base/text.h"

namespace kindling {
namespace {

std::string class_text(std::int64_t label, const std::vector<std::string>& classes) {
  const bool has_name = label >= 0 && label < std::ssize(classes);
  return has_name ? one_line(classes[static_cast<std::size_t>(label)]) : std::to_string(label);
}

std::string several_text(const at::Tensor& label, const std::vector<std::string>& classes) {
  std::vector<std::string> names;
  for (std::int64_t i = 0; i < label.size(0); ++i)
    if (label[i].item<double>() == 1) names.push_back(class_text(i, classes));
  return names.empty() ? "no class" : joined(names, ", ");
}

// Such as "background 80 %, cell 20 %", the largest fractions first.
std::string mask_text(const at::Tensor& mask, const std::vector<std::string>& classes) {
  const at::Tensor values = mask.to(at::kLong).contiguous();
  const auto* const first = values.const_data_ptr<std::int64_t>();
  std::map<std::int64_t, std::int64_t> counts;
  for (std::int64_t i = 0; i < values.numel(); ++i) ++counts[std::max<std::int64_t>(first[i], -1)];
  std::vector<std::pair<std::int64_t, std::int64_t>> largest(counts.begin(), counts.end());
  std::ranges::stable_sort(largest, std::ranges::greater(), &std::pair<std::int64_t, std::int64_t>::second);
  return joined(largest, ", ", [&](const auto& entry) {
    const double percent = 100 * static_cast<double>(entry.second) / static_cast<double>(values.numel());
    return (entry.first < 0 ? "ignored" : class_text(entry.first, classes)) + " " +
           (percent < 1 ? "< 1" : std::to_string(std::lround(percent))) + " %";
  });
}

}  // namespace

std::string label_text(const at::Tensor& label, const std::vector<std::string>& classes) {
  const bool is_integral = c10::isIntegralType(label.scalar_type(), /*includeBool=*/false);
  if (label.dim() == 0) return is_integral ? class_text(label.item<std::int64_t>(), classes) : "";
  if (classes.empty()) return "";
  if (label.dim() == 1 && label.size(0) == std::ssize(classes))
    return label.eq(0).logical_or(label.eq(1)).all().item<bool>() ? several_text(label, classes) : "";
  return label.dim() == 2 && is_integral && label.numel() > 0 ? mask_text(label, classes) : "";
}

}  // namespace kindling
