#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/data/data_module.h"
#include "kindling/nn/module.h"
#include "kindling/training/rollout_validation.h"
#include "kindling/training/stop_token.h"
#include "kindling/training/trainer.h"

namespace kindling {

struct ValidationReportOptions {
  std::int64_t max_classes = 40;  // of the confusion matrix; with more there is none
  std::int64_t num_bins = 15;     // of the calibration
  std::int64_t num_worst = 20;    // samples with the largest losses
  // Of more residuals, every second, fourth, … sample is kept: so many that there are at most as many.
  std::int64_t max_residuals = 100'000;
  StopToken stop{};                  // ends the pass early; the report is then empty
  std::function<void()> on_batch{};  // called after each batch
};

// A validation sample that the model predicts badly.
struct WorstPrediction {
  std::int64_t sample = 0;  // index in the data set
  // Of a classifier: minus the logarithm of the label's probability, without class weights and the like. Of a
  // regressor: the mean of the squared errors. NaN if an output is NaN.
  double loss = 0;
  std::vector<double> targets{}, predictions{};  // of a regressor; empty: of a field
  std::int64_t label = -1, predicted = -1;       // of a classifier; -1: no class, as an output is NaN
  double probability = 0, confidence = 0;        // of the label, and of the predicted class
  // Of a classifier with several labels per sample, such as pixels: the fraction of them that is predicted
  // wrong. `loss` is then their mean; labels that are ignored do not count. NaN: of other models.
  double error_rate = std::numeric_limits<double>::quiet_NaN();
};

// The labels whose predicted class has a probability (confidence) in (low, high].
struct CalibrationBin {
  double low = 0, high = 1;
  std::int64_t num_labels = 0;
  double mean_confidence = 0, accuracy = 0;  // NaN without labels
};

// How often the samples have a class, of several per sample, and are predicted to have it (probability >
// 0.5).
struct ClassCounts {
  std::int64_t num_labels = 0, num_predicted = 0, num_both = 0;

  double precision() const;  // of the predicted ones, the fraction with the label; NaN without any
  double recall() const;     // of the labels, the fraction that is predicted; NaN without any
  double f1() const;         // 2·both / (labels + predicted); NaN without any
};

// What a regressor predicts, in the order of the data.
struct Residuals {
  at::Tensor samples{};                 // int64 [n], indices in the data set; undefined: there are none
  at::Tensor targets{}, predictions{};  // float64 [n, targets]
  std::int64_t stride = 1;              // one of so many samples is kept
};

// How a model predicts the validation samples.
struct ValidationReport {
  std::int64_t num_samples = 0;
  std::vector<std::string> class_names{};  // empty: classes have no names
  SampleIds ids{};                         // of all samples; empty: samples have no names
  // int64 [classes, classes]: how many labels of a class (row) are predicted as each class (column).
  // Undefined for other models and for too many classes.
  at::Tensor confusion_matrix{};
  // Of a classifier: bins of equal width. The expected calibration error is the mean of |accuracy -
  // mean_confidence|, weighted by the labels of the bins (Guo et al., "On Calibration of Modern Neural
  // Networks", 2017). Outputs with NaN do not count.
  std::vector<CalibrationBin> calibration{};
  double ece = 0;
  std::vector<ClassCounts> class_counts{};  // of a classifier with several labels per sample (multi_label)
  Residuals residuals{};
  // Of a regressor of fields: float32 [channels, height, width] (height 1 in one dimension), the root of the
  // mean squared error of each cell over the samples with a target there; NaN without any, and infinity if an
  // output is not finite. Undefined for other models, for volumes, and for samples of several sizes.
  at::Tensor field_errors{};
  // The largest loss first; of equal ones the first in the data.
  std::vector<WorstPrediction> worst{};
  // The samples of `worst` as pictures, uint8 [samples, height, width, channels] in their order, reduced to
  // at most 128 x 128 pixels. Undefined if the first tensor of a sample, as the data set has it, is not uint8
  // [1 or 3, height, width], for images of several sizes, and for data sets that are not thread-safe.
  at::Tensor worst_pictures{};
  // Of a segmentation with at most 255 classes: the labels and the predictions of the samples of `worst`,
  // uint8 [samples, 2, height, width]; 255: ignored, or an output is NaN. Of more than 128 x 128 pixels,
  // every second, third, … row and column is kept. Undefined for masks of several sizes.
  at::Tensor worst_masks{};
  RolloutErrors rollout{};  // of any model, if the data has rollouts

  bool is_empty() const noexcept {
    return calibration.empty() && class_counts.empty() && worst.empty() && rollout.rmse.empty() &&
           !field_errors.defined();
  }
};

// Makes one pass over the validation samples of `data` and returns how `model` predicts them. Counts on the
// device and copies the results to the host at the end. Draws no random numbers and leaves the model as it
// was.
//
// - A classifier: a Classifier, or an ExportedModule with a classification loss. Labels that are ignored
//   (ClassLossOptions::ignore_index) do not count. Of labels that are class probabilities, the largest
//   counts. With several labels per sample, such as pixels, an ExportedModule has nothing.
// - A regressor (Module::is_regressor()) with outputs [batch] or [batch, targets], at most 64 targets, or
//   with fields: [batch, …] of three or more dimensions, or [batch, values]. Targets that are NaN or that an
//   ExportedModule ignores do not count; samples without others are skipped. Fields have worst predictions
//   and, in one or two dimensions of space (Module::space_dims()), the errors of their cells.
//
// Targets and predictions of a regressor are in the unit of the data (DataModule::unscale_targets()).
//
// - A classifier with several labels per sample (ClassLossOptions::multi_label): the counts of each class.
//
// The report of other models has only the errors of rollouts. Throws DataError
// without validation samples, and what the model throws. Each rank that calls it evaluates all samples.
KINDLING_API ValidationReport validation_report(Trainer& trainer, const std::shared_ptr<Module>& model,
                                                DataModule& data,
                                                const ValidationReportOptions& options = {});

// Writes what the report has into a directory, and removes the files of an earlier report:
//   confusion_matrix.csv    label, then a column for each class
//   class_scores.csv        class, labels, predicted, both, precision, recall, f1
//   calibration.csv         bin, from, to, samples, mean_confidence, accuracy
//   residuals.csv           sample, its name, target, predicted, and residual = target - predicted
//   field_errors.npy        the errors of fields, float32 [channels, height, width]
//   worst_predictions.csv   sample, its name, what was expected and predicted (not of fields), and the loss
//   worst_pictures.npy      the pictures of these samples, uint8 [samples, height, width, channels]
//   worst_masks.npy         their labels and predictions, uint8 [samples, 2, height, width]
//   rollout.csv             step, rmse, relative_error
// The column of names has the title of `ids`, or "id" if another column has that title.
// Throws Error.
KINDLING_API void write_validation_report(const ValidationReport& report,
                                          const std::filesystem::path& folder);
// Removes these files. Ignores errors.
KINDLING_API void remove_validation_report(const std::filesystem::path& folder) noexcept;

}  // namespace kindling
