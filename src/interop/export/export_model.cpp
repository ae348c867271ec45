#include <ATen/core/Tensor.h>
#include <ATen/ops/_assert_tensor_metadata.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <typeinfo>
#include <utility>

#include "data/loading/first_batch.h"
#include "interop/export/export_forward.h"
#include "kindling/base/error.h"
#include "kindling/base/json.h"
#include "kindling/data/data_module.h"
#include "kindling/data/input_transform.h"
#include "kindling/interop/export_program.h"
#include "kindling/interop/exported_backbone.h"
#include "kindling/interop/exported_module.h"
#include "kindling/nn/classifier.h"
#include "nn/class_values.h"

namespace kindling {
namespace {

constexpr const char* kClassNames = "class_names";

bool is_exported_classifier(const Module& model) {
  return dynamic_cast<const Classifier*>(&model) != nullptr;
}

void check_exported_values(const Module& model, const ExportOptions& options) {
  if (options.values == ExportedValues::outputs) return;
  const std::string place = "export to " + options.path.string();
  if (!is_exported_classifier(model))
    throw ConfigError({.place = place,
                       .found = model.name() + " is not a classifier, so it has no probabilities or labels",
                       .wanted = "its outputs"});
  if (options.train)
    throw ConfigError({.place = place,
                       .found = "a program in training mode returns the outputs, which the loss takes",
                       .wanted = "its outputs, or evaluation mode"});
}

at::Tensor values_of(const Module& model, const at::Tensor& outputs, ExportedValues values) {
  return values == ExportedValues::labels ? labels_of(model, outputs) : probabilities_of(model, outputs);
}

// Throws ConfigError if the model has another number of classes than there are names.
void check_class_names(const at::Tensor& outputs, std::size_t num_names, const ExportOptions& options) {
  if (num_names == 0 || outputs.dim() < 2 || outputs.size(1) == static_cast<std::int64_t>(num_names)) return;
  throw ConfigError({.place = "export to " + options.path.string(),
                     .found = "the data has the names of " + std::to_string(num_names) +
                              " classes, and the model has " + std::to_string(outputs.size(1)) + " outputs",
                     .wanted = "the data that the model was trained with",
                     .remedy = "the metadata \"class_names\" (ExportOptions::metadata) replaces the names"});
}

// Loaders may return rows with more digits than the program needs.
Batch with_input_type(Batch example, std::optional<at::ScalarType> type) {
  if (type) example.tensors()[0] = example[0].to(*type);
  return example;
}

// Makes the program refuse inputs of fewer digits than it needs, which PyTorch would otherwise convert.
void assert_digits(const Batch& batch, std::optional<at::ScalarType> type) {
  if (type == at::kDouble) at::_assert_tensor_metadata(batch[0], std::nullopt, std::nullopt, at::kDouble);
}

// Returns the program that runs in a model; nullptr if there is none.
const ExportedModule* program_in(Module& model) {
  if (const auto* exported = dynamic_cast<const ExportedModule*>(&model)) return exported;
  auto* const backbone = dynamic_cast<ExportedBackbone*>(&model);
  return backbone == nullptr ? nullptr : &backbone->backbone();
}

// Keeps the batch sizes of the program in a model, and changes the example to one of them.
void keep_batch_sizes(Module& model, Batch& example, ExportOptions& options) {
  const ExportedModule* const program = program_in(model);
  if (program == nullptr) return;
  if (const std::optional<std::int64_t> fixed = program->fixed_batch_size(options.train)) {
    options.dynamic_batch = false;
    example = with_samples(std::move(example), *fixed);
  }
  const std::optional<BatchSizes> sizes = program->batch_sizes(options.train);
  if (!options.dynamic_batch || !sizes || sizes->are_any()) return;
  std::int64_t samples = std::max(example.num_samples(), sizes->min);
  if (sizes->max) samples = std::min(samples, *sizes->max);
  example = with_samples(std::move(example), samples - samples % sizes->multiple_of);
  DynamicSize batch{.name = "batch", .min = sizes->min, .max = sizes->max, .multiple_of = sizes->multiple_of};
  for (std::size_t i = 0; i < example.tensors().size(); ++i)
    if (const at::Tensor& tensor = example.tensors()[i];
        tensor.dim() > 0 && tensor.size(0) == example.num_samples())
      batch.places.push_back({.tensor = i, .dim = 0});
  options.dynamic_batch = false;
  options.dynamic_sizes.insert(options.dynamic_sizes.begin(), std::move(batch));
}

// Programs keep all of their outputs.
Batch outputs_of(Module& model, const Batch& batch) {
  if (typeid(model) == typeid(ExportedModule))
    return static_cast<ExportedModule&>(model).export_outputs(batch);
  return Batch::leaf(model.forward_inputs(batch));
}

// `prepare` makes the model's inputs from a batch, `finish` the program's first output from the model's.
template <class Prepare, class Finish>
void export_prepared(Module& model, const Prepare& prepare, const Finish& finish, Batch example,
                     ExportOptions options, std::size_t num_class_names = 0) {
  check_exported_values(model, options);
  keep_batch_sizes(model, example, options);
  const auto forward = [&](const Batch& batch) {
    Batch outputs = outputs_of(model, prepare(batch));
    outputs.tensors()[0] = finish(outputs.tensors()[0]);
    check_class_names(outputs.tensors()[0], num_class_names, options);
    if (options.values == ExportedValues::outputs) return outputs;
    return Batch::leaf(values_of(model, outputs.tensors()[0], options.values));
  };
  export_forward(model, forward, example, options, /*drops_unused_inputs=*/true);
}

[[noreturn]] void refuse_data(const ExportOptions& options, const std::string& found,
                              const std::string& wanted) {
  throw ConfigError({.place = "export to " + options.path.string() + " with the transforms of the data",
                     .found = found,
                     .wanted = wanted});
}

std::string json_list(const std::vector<std::string>& texts) {
  std::string list;
  for (const std::string& text : texts) list += (list.empty() ? "" : ",") + json_string(text);
  return "[" + list + "]";
}

}  // namespace

void export_program(Module& model, const Batch& example, const ExportOptions& options) {
  const auto transform = options.input_transform ? input_transform_of(model) : nullptr;
  const auto type = transform ? transform->program_input_type() : std::nullopt;
  const auto prepare = [&](Batch batch) {
    assert_digits(batch, type);
    if (transform) batch.tensors()[0] = transform->forward(batch.tensors()[0]);
    return batch;
  };
  const auto finish = [](const at::Tensor& outputs) { return outputs; };
  export_prepared(model, prepare, finish, with_input_type(example, type), options);
}

void export_program(Module& model, DataModule& data, const ExportOptions& options) {
  data.prepare();
  if (data.num_random_numbers(Stage::val) > 0)
    refuse_data(options, "they are random", "deterministic transforms for validation and prediction");
  const auto type = data.program_input_type();
  const Batch example = with_input_type(first_raw_batch(data), type);
  const auto prepare = [&](Batch batch) {
    assert_digits(batch, type);
    return data.on_after_batch_transfer(std::move(batch), Stage::predict);
  };
  const auto finish = [&](const at::Tensor& outputs) { return data.unscale_targets(outputs); };
  // Transforms copy their constants when they are first used, which must not happen in a recording.
  if (prepare(example)[0].is_same(example[0]))
    refuse_data(options, "the data have none: the model takes a batch as the loader returns it",
                "data such as images, whose pixels are scaled, or an export without the transforms");
  if (!is_exported_classifier(model) || options.metadata.contains(kClassNames))
    return export_prepared(model, prepare, finish, example, options);
  const std::vector<std::string> names = data.class_names();
  ExportOptions named = options;
  if (!names.empty()) named.metadata[kClassNames] = json_list(names);
  export_prepared(model, prepare, finish, example, named, names.size());
}

}  // namespace kindling
