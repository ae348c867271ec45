#include "kindling/training/validation_report.h"

#include <ATen/core/grad_mode.h>

#include <cstdint>
#include <vector>

#include "device/random_state.h"
#include "training/loop/sample_pictures.h"
#include "training/loop/validation_statistics.h"

namespace kindling {
namespace {

// Ends a pass over the batches.
struct StoppedPass {};

Prediction in_unit_of_data(Prediction batch, DataModule& data) {
  for (at::Tensor* const values : {&batch.outputs.tensors()[0], &batch.batch.tensors().back()})
    *values = data.unscale_targets(*values);
  return batch;
}

}  // namespace

double ClassCounts::precision() const {
  return static_cast<double>(num_both) / static_cast<double>(num_predicted);
}
double ClassCounts::recall() const { return static_cast<double>(num_both) / static_cast<double>(num_labels); }
double ClassCounts::f1() const {
  return 2 * static_cast<double>(num_both) / static_cast<double>(num_labels + num_predicted);
}

ValidationReport validation_report(Trainer& trainer, const std::shared_ptr<Module>& model, DataModule& data,
                                   const ValidationReportOptions& options) {
  ValidationReport report;
  const RandomStateGuard random_state(trainer.device());
  const at::NoGradGuard no_grad;
  const auto after_batch = [&] {
    if (options.stop.stop_requested()) throw StoppedPass();
    if (options.on_batch) options.on_batch();
  };
  const auto statistics = validation_statistics(*model, options);
  try {
    if (statistics)
      trainer.validate(model, data, [&](const Prediction& batch) {
        statistics->take(in_unit_of_data(batch, data));
        after_batch();
      });
    report.rollout = rollout_errors(trainer, model, data, after_batch);
  } catch (const StoppedPass&) {
    return {};
  }
  report.num_samples = report.rollout.num_starts;
  if (!statistics) return report;
  statistics->write_to(report);
  report.class_names = data.class_names();
  report.ids = data.val_ids();
  std::vector<std::int64_t> samples;
  for (const WorstPrediction& worst : report.worst) samples.push_back(worst.sample);
  report.worst_pictures = sample_pictures(data.val_dataloader(), samples);
  return report;
}

}  // namespace kindling
