
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "data/sources/table_labels.h"
#include "kindling/base/log.h"
#include "kindling/base/suggest.h"
#include "kindling/base/text.h"

namespace kindling {
namespace {

std::string_view without_blanks(std::string_view text) {
  constexpr std::string_view kBlanks = " \t";
  const std::size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

// Returns the number of samples of each class, int64 [classes].
at::Tensor samples_of_classes(const at::Tensor& labels, const std::vector<std::int64_t>& samples) {
  return labels.index_select(0, at::tensor(samples, at::kLong)).sum(0, false, at::kLong);
}

// Returns how many rows a set needs so that each side has one of them in proportion.
double least_rows_of_sets(const SplitOptions& split) {
  if (split.folds) return static_cast<double>(*split.folds);
  if (!split.val_fraction) return 1;
  return std::ceil(1 / std::min(*split.val_fraction, 1 - *split.val_fraction));
}

void warn_of_missing(const at::Tensor& counts, const std::vector<std::string>& names, const char* what,
                     const std::string& place) {
  constexpr std::size_t kShown = 3;
  std::vector<std::string> missing;
  std::size_t count = 0;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (counts.const_data_ptr<std::int64_t>()[i] > 0) continue;
    if (++count <= kShown) missing.push_back("'" + one_line(names[i]) + "'");
  }
  if (count == 0) return;
  log_warning(place + ": " + std::to_string(count) + " of " + std::to_string(names.size()) +
              " classes have no " + what + " sample: " + list_names(missing) + (count > kShown ? ", …" : ""));
}

}  // namespace

std::vector<std::string> labels_in_text(std::string_view text, std::string_view separator) {
  std::vector<std::string> labels;
  const auto add = [&](std::string_view label) {
    label = without_blanks(label);
    if (!label.empty() && std::ranges::find(labels, label) == labels.end()) labels.emplace_back(label);
  };
  std::size_t begin = 0;
  for (std::size_t end = 0; (end = text.find(separator, begin)) != std::string_view::npos;
       begin = end + separator.size())
    add(text.substr(begin, end - begin));
  add(text.substr(begin));
  return labels;
}

std::vector<std::string> classes_in_sets(const TableColumn& column, const std::string& separator) {
  if (column.kind == ColumnKind::number) return class_names_of(column);
  std::set<std::string> labels;
  for (const std::int32_t code : std::set<std::int32_t>(column.codes.begin(), column.codes.end()))
    if (code >= 0)
      for (std::string& label : labels_in_text(column.categories[static_cast<std::size_t>(code)], separator))
        labels.insert(std::move(label));
  return sorted_classes({labels.begin(), labels.end()});
}

std::vector<std::int64_t> codes_of_sets(const at::Tensor& labels, const SplitOptions& split) {
  std::map<std::string_view, std::int64_t> known;
  std::vector<std::int64_t> codes;
  const at::Tensor rows = labels.contiguous();
  const auto* const bytes = reinterpret_cast<const char*>(rows.const_data_ptr<std::uint8_t>());
  const auto width = static_cast<std::size_t>(rows.size(1));
  for (std::size_t row = 0; row < static_cast<std::size_t>(rows.size(0)); ++row)
    codes.push_back(
        known.emplace(std::string_view(bytes + row * width, width), std::ssize(known)).first->second);
  std::vector<std::int64_t> sizes(known.size());
  for (const std::int64_t code : codes) ++sizes[static_cast<std::size_t>(code)];
  const double least = least_rows_of_sets(split);
  for (std::int64_t& code : codes)
    if (static_cast<double>(sizes[static_cast<std::size_t>(code)]) < least) code = -1;
  return codes;
}

void log_rows_without_label(const at::Tensor& labels, const std::string& rows, const std::string& place) {
  const std::int64_t count = labels.size(0) - labels.any(1).sum().item<std::int64_t>();
  if (count > 0)
    log_info(place + ": " + std::to_string(count) + " of " + std::to_string(labels.size(0)) + " " + rows +
             " have no label, which is 0 for every class");
}

void warn_of_unshared_classes(const at::Tensor& labels, const SplitIndices& split,
                              const std::vector<std::string>& names, const std::string& place) {
  constexpr std::size_t kFewSamples = 20;
  if (split.val.empty()) return;
  warn_of_missing(samples_of_classes(labels, split.train), names, "training", place);
  if (split.train.size() >= kFewSamples)
    warn_of_missing(samples_of_classes(labels, split.val), names, "validation", place);
}

}  // namespace kindling
