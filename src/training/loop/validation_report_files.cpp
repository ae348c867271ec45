#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "formats/arrays/npy_header.h"
#include "kindling/base/file.h"
#include "kindling/base/number_text.h"
#include "kindling/formats/csv.h"
#include "kindling/training/validation_report.h"

namespace kindling {
namespace {

constexpr std::array<const char*, 9> kReportFiles{
    "confusion_matrix.csv", "class_scores.csv",      "calibration.csv",
    "residuals.csv",        "worst_predictions.csv", "rollout.csv",
    "field_errors.npy",     "worst_pictures.npy",    "worst_masks.npy"};

// The shortest text for a float32: "12.3" instead of "12.300000190734863".
std::string value_text(double value) {
  const auto narrow = static_cast<float>(value);
  if (static_cast<double>(narrow) != value || value == std::floor(value)) return number_text(value);
  std::array<char, 32> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), narrow).ptr;
  return {text.data(), end};
}

std::string class_text(const ValidationReport& report, std::int64_t number) {
  if (number < 0) return {};
  const auto index = static_cast<std::size_t>(number);
  return index < report.class_names.size() ? report.class_names[index] : std::to_string(number);
}

// True for the title of another column of the files: "label", "target", "target_0", …
bool is_other_title(std::string_view name) {
  constexpr std::array<std::string_view, 6> kOthers{"sample",     "label",      "probability",
                                                    "confidence", "error_rate", "loss"};
  if (std::ranges::find(kOthers, name) != kOthers.end()) return true;
  const std::string_view stem = name.substr(0, name.find('_')), rest = name.substr(stem.size());
  const bool is_of_targets = stem == "target" || stem == "predicted" || stem == "residual";
  return is_of_targets && (rest.empty() || (rest.size() > 1 && rest.find_first_not_of("0123456789", 1) ==
                                                                   std::string_view::npos));
}

// The columns that identify a sample.
class SampleColumns {
 public:
  explicit SampleColumns(const SampleIds& ids) : ids_(ids) {}
  std::vector<std::string> titles() const {
    std::vector<std::string> titles{"sample"};
    if (has_ids()) titles.push_back(is_other_title(ids_.name) ? "id" : ids_.name);
    return titles;
  }
  std::vector<std::string> cells(std::int64_t sample) const {
    std::vector<std::string> cells{std::to_string(sample)};
    if (!has_ids()) return cells;
    const auto index = static_cast<std::size_t>(sample);
    cells.push_back(index < ids_.values.size() ? ids_.values[index] : "");
    return cells;
  }

 private:
  bool has_ids() const { return !ids_.name.empty() && !ids_.values.empty(); }
  const SampleIds& ids_;
};

// "target", or "target_0", "target_1", … of several.
std::string numbered(const char* name, std::size_t number, std::size_t count) {
  return count == 1 ? std::string(name) : name + ("_" + std::to_string(number));
}

std::string matrix_text(const ValidationReport& report) {
  const at::Tensor& matrix = report.confusion_matrix;
  std::vector<std::string> cells{"label"};
  for (std::int64_t i = 0; i < matrix.size(1); ++i) cells.push_back(class_text(report, i));
  std::string text = csv_line(cells);
  const auto* count = matrix.const_data_ptr<std::int64_t>();
  for (std::int64_t label = 0; label < matrix.size(0); ++label) {
    cells = {class_text(report, label)};
    for (std::int64_t i = 0; i < matrix.size(1); ++i) cells.push_back(std::to_string(*count++));
    text += csv_line(cells);
  }
  return text;
}

std::string scores_text(const ValidationReport& report) {
  std::string text = "class,labels,predicted,both,precision,recall,f1\n";
  const auto score = [](double value) { return std::isnan(value) ? std::string() : number_text(value); };
  for (std::size_t i = 0; i < report.class_counts.size(); ++i) {
    const ClassCounts& counts = report.class_counts[i];
    text += csv_line(std::vector<std::string>{
        class_text(report, static_cast<std::int64_t>(i)), std::to_string(counts.num_labels),
        std::to_string(counts.num_predicted), std::to_string(counts.num_both), score(counts.precision()),
        score(counts.recall()), score(counts.f1())});
  }
  return text;
}

std::string calibration_text(const ValidationReport& report) {
  std::string text = "bin,from,to,samples,mean_confidence,accuracy\n";
  int number = 0;
  for (const CalibrationBin& bin : report.calibration) {
    const auto mean = [&](double value) { return bin.num_labels == 0 ? std::string() : number_text(value); };
    text += csv_line(std::vector<std::string>{std::to_string(++number), number_text(bin.low),
                                              number_text(bin.high), std::to_string(bin.num_labels),
                                              mean(bin.mean_confidence), mean(bin.accuracy)});
  }
  return text;
}

// The difference of two float32 values has as many digits.
std::string residual_text(double target, double predicted) {
  const auto is_narrow = [](double value) { return static_cast<double>(static_cast<float>(value)) == value; };
  const double residual = target - predicted;
  return value_text(is_narrow(target) && is_narrow(predicted) ? static_cast<float>(residual) : residual);
}

std::string residuals_text(const ValidationReport& report) {
  const Residuals& residuals = report.residuals;
  const SampleColumns samples(report.ids);
  std::vector<std::string> cells = samples.titles();
  const auto num_targets = static_cast<std::size_t>(residuals.targets.size(1));
  for (std::size_t i = 0; i < num_targets; ++i)
    for (const char* const name : {"target", "predicted", "residual"})
      cells.push_back(numbered(name, i, num_targets));
  std::string text = csv_line(cells);
  const auto* target = residuals.targets.const_data_ptr<double>();
  const auto* predicted = residuals.predictions.const_data_ptr<double>();
  for (std::int64_t row = 0; row < residuals.samples.size(0); ++row) {
    cells = samples.cells(residuals.samples.const_data_ptr<std::int64_t>()[row]);
    for (std::size_t i = 0; i < num_targets; ++i, ++target, ++predicted) {
      cells.push_back(value_text(*target));
      cells.push_back(value_text(*predicted));
      cells.push_back(residual_text(*target, *predicted));
    }
    text += csv_line(cells);
  }
  return text;
}

std::string worst_text(const ValidationReport& report) {
  const SampleColumns samples(report.ids);
  std::vector<std::string> cells = samples.titles();
  const auto add = [&](std::vector<std::string> more) {
    cells.insert(cells.end(), more.begin(), more.end());
  };
  const std::size_t num_targets = report.worst.front().targets.size();
  for (std::size_t i = 0; i < num_targets; ++i)
    add({numbered("target", i, num_targets), numbered("predicted", i, num_targets)});
  const bool has_labels = report.worst.front().label >= 0;  // fields have neither labels nor targets
  if (has_labels) add({"label", "predicted", "probability", "confidence"});
  const bool has_rates = !std::isnan(report.worst.front().error_rate);
  if (has_rates) add({"error_rate"});
  add({"loss"});
  std::string text = csv_line(cells);
  for (const WorstPrediction& worst : report.worst) {
    cells = samples.cells(worst.sample);
    for (std::size_t i = 0; i < num_targets; ++i)
      add({value_text(worst.targets[i]), value_text(worst.predictions[i])});
    if (has_labels)
      add({class_text(report, worst.label), class_text(report, worst.predicted),
           value_text(worst.probability), value_text(worst.confidence)});
    if (has_rates) add({value_text(worst.error_rate)});
    add({value_text(worst.loss)});
    text += csv_line(cells);
  }
  return text;
}

std::string rollout_text(const RolloutErrors& errors) {
  std::string text = "step,rmse,relative_error\n";
  for (std::size_t step = 0; step < errors.rmse.size(); ++step)
    text += csv_line(std::vector<std::string>{std::to_string(step + 1), number_text(errors.rmse[step]),
                                              number_text(errors.relative[step])});
  return text;
}

std::string npy_bytes(TensorType type, const at::Tensor& tensor) {
  const at::Tensor values = tensor.contiguous();
  return npy_header(numpy_type_text(type), values.sizes())
      .append(static_cast<const char*>(values.const_data_ptr()), values.nbytes());
}

}  // namespace

void write_validation_report(const ValidationReport& report, const std::filesystem::path& folder) {
  remove_validation_report(folder);
  if (report.confusion_matrix.defined())
    write_file_atomically(folder / "confusion_matrix.csv", matrix_text(report));
  if (!report.class_counts.empty()) write_file_atomically(folder / "class_scores.csv", scores_text(report));
  if (!report.calibration.empty())
    write_file_atomically(folder / "calibration.csv", calibration_text(report));
  if (report.residuals.samples.defined())
    write_file_atomically(folder / "residuals.csv", residuals_text(report));
  if (!report.worst.empty()) write_file_atomically(folder / "worst_predictions.csv", worst_text(report));
  if (report.field_errors.defined())
    write_file_atomically(folder / "field_errors.npy", npy_bytes(TensorType::float32, report.field_errors));
  if (report.worst_pictures.defined())
    write_file_atomically(folder / "worst_pictures.npy", npy_bytes(TensorType::uint8, report.worst_pictures));
  if (report.worst_masks.defined())
    write_file_atomically(folder / "worst_masks.npy", npy_bytes(TensorType::uint8, report.worst_masks));
  if (!report.rollout.rmse.empty())
    write_file_atomically(folder / "rollout.csv", rollout_text(report.rollout));
}

void remove_validation_report(const std::filesystem::path& folder) noexcept {
  for (const char* const name : kReportFiles) {
    std::error_code ignored;
    std::filesystem::remove(folder / name, ignored);
  }
}

}  // namespace kindling
