#include "training/tuner/trial_batch.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "data/loading/validation_sets.h"
#include "data/loading/window_dataset.h"
#include "device/libtorch_errors.h"
#include "device/operator_threads.h"
#include "device/random_state.h"
#include "kindling/base/error.h"
#include "kindling/data/sample_random.h"
#include "kindling/training/trainer.h"
#include "training/loop/evaluate_loop.h"
#include "training/state/batch_source.h"
#include "training/state/training_context.h"
#include "training/tuner/trial_fit.h"

namespace kindling {
namespace {

constexpr std::int64_t kFewSamples = 7, kMostLabels = 100'000'000;

// The conditions in which a batch is tried.
struct Conditions {
  const TrainerOptions& of_run;
  TrainerOptions options{};
  std::int64_t num_ranks = 1;
  bool is_whole = false;  // all samples of a batch, else a few, and an odd number
  bool has_gradients = false;
};

bool validates_after_epochs(const TrainerOptions& trainer) {
  return trainer.fast_dev_run || !trainer.max_epochs ||
         trainer.check_val_every_n_epoch <= *trainer.max_epochs;
}

// True if the run calls the model's validation step, provided that there is validation data.
bool validates(const TrainerOptions& trainer) {
  return trainer.limit_val_batches != 0 &&
         (trainer.num_sanity_val_steps > 0 || validates_after_epochs(trainer));
}

// Options without effects on the process, such as its number of threads.
TrainerOptions options_of_run(const TrainerOptions& trainer) {
  TrainerOptions options = trial_options(trainer, /*num_steps=*/1);
  options.process_group.reset();
  options.num_threads.reset();
  options.gradient_shards = 1;
  options.step_graph = "off";
  options.profile = false;
  options.require_gpus = false;
  return options;
}

// Mixed precision computes the same shapes as full precision.
TrainerOptions options_on_cpu(TrainerOptions options) {
  options.num_gpus = 0;
  if (options.precision.ends_with("-mixed")) options.precision = "32-true";
  return options;
}

// Returns the labels; undefined unless they are integers in memory.
at::Tensor classes_in_memory(const Dataset& dataset) {
  const at::Tensor labels = labels_in_memory(dataset);
  if (!labels.defined()) return {};
  const bool are_classes = c10::isIntegralType(labels.scalar_type(), /*includeBool=*/false);
  return are_classes && labels.numel() > 0 && labels.numel() <= kMostLabels ? labels : at::Tensor();
}

std::int64_t sample_of_label(const at::Tensor& labels, const at::Tensor& position) {
  return position.item<std::int64_t>() / (labels.numel() / labels.size(0));
}

// Returns the size of an epoch's last batch; 0 if it is as large as the others, shared, or not part of the
// run.
std::int64_t size_of_last_batch(const DataLoader& loader, Stage stage, const Conditions& conditions) {
  const TrainerOptions& of_run = conditions.of_run;
  const std::int64_t all = loader.num_batches();
  const bool is_shared = conditions.num_ranks > 1 || of_run.gradient_shards > 1,
             is_shortened = of_run.fast_dev_run || of_run.overfit_batches;
  if (loader.is_endless() || loader.options().drop_last || all < 2 || is_shared || is_shortened) return 0;
  const bool is_training = stage == Stage::train;
  std::int64_t used = (is_training ? of_run.limit_train_batches : of_run.limit_val_batches).value_or(all);
  if (is_training)
    used = std::min(used, batches_of_run(of_run).value_or(all));
  else if (!validates_after_epochs(of_run))
    used = std::min(used, of_run.num_sanity_val_steps);
  const std::int64_t last = loader.num_samples() % loader.options().batch_size;
  return used < all ? 0 : std::min(last, loader.dataset().size());  // a sampler may have more
}

// The numbers of samples to try, of a batch and of the last one if it is smaller.
std::vector<std::int64_t> sizes_to_try(const DataLoader& loader, Stage stage, const Conditions& conditions) {
  const std::int64_t batch = std::min(loader.options().batch_size, loader.dataset().size()),
                     last = size_of_last_batch(loader, stage, conditions);
  std::vector<std::int64_t> sizes{conditions.is_whole ? batch : std::min(batch, kFewSamples)};
  if (last > 0) sizes.push_back(conditions.is_whole ? last : std::min(last, kFewSamples - 1));
  return sizes;
}

// The first samples in the order of the data set, and those with the smallest and the largest label.
Batch some_samples(const DataLoader& loader, std::int64_t count) {
  const Dataset& dataset = loader.dataset();
  const at::Tensor indices = at::arange(count, at::kLong);
  if (const at::Tensor labels = classes_in_memory(dataset); labels.defined()) {
    auto* const index = indices.mutable_data_ptr<std::int64_t>();
    const std::int64_t smallest = sample_of_label(labels, labels.argmin()),
                       largest = sample_of_label(labels, labels.argmax());
    if (smallest >= count && count > 1) index[count - 2] = smallest;
    if (largest >= count) index[count - 1] = largest;
  }
  Batch batch;
  const SampleStreams streams(loader.options().seed, /*epoch=*/0);
  const SampleStreams::Scope scope(streams);
  dataset.gather(indices, batch);
  batch.set_random_numbers(streams.numbers(indices, loader.options().num_random_numbers));
  return batch;
}

// Two batches with the same versions have the same tensors, and none has been written to in between.
std::vector<std::pair<const at::TensorImpl*, std::int64_t>> versions_of(const Batch& batch) {
  std::vector<std::pair<const at::TensorImpl*, std::int64_t>> versions;
  for (const at::Tensor& tensor : batch.tensors())
    versions.emplace_back(tensor.unsafeGetTensorImpl(), tensor.is_inference() ? 0 : tensor._version());
  return versions;
}

std::vector<std::string> names_in(EpochLog& log, const Batch& batch) {
  log.append({.global_step = 1, .weight = static_cast<double>(batch.num_valid())});
  log.move_to_host();
  std::vector<std::string> names;
  for (auto& [name, value] : log.means()) names.push_back(name);
  return names;
}

void try_training(TrialBatch& trial, const std::shared_ptr<TrainingContext>& context, Batch batch,
                  bool has_gradients) {
  EpochLog log(context->device());
  const LogScope scope(context->calls, &log);
  log.column("train_loss");
  {
    const at::AutoGradMode gradients(has_gradients);
    const AutocastScope autocast(context->placement.precision, context->device());
    trial.model->train();
    log.mark("train_loss", trial.model->training_step(batch));
  }
  trial.names = names_in(log, batch);
  trial.repeated_names = log.replaced_names();
  trial.has_trained = true;
}

// How the values of a validation set are named in the records.
struct ValidationNames {
  const std::vector<std::string>& of_training;
  const std::string& suffix;
};

void try_validation(TrialBatch& trial, const std::shared_ptr<TrainingContext>& context, const Batch& batch,
                    const ValidationNames& names) {
  EpochLog log(context->device());
  const EvaluationScope scope(*trial.model, context, log);
  {
    const AutocastScope autocast(context->placement.precision, context->device());
    with_libtorch_errors(kTrialOfValidation,
                         [&] { with_batch_in_errors(batch, [&] { trial.model->validation_step(batch); }); });
  }
  const auto add = [](std::vector<std::string>& list, const std::string& name) {
    if (std::ranges::find(list, name) == list.end()) list.push_back(name);
  };
  for (const std::string& name : names_in(log, batch)) {
    const bool is_in_training = std::ranges::find(names.of_training, name) != names.of_training.end();
    add(trial.names, name_in_set(is_in_training ? "val_" + name : name, names.suffix));
  }
  for (const std::string& name : log.replaced_names()) add(trial.repeated_names, name);
  trial.has_validated = true;
}

TrialBatch try_in(const Conditions& conditions, std::shared_ptr<Module> model, DataModule& data,
                  bool has_validation) {
  Trainer owner(conditions.options);
  const auto context = make_context(owner, conditions.options);
  const auto train = data.train_dataloader();
  context->state.num_train_batches = train->num_batches();
  TrialBatch trial{.model = std::move(model)};
  attach(*trial.model, context);
  give_precision(*trial.model, context->placement.precision);
  const auto batches_of = [&](const DataLoader& loader, Stage stage) {
    std::vector<Batch> batches;
    for (const std::int64_t size : sizes_to_try(loader, stage, conditions)) {
      const Batch samples = some_samples(loader, size);
      const auto before = versions_of(samples);
      batches.push_back(prepared_batch(samples, &data, stage, context->placement));
      trial.has_transformed = trial.has_transformed || versions_of(batches.back()) != before;
    }
    return batches;
  };
  if (!trial.model->updates_manually())
    for (Batch& batch : batches_of(*train, Stage::train))
      try_training(trial, context, std::move(batch), conditions.has_gradients);
  const std::vector<std::string> of_training = trial.names;
  for (const ValidationSet& set : has_validation ? validation_sets_of(data) : std::vector<ValidationSet>())
    for (const Batch& batch : batches_of(*set.loader, Stage::val))
      try_validation(trial, context, batch, {of_training, set.suffix});
  return trial;
}

// Throws ConfigError if the data has no end, and nothing limits an epoch.
void require_limits(const TrainerOptions& trainer, DataModule& data, bool has_validation) {
  limit_of_epoch(*data.train_dataloader(), Stage::train, trainer.limit_train_batches,
                 batches_of_run(trainer));
  for (const ValidationSet& set : has_validation ? validation_sets_of(data) : std::vector<ValidationSet>())
    limit_of_epoch(*set.loader, Stage::val, trainer.limit_val_batches);
}

}  // namespace

std::optional<std::int64_t> sample_with_largest_label(const Dataset& dataset) {
  const at::Tensor labels = classes_in_memory(dataset);
  return labels.defined() ? std::optional(sample_of_label(labels, labels.argmax())) : std::nullopt;
}

Batch prepared_sample(DataModule& data, const Dataset& dataset, std::int64_t index, Stage stage) {
  Batch batch;
  const SampleStreams streams;
  const SampleStreams::Scope scope(streams);
  const at::Tensor indices = at::full({1}, index, at::kLong);
  dataset.gather(indices, batch);
  batch.set_random_numbers(streams.numbers(indices, data.num_random_numbers(stage)));
  return prepared_batch(std::move(batch), &data, stage, Placement());
}

TrialBatch try_batch(const TrainerOptions& trainer, const ModelFactory& make_model, DataModule& data,
                     std::int64_t num_ranks) {
  return with_libtorch_errors(kTrialOfTraining, [&] {
    const RandomStateGuard random_state(cpu());
    // Only if the run sets the number: to set and restore it affects MKL, and so the last bits.
    std::optional<OperatorThreads> threads;
    if (trainer.num_threads) threads.emplace(static_cast<int>(*trainer.num_threads));
    const TrainerOptions of_run = options_of_run(trainer), on_cpu = options_on_cpu(of_run);
    const bool has_validation = validates(trainer);
    if (!trainer.fast_dev_run) require_limits(trainer, data, has_validation);
    const auto model = make_model();
    bool is_of_device = false;
    try {
      return try_in({.of_run = trainer, .options = on_cpu, .num_ranks = num_ranks}, model, data,
                    has_validation);
    } catch (const std::exception& error) {
      // Kindling refuses the same batches on every device, and an error of a GPU's kernel would be vague.
      is_of_device = dynamic_cast<const DataError*>(&error) == nullptr &&
                     dynamic_cast<const ConfigError*>(&error) == nullptr;
    }
    try {
      const Conditions first_step{.of_run = trainer,
                                  .options = is_of_device ? of_run : on_cpu,
                                  .num_ranks = num_ranks,
                                  .is_whole = true,
                                  .has_gradients = true};
      return try_in(first_step, make_model(), data, has_validation);
    } catch (const std::exception& error) {
      if (!comes_from_memory(error)) throw;
      return TrialBatch{.lacked_memory = true};  // the run reports it, and may have more memory
    }
  });
}

}  // namespace kindling
