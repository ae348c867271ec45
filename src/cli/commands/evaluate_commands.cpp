#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands/commands.h"
#include "cli/commands/prediction_file.h"
#include "cli/commands/prediction_writer.h"
#include "cli/run/loaded_config.h"
#include "cli/run/process_settings.h"
#include "cli/run/start_files.h"
#include "cli/run/weights.h"
#include "data/loading/window_dataset.h"
#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "kindling/base/number_text.h"
#include "kindling/base/text.h"
#include "kindling/data/dataset.h"
#include "kindling/data/prediction_origin.h"
#include "kindling/interop/exported_module.h"
#include "kindling/nn/classifier.h"
#include "kindling/training/rollout_validation.h"
#include "kindling/training/trainer.h"
#include "nn/class_values.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

// What --weights names, else the run; nothing without both. Throws CheckpointError for a file that does not
// exist.
std::optional<WeightsSource> named_weights(const Request& request) {
  const std::string& words = request.weights.empty() ? request.evaluation.run : request.weights;
  if (words.empty()) return std::nullopt;
  WeightsSource source = find_weights(words);
  if (!fs::exists(source.file))
    throw CheckpointError({.place = words,
                           .found = "no such file or directory",
                           .wanted = "a run such as runs/digits/0001, a checkpoint, or a weights file"});
  return source;
}

// Returns the request with the config of the run before other files. Without -c the run may also be that of
// --weights.
Request with_config_of_run(Request request, const std::optional<WeightsSource>& weights) {
  const std::string& words = request.evaluation.run;
  fs::path run;
  if (!words.empty())
    run = request.weights.empty()   ? run_with(*weights)
          : fs::is_directory(words) ? run_at(words)
                                    : run_with(find_weights(words));
  else if (request.configs.empty() && weights)
    run = run_with(*weights);
  if (run.empty() && !words.empty())
    throw ConfigError({.place = words,
                       .found = fs::exists(words) ? "neither a run directory nor a file of a run"
                                                  : "no such file or directory",
                       .wanted = "a run directory, which contains config.toml",
                       .remedy = "a weights file alone needs a config: kindling " + request.command +
                                 " -c CONFIG --weights FILE"});
  if (run.empty() && request.configs.empty() && request.overrides.empty())
    throw ConfigError({.place = request.command,
                       .found = "there is no run and no config",
                       .wanted = "kindling " + request.command + " RUN, or -c CONFIG --weights FILE",
                       .remedy = "for example kindling " + request.command + " runs/digits/0001"});
  if (!run.empty()) request.configs.insert(request.configs.begin(), run / "config.toml");
  return request;
}

enum class Computes { outputs, loss };

// Calls use(trainer, model, data, class_names), unless there is nothing to run. The weights come from
// --weights or the run, else from model.init_weights, else from the program of an exported model; without all
// of them, throws ConfigError.
template <class Use>
int with_weights(const CommandContext& context, Computes computes, Use use) {
  std::optional<WeightsSource> weights = named_weights(context.request);
  const Request request = with_config_of_run(context.request, weights);
  const LoadedConfig loaded = load_config(request, context.registry, ConfigUse::evaluation);
  if (loaded.is_query) return 0;
  const RunConfig& config = *loaded.config;
  apply(config.process);
  const bool is_named = weights.has_value();
  const auto model = config.make_model();
  const bool has_own = dynamic_cast<const ExportedModule*>(model.get()) != nullptr;
  if (!is_named && !config.model.init_weights && !has_own)
    throw ConfigError({.place = request.command,
                       .found = "there are no weights",
                       .wanted = "a run, --weights RUN|FILE, or model.init_weights"});
  const StartWeights start = is_named                    ? StartWeights{*weights}
                             : config.model.init_weights ? load_init_weights(config, *model)
                                                         : StartWeights{};
  if (!request.quiet) print_start(start);
  const auto data =
      is_named ? make_data_for(config, start.file, *model, request.evaluation.input) : config.make_data();
  if (is_named)
    load_weights_from(*model, start.file);
  else if (data->input_transform() && !start.file.empty() && has_transform(start.file))
    throw ConfigError(
        {.place = "model.init_weights",
         .found = "the weights belong to a table, whose columns and statistics are in the file",
         .wanted = "kindling " + request.command + " -c CONFIG --weights FILE, which uses them"});
  if (computes == Computes::loss) give_class_weights(config, *model, *data);
  const std::vector<std::string> class_names = trained_class_names(start, *data);
  Trainer trainer(config.trainer_options());
  use(trainer, model, *data, class_names);
  return 0;
}

template <class Values>
void print_metrics(const Values& metrics) {
  for (const auto& [name, value] : metrics) std::cout << name << " " << number_text(value) << "\n";
}

// True for the same data in memory.
bool is_same(const Dataset& a, const Dataset& b) {
  if (&a == &b) return true;
  const std::vector<at::Tensor> first = tensors_in_memory(a), second = tensors_in_memory(b);
  return !first.empty() && std::ranges::equal(first, second, [](const at::Tensor& x, const at::Tensor& y) {
    return x.const_data_ptr() == y.const_data_ptr() && x.sizes() == y.sizes();
  });
}

void warn_without_test_data(DataModule& data) {
  const auto test = data.test_dataloader(), validation = data.val_dataloader();
  if (test && validation && is_same(test->dataset(), validation->dataset()))
    log_warning("there are no test data: these are the results for the validation data");
}

bool is_classifier(const Module& model) { return dynamic_cast<const Classifier*>(&model) != nullptr; }

// Counts outputs with a NaN, which have no class, and warns of them at the end.
class NanCount {
 public:
  void add(const at::Tensor& outputs) {
    const at::Tensor has_nan = class_logits(outputs).isnan().any(1);
    number_ += has_nan.sum().item<std::int64_t>();
    total_ += has_nan.numel();
  }
  void warn() const {
    if (number_ > 0)
      log_warning("predict: " + std::to_string(number_) + " of " + std::to_string(total_) +
                  " outputs contain NaN, and have no class");
  }

 private:
  std::int64_t number_ = 0, total_ = 0;
};

// A yes or no of each class has no single class: its labels are as many numbers as the outputs.
Predictions predictions_of(const at::Tensor& outputs, const std::string& what, const Module& model) {
  const bool has_several = has_several_labels(model);
  Predictions predictions;
  if (is_classifier(model) && !has_several) predictions.classes = classes_without_nan(outputs);
  if (what == "labels" && !has_several) return predictions;
  predictions.name = what;
  predictions.values = what == "outputs"  ? outputs
                       : what == "labels" ? labels_of(model, outputs)
                                          : probabilities_of(model, outputs);
  return predictions;
}

// Adds the classes that each sample has, if they have names.
void add_several(const at::Tensor& outputs, const std::vector<std::string>& class_names, const Module& model,
                 Predictions& predictions) {
  if (!outputs.defined() || outputs.dim() != 2 || !has_several_labels(model) ||
      std::ssize(class_names) != outputs.size(1))
    return;
  predictions.several = labels_of(model, outputs).cpu();
  predictions.class_names = class_names;
}

// Adds "hidden" or "output.1", "past.0.1" of nested outputs.
void name_outputs(const BatchStructure& structure, const std::string& name, std::vector<std::string>& names) {
  if (structure.kind == BatchStructure::Kind::leaf) return names.push_back(name.empty() ? "output" : name);
  const bool is_map = structure.kind == BatchStructure::Kind::map;
  for (std::size_t i = 0; i < structure.parts.size(); ++i) {
    const std::string part = is_map ? structure.names[i] : std::to_string(i);
    const std::string before = !name.empty() ? name + "." : is_map ? "" : "output.";
    name_outputs(*structure.parts[i], before + part, names);
  }
}

// Collects an output of all batches, if it has a row per sample.
class OutputRows {
 public:
  void append(const at::Tensor& output, std::int64_t samples) {
    has_rows_ = has_rows_ && output.dim() > 0 && output.size(0) == samples &&
                (rows_.empty() || rows_[0].sizes().slice(1) == output.sizes().slice(1));
    has_rows_ ? rows_.push_back(output) : rows_.clear();
  }
  bool has_rows() const { return has_rows_; }
  at::Tensor take() { return at::cat(std::exchange(rows_, {})); }

 private:
  bool has_rows_ = true;
  std::vector<at::Tensor> rows_{};
};

void warn_of_omitted(const std::string& output) {
  log_warning("predict: the output '" + one_line(output) +
              "' is omitted, because it has no row per sample, or rows of different shapes");
}

// Predicts all outputs of a program; without values if the first one has no row per sample.
Predictions all_outputs(Trainer& trainer, const std::shared_ptr<Module>& model, DataModule& data) {
  std::vector<std::string> names;
  std::vector<OutputRows> outputs;
  trainer.predict(model, data, [&](const Prediction& of_batch) {
    const std::span<const at::Tensor> tensors = of_batch.outputs.tensors();
    if (names.empty()) name_outputs(*of_batch.outputs.structure(), "", names);
    outputs.resize(tensors.size());
    for (std::size_t i = 0; i < tensors.size(); ++i) outputs[i].append(tensors[i], of_batch.indices.size(0));
  });
  Predictions predictions{.name = "outputs"};
  if (outputs.empty() || !outputs[0].has_rows()) return predictions;
  predictions.values = outputs[0].take();
  for (std::size_t i = 1; i < outputs.size(); ++i)
    if (outputs[i].has_rows())
      predictions.more.emplace_back(names[i], outputs[i].take());
    else
      warn_of_omitted(names[i]);
  return predictions;
}

// Returns the names of the samples of a batch, or their numbers.
std::vector<std::string> names_of(const at::Tensor& indices, const SampleIds& ids) {
  std::vector<std::string> names;
  for (std::int64_t i = 0; i < indices.size(0); ++i) {
    const auto index = indices[i].item<std::int64_t>();
    names.push_back(ids.name == "file" ? ids.values.at(static_cast<std::size_t>(index))
                                       : std::to_string(index));
  }
  return names;
}

// Returns undefined if the outputs are not classes.
at::Tensor mask_classes(const Module& model, const at::Tensor& outputs) {
  const auto* const program = dynamic_cast<const ExportedModule*>(&model);
  const bool has_classes =
      program == nullptr ? is_classifier(model) && !has_several_labels(model) : program->has_class_outputs();
  return has_classes ? classes_without_nan(outputs) : at::Tensor();
}

// Batch by batch, because the outputs of all pixels may not fit in memory. Returns the number of masks.
std::int64_t predict_masks(const fs::path& folder, Trainer& trainer, const std::shared_ptr<Module>& model,
                           DataModule& data) {
  const SampleIds ids = data.predict_ids();
  std::int64_t count = 0;
  trainer.predict(model, data, [&](const Prediction& batch) {
    write_masks(mask_classes(*model, batch.outputs.tensors()[0]), names_of(batch.indices, ids), folder);
    count += batch.indices.size(0);
  });
  return count;
}

PredictionOrigin origin_of(DataModule& data) {
  auto* const source = dynamic_cast<PredictionOriginSource*>(&data);
  return source == nullptr ? PredictionOrigin{} : source->predict_origin();
}

// Returns how many samples Trainer::predict() will predict.
std::int64_t num_samples_to_predict(const Trainer& trainer, DataModule& data) {
  data.prepare();
  const std::shared_ptr<DataLoader> loader = data.predict_dataloader();
  if (!loader) return 0;  // which Trainer::predict() refuses
  const std::int64_t count = loader->dataset().size(), batch_size = loader->options().batch_size;
  const std::optional<std::int64_t> limit = trainer.options().limit_predict_batches;
  return limit && *limit <= count / batch_size ? *limit * batch_size : count;
}

// Adds the outputs of a program after the first that have a row per sample. `has_rows`: of the first batch.
void add_outputs(const Prediction& batch, std::vector<bool>& has_rows, Predictions& predictions) {
  const std::span<const at::Tensor> tensors = batch.outputs.tensors();
  std::vector<std::string> names;
  name_outputs(*batch.outputs.structure(), "", names);
  for (std::size_t i = 1; i < tensors.size(); ++i) {
    if (has_rows.size() < i) {
      has_rows.push_back(tensors[i].dim() > 0 && tensors[i].size(0) == batch.indices.size(0));
      if (!has_rows.back()) warn_of_omitted(names[i]);
    }
    if (has_rows[i - 1]) predictions.more.emplace_back(names[i], tensors[i]);
  }
}

// Writes each batch to the file, so that memory does not depend on the number of samples. Returns that
// number.
std::int64_t predict_in_parts(const EvaluationRequest& asked, Trainer& trainer,
                              const std::shared_ptr<Module>& model, DataModule& data,
                              const std::vector<std::string>& class_names) {
  const bool is_program = dynamic_cast<const ExportedModule*>(model.get()) != nullptr;
  const std::int64_t count = num_samples_to_predict(trainer, data);
  std::optional<PredictionWriter> writer;
  std::vector<bool> has_rows;
  NanCount nan;
  trainer.predict(model, data, [&](const Prediction& batch) {
    // Labels of a program that are integers are classes.
    const bool has_classes =
        is_classifier(*model) || (asked.input.empty() && batch.batch.tensors().size() > 1 &&
                                  !batch.batch.labels().is_floating_point());
    if (!writer)
      writer.emplace(PredictionWriter::Options{.file = asked.out,
                                               .num_samples = count,
                                               .origin = origin_of(data),
                                               .ids = data.predict_ids(),
                                               .estimates_targets = !has_classes});
    const at::Tensor& outputs = batch.outputs.tensors()[0];
    if (is_classifier(*model)) nan.add(outputs);
    Predictions predictions = predictions_of(outputs, asked.values, *model);
    if (is_classifier(*model)) add_several(outputs, class_names, *model, predictions);
    if (is_program) add_outputs(batch, has_rows, predictions);
    writer->write(predictions, batch.indices);
  });
  nan.warn();
  writer.value().finish();
  return count;
}

void predict(const Request& request, Trainer& trainer, const std::shared_ptr<Module>& model, DataModule& data,
             const std::vector<std::string>& class_names) {
  const EvaluationRequest& asked = request.evaluation;
  if (!is_classifier(*model) && asked.values != "outputs")
    throw ConfigError({.place = "--values " + asked.values,
                       .found = model->name() + " is not a classifier",
                       .wanted = "--values outputs"});
  data.prepare();
  require_other_file(asked.out, origin_of(data).data_files);
  const auto report = [&](std::int64_t count) {
    if (!request.quiet)
      std::cout << "predictions for " << count << " samples written to " << asked.out.string() << "\n";
  };
  if (is_mask_folder(asked.out)) {
    const std::int64_t count = predict_masks(asked.out, trainer, model, data);
    if (!request.quiet) std::cout << count << " masks written to " << asked.out.string() << "\n";
    return;
  }
  if (is_written_in_parts(asked.out))
    return report(predict_in_parts(asked, trainer, model, data, class_names));
  const bool has_more =
      keeps_tensors(asked.out) && dynamic_cast<const ExportedModule*>(model.get()) != nullptr;
  Predictions predictions = has_more ? all_outputs(trainer, model, data) : Predictions{};
  at::Tensor outputs;
  if (!predictions.values.defined()) {
    outputs = trainer.predict(model, data);
    NanCount nan;
    if (is_classifier(*model)) nan.add(outputs);
    nan.warn();
    predictions = predictions_of(outputs, asked.values, *model);
  }
  if (predictions.classes.defined()) predictions.class_names = class_names;
  if (is_classifier(*model)) add_several(outputs, class_names, *model, predictions);
  predictions.ids = data.predict_ids();
  if (asked.out.empty()) {
    std::cout << csv_of(predictions);
    return;
  }
  write_predictions(predictions, asked.out);
  report((predictions.values.defined() ? predictions.values : predictions.classes).size(0));
}

}  // namespace

int validate_command(const CommandContext& context) {
  return with_weights(context, Computes::loss,
                      [](Trainer& trainer, const auto& model, DataModule& data, const auto&) {
                        print_metrics(trainer.validate(model, data));
                        print_metrics(named_values(rollout_errors(trainer, model, data)));
                      });
}

int test_command(const CommandContext& context) {
  return with_weights(context, Computes::loss,
                      [](Trainer& trainer, const auto& model, DataModule& data, const auto&) {
                        warn_without_test_data(data);
                        print_metrics(trainer.test(model, data));
                      });
}

int predict_command(const CommandContext& context) {
  const Request& request = context.request;
  if (!request.evaluation.out.empty()) check_prediction_file(request.evaluation.out);
  return with_weights(context, Computes::outputs,
                      [&](Trainer& trainer, const auto& model, DataModule& data, const auto& class_names) {
                        predict(request, trainer, model, data, class_names);
                      });
}

}  // namespace kindling
