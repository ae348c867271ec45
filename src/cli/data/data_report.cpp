#include "cli/data/data_report.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/isnan.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "data/loading/stored_dataset.h"
#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "kindling/data/dataset.h"

namespace kindling {
namespace {

constexpr std::int64_t kSamplesOfEndlessData = 10'000;

// Sums that become a TensorReport.
struct TensorSums {
  TensorReport report{.min = std::numeric_limits<double>::infinity(),
                      .max = -std::numeric_limits<double>::infinity()};
  double sum = 0;
  std::int64_t num_finite = 0;

  void add(const at::Tensor& samples) {
    std::vector<std::int64_t> shape = samples.sizes().slice(1).vec();
    if (num_finite == 0 && report.shape.empty()) {
      report.dtype = samples.scalar_type();
      report.shape = std::move(shape);
    } else if (report.shape.size() == shape.size()) {
      for (std::size_t i = 0; i < shape.size(); ++i)
        if (report.shape[i] != shape[i]) report.shape[i] = -1;
    }
    const at::Tensor values = (samples.is_complex() ? samples.abs() : samples).to(at::kDouble);
    const at::Tensor is_finite = at::isfinite(values), finite = values.masked_select(is_finite);
    report.num_missing += at::isnan(values).sum().item<std::int64_t>();
    report.num_infinite += values.isinf().sum().item<std::int64_t>();
    if (finite.numel() == 0) return;
    num_finite += finite.numel();
    sum += finite.sum().item<double>();
    report.min = std::min(report.min, finite.min().item<double>());
    report.max = std::max(report.max, finite.max().item<double>());
  }

  TensorReport result() const {
    TensorReport result = report;
    const double none = std::numeric_limits<double>::quiet_NaN();
    if (num_finite == 0) result.min = result.max = none;
    result.mean = num_finite == 0 ? none : sum / static_cast<double>(num_finite);
    return result;
  }
};

class SetReader {
 public:
  SetReader(SetReport& report, const Dataset& dataset, bool has_columns, std::size_t num_names)
      : report_(report),
        dataset_(dataset),
        has_columns_(has_columns),
        num_names_(static_cast<std::int64_t>(num_names)) {}

  void read() {
    warn_of_files();
    const std::int64_t at_once = samples_at_once(dataset_);
    for (std::int64_t begin = 0; begin < report_.num_samples; begin += at_once)
      read_range(begin, std::min(begin + at_once, report_.num_samples));
    for (const TensorSums& one : sums_) report_.tensors.push_back(one.result());
    for (const TensorSums& one : columns_) report_.columns.push_back(one.result());
    if (!has_classes_) report_.classes.clear();
  }

 private:
  void warn_of_files() const {
    if (const auto* const stored = dynamic_cast<const StoredDataset*>(&dataset_))
      log_warning(report_.name + ": all samples are read from their files, " +
                  std::to_string(stored->bytes_per_sample() * report_.num_samples) + " bytes");
  }

  // A range that cannot be gathered at once is halved, down to the broken samples.
  void read_range(std::int64_t begin, std::int64_t end) {
    Batch batch;
    try {
      batch = dataset_.slice(begin, end);
    } catch (const DataError& error) {
      if (end - begin > 1) {
        const std::int64_t middle = begin + (end - begin) / 2;
        read_range(begin, middle);
        read_range(middle, end);
        return;
      }
      ++report_.num_broken;
      if (report_.broken.size() < kMostBrokenSamples) report_.broken.push_back({begin, error.what()});
      return;
    }
    sums_.resize(std::max(sums_.size(), batch.tensors().size()));
    for (std::size_t i = 0; i < batch.tensors().size(); ++i) sums_[i].add(batch.tensors()[i]);
    if (has_columns_) add_columns(batch.tensors().front());
    if (batch.tensors().size() > 1) add_classes(batch.tensors().back());
  }

  void add_columns(const at::Tensor& rows) {
    columns_.resize(static_cast<std::size_t>(rows.size(-1)));
    for (std::size_t i = 0; i < columns_.size(); ++i)
      columns_[i].add(rows.select(-1, static_cast<std::int64_t>(i)));
  }

  // Several labels per sample count for each of their classes.
  void add_classes(const at::Tensor& labels) {
    if (has_classes_ && labels.dim() == 2 && labels.size(1) == num_names_ &&
        labels.scalar_type() == at::kByte)
      return add_counts(labels.sum(0, false, at::kLong));
    has_classes_ = has_classes_ && labels.dim() == 1 &&
                   at::isIntegralType(labels.scalar_type(), /*includeBool=*/false) && labels.numel() > 0 &&
                   labels.min().item<std::int64_t>() >= 0 &&
                   labels.max().item<std::int64_t>() < kMostReportedClasses;
    if (!has_classes_) return;
    add_counts(at::bincount(labels.to(at::kLong)));
  }

  void add_counts(const at::Tensor& counts) {
    if (report_.classes.size() < static_cast<std::size_t>(counts.numel()))
      report_.classes.resize(static_cast<std::size_t>(counts.numel()));
    for (std::int64_t i = 0; i < counts.numel(); ++i)
      report_.classes[static_cast<std::size_t>(i)] += counts.const_data_ptr<std::int64_t>()[i];
  }

  SetReport& report_;
  const Dataset& dataset_;
  bool has_columns_;
  std::int64_t num_names_;  // of classes
  std::vector<TensorSums> sums_, columns_;
  bool has_classes_ = true;
};

}  // namespace

SetReport report_of(std::string name, const DataLoader& loader, bool has_columns, std::size_t num_names) {
  SetReport report{
      .name = std::move(name), .num_samples = loader.dataset().size(), .num_batches = loader.num_batches()};
  if (loader.is_endless()) {
    report.name += ", the first samples";
    report.num_samples = kSamplesOfEndlessData;
    report.num_batches =
        (kSamplesOfEndlessData + loader.options().batch_size - 1) / loader.options().batch_size;
  }
  SetReader(report, loader.dataset(), has_columns, num_names).read();
  return report;
}

}  // namespace kindling
