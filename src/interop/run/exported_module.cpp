#include "kindling/interop/exported_module.h"

#include <ATen/core/Reduction.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/huber_loss.h>
#include <ATen/ops/l1_loss.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/smooth_l1_loss.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "interop/run/exported_module_program.h"
#include "kindling/base/error.h"
#include "kindling/base/json.h"
#include "kindling/base/log.h"
#include "kindling/base/suggest.h"
#include "kindling/base/text.h"
#include "kindling/metrics/accuracy.h"
#include "metrics/class_labels.h"
#include "nn/weighted_losses.h"
#include "tensors/shape_text.h"

namespace kindling {
namespace {

// A layer of the original model, of which only the name of its parameters remains.
class Layer : public torch::nn::Module {};

// Registers a tensor under a dotted name, and creates missing layers.
template <class Register>
void register_by_path(torch::nn::Module& model, const std::string& path, Register&& add) {
  torch::nn::Module* at = &model;
  std::size_t begin = 0;
  for (std::size_t dot; (dot = path.find('.', begin)) != std::string::npos; begin = dot + 1) {
    const std::string name = path.substr(begin, dot - begin);
    const auto children = at->named_children();
    const auto* child = children.find(name);
    at = child != nullptr ? child->get() : at->register_module(name, std::make_shared<Layer>()).get();
  }
  add(*at, path.substr(begin));
}

// Returns the layer with a name, or the closest registered layer that contains it.
const torch::nn::Module* layer_in(const torch::nn::Module& model, const std::string& name) {
  const torch::nn::Module* at = &model;
  for (std::size_t begin = 0; begin < name.size();) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    const auto children = at->named_children();
    const auto* child = children.find(name.substr(begin, end - begin));
    if (child == nullptr) break;
    at = child->get();
    begin = end + 1;
  }
  return at;
}

constexpr const char* kLossOfEachClass = "bce_with_logits";

bool is_classification_loss(const std::string& loss) { return loss == "cross_entropy" || loss == "nll"; }

// Moves the classes of outputs from the last dimension, as in sequence models, to the second: [batch, time,
// classes] → [batch x time, classes].
std::pair<at::Tensor, at::Tensor> with_classes_second(const at::Tensor& outputs, const at::Tensor& labels) {
  const bool numbers = labels.scalar_type() == at::kLong;
  const bool second = numbers ? are_class_numbers(outputs, labels) : are_class_probabilities(outputs, labels);
  const bool last =
      numbers && outputs.dim() > 2 && outputs.sizes().slice(0, outputs.dim() - 1) == labels.sizes();
  if (second && last)
    throw DataError({.place = "ExportedModule::loss",
                     .found = "for outputs " + type_text(outputs) + " and labels " + type_text(labels) +
                              ", the classes may be in the second or in the last dimension",
                     .wanted = "different numbers of classes and positions",
                     .remedy = "export a forward pass that returns the loss, and set loss = \"output\""});
  if (!second && !last) refuse_class_labels("ExportedModule::loss", outputs, labels);
  return last ? std::pair(outputs.flatten(0, -2), labels.flatten()) : std::pair(outputs, labels);
}

at::Tensor regression_loss(const std::string& name, const at::Tensor& outputs, const at::Tensor& labels,
                           std::int64_t reduction) {
  if (name == "mse") return at::mse_loss(outputs, labels, reduction);
  if (name == "l1") return at::l1_loss(outputs, labels, reduction);
  if (name == "smooth_l1") return at::smooth_l1_loss(outputs, labels, reduction);
  return at::huber_loss(outputs, labels, reduction);
}

// "net.0, net.1 and 3 more layers".
std::string layer_list(const std::vector<std::string>& layers) {
  constexpr std::size_t kMost = 3;
  std::vector<std::string> different;
  for (const std::string& layer : layers)
    if (std::ranges::find(different, layer) == different.end()) different.push_back(layer);
  std::string text;
  for (std::size_t i = 0; i < std::min(kMost, different.size()); ++i)
    text += (i == 0 ? "" : ", ") + (different[i].empty() ? "the model itself" : one_line(different[i]));
  if (different.size() > kMost) text += " and " + std::to_string(different.size() - kMost) + " more layers";
  return text;
}

// Calls `read`, and adds the name of the file to its errors.
template <class Read>
void naming_file(const std::filesystem::path& file, Read&& read) {
  try {
    read();
  } catch (const CheckpointError& error) {
    ErrorParts parts = error.parts();
    if (!parts.place.starts_with(file.string())) parts.place = file.string() + ", " + parts.place;
    throw CheckpointError(parts);
  } catch (const c10::Error& error) {
    throw CheckpointError({.place = file.string(),
                           .found = std::string("its weights cannot be registered in a module: ") +
                                    error.what_without_backtrace()});
  }
}

[[noreturn]] void refuse_loss_option(const char* option, const std::string& loss) {
  const bool is_of_each =
      std::string_view(option) == "multi_label" || std::string_view(option) == "pos_weight";
  throw ConfigError({.place = option,
                     .found = "it is set, and the loss is " + loss,
                     .wanted = is_of_each ? "loss = \"bce_with_logits\"" : "a classification loss"});
}

[[noreturn]] void refuse_numbers_as_labels(const at::Tensor& outputs, const at::Tensor& labels) {
  throw DataError({.place = "ExportedModule::loss",
                   .found = "the labels are " + type_text(labels),
                   .wanted = "floating-point numbers of the outputs' shape, " + type_text(outputs),
                   .remedy = "convert the labels in the data module, or choose another loss"});
}

}  // namespace

ExportedModule::ExportedModule(ExportedModuleOptions options) : options_(std::move(options)) {
  validate(options_, "exported");
  if (options_.file.empty())
    throw ConfigError({.place = "model.file",
                       .found = "no file is given",
                       .wanted = "a .pt2 file saved by torch.export.save"});
  naming_file(options_.file, [&] {
    program_ = std::make_unique<Program>(options_.file);
    std::size_t number = 0;
    for (const ProgramInput& input : program_->file.program().inputs) {
      if (input.kind == ProgramInput::Kind::user) continue;
      const at::Tensor& tensor = program_->weights.tensors[number++];
      if (input.kind == ProgramInput::Kind::parameter)
        register_by_path(*this, input.target, [&](torch::nn::Module& layer, const std::string& name) {
          layer.register_parameter(name, tensor, tensor.requires_grad());
        });
      else if (input.kind == ProgramInput::Kind::buffer && input.is_persistent)
        register_by_path(*this, input.target, [&](torch::nn::Module& layer, const std::string& name) {
          layer.register_buffer(name, tensor);
        });
      else
        program_->constants.push_back(number - 1);
    }
    for (const std::string& layer : program_->runner.layers())
      program_->layers.push_back(layer_in(*this, layer));
  });
  const bool has_both = options_.eval_file.empty() && program_->file.has_program(Pt2File::kEvaluation);
  const std::filesystem::path& eval_file = has_both ? options_.file : options_.eval_file;
  if (!eval_file.empty())
    naming_file(eval_file, [&] {
      program_->evaluation.emplace(eval_file, has_both ? Pt2File::kEvaluation : "model", program_->file,
                                   program_->runner.num_inputs(), options_.file.string());
    });
  if (options_.ignore_missing && !is_regressor())
    throw ConfigError({.place = "ignore_missing",
                       .found = "it is set, and the loss is " + options_.loss,
                       .wanted = "a loss of numbers: mse, l1, smooth_l1 or huber",
                       .remedy = "for classes, labels of ignore_index do not count"});
  if (is_classification_loss(options_.loss)) add_metric("acc", std::make_shared<Accuracy>());
  if (options_.loss == kLossOfEachClass) class_loss_.set_options({.multi_label = true});
}

ExportedModule::~ExportedModule() = default;

void ExportedModule::train(bool on) {
  Module::train(on);
  if (program_ == nullptr) return;
  const ProgramRunner& runner = program_->runner;
  const std::vector<std::string>& drawing = runner.layers_that_draw();
  const bool is_of_evaluation = runner.has_mode() && !runner.is_in_training_mode();
  if (!drawing.empty() && !is_of_evaluation && !program_->evaluation &&
      !std::exchange(program_->has_warned_of_draws, true))
    log_warning(options_.file.string() + ": " + std::to_string(drawing.size()) +
                (drawing.size() == 1 ? " operator draws" : " operators draw") +
                " random numbers in evaluation, too (in " + layer_list(drawing) +
                "): validation, test and predictions are random; to evaluate the model as in Python, write "
                "the file with kindling.export() of the Python package, or export the model a second time "
                "after model.eval() and give that file as eval_file");
  if (!on || std::exchange(program_->has_warned, true)) return;
  if (is_of_evaluation)
    log_warning(options_.file.string() +
                " was exported in evaluation mode: dropout stays off and running statistics stay fixed even "
                "in training; "
                "to train it fully, export it after model.train()");
}

std::vector<at::Tensor> ExportedModule::run(std::span<const at::Tensor> inputs) {
  if (inputs.size() != program_->runner.num_inputs())
    throw DataError(
        {.place = "ExportedModule",
         .found = "got " + std::to_string(inputs.size()) + " tensors",
         .wanted = std::to_string(program_->runner.num_inputs()) + ", the number of inputs of the program"});
  const std::int64_t fixed = is_training() ? 0 : fixed_batch_size(/*train=*/false).value_or(0);
  const std::int64_t samples = inputs.empty() || inputs[0].dim() == 0 ? 0 : inputs[0].size(0);
  return fixed > 0 && samples > 0 && samples != fixed ? run_by_rows(inputs, fixed) : run_program(inputs);
}

std::vector<at::Tensor> ExportedModule::run_program(std::span<const at::Tensor> inputs) {
  std::vector<at::Tensor>& tensors = program_->weights.tensors;
  for (const std::size_t constant : program_->constants)
    if (!inputs.empty() && tensors[constant].device() != inputs[0].device())
      tensors[constant] = tensors[constant].to(inputs[0].device());
  if (uses_evaluation_program()) return program_->evaluation->run(tensors, inputs, *this);
  return program_->runner.run(tensors, inputs, program_->layers);
}

bool ExportedModule::uses_evaluation_program() const { return program_->evaluation && !is_training(); }

at::Tensor ExportedModule::forward(const at::Tensor& input) { return run({&input, 1})[0]; }

at::Tensor ExportedModule::forward_inputs(const Batch& batch) { return run(inputs_in(batch))[0]; }

std::vector<at::Tensor> ExportedModule::inputs_in(const Batch& batch) const {
  const std::size_t wanted = program_->runner.num_inputs();
  if (batch.structure() && batch.structure()->kind == BatchStructure::Kind::map) {
    std::vector<at::Tensor> by_name;
    const std::vector<std::string>& parts = batch.structure()->names;
    for (const std::string& name : program_->file.program().input_names)
      if (std::ranges::find(parts, name) != parts.end()) by_name.push_back(batch[name]);
    if (by_name.size() == wanted) return by_name;
  }
  const std::span<const at::Tensor> tensors = batch.tensors();
  if (tensors.size() != wanted && (is_loss_output() || tensors.size() != wanted + 1))
    throw DataError({.place = "ExportedModule",
                     .found = "the batch has " + std::to_string(tensors.size()) + " tensors",
                     .wanted = std::to_string(wanted) + " inputs of the program" +
                               (is_loss_output() ? ", without labels because its first output is the loss"
                                                 : ", followed by the labels")});
  return {tensors.begin(), tensors.begin() + static_cast<std::ptrdiff_t>(wanted)};
}

at::Tensor ExportedModule::loss(const at::Tensor& outputs, const at::Tensor& labels) {
  constexpr const char* kHere = "ExportedModule::loss";
  const std::string& name = options_.loss;
  if (is_loss_output()) return outputs;
  if (is_classification_loss(name)) {
    const auto [by_class, wanted] = with_classes_second(outputs, labels);
    const bool are_numbers = wanted.scalar_type() == at::kLong;
    const WeightedLoss loss = name == "nll" && are_numbers
                                  ? class_loss_.of_log_probabilities(kHere, by_class, wanted)
                                  : class_loss_(kHere, by_class, wanted);
    if (are_numbers && !class_weights().defined() && !loss_options().ignore_index)
      keep_num_labels(wanted, loss.weight);
    return loss.weight.defined() ? weighted(loss) : loss.loss;
  }
  if (name == kLossOfEachClass) {
    const WeightedLoss loss = class_loss_(kHere, outputs, labels);
    return loss.weight.defined() ? weighted(loss) : loss.loss;
  }
  if (!labels.is_floating_point() || outputs.sizes() != labels.sizes())
    refuse_numbers_as_labels(outputs, labels);
  const std::optional<std::int64_t> ignored = loss_options().ignore_index;
  if (!ignored && !options_.ignore_missing)
    return regression_loss(name, outputs, labels, at::Reduction::Mean);
  at::Tensor counts = options_.ignore_missing ? labels.isnan().logical_not() : labels.ne(*ignored);
  if (ignored && options_.ignore_missing) counts = counts.logical_and(labels.ne(*ignored));
  const at::Tensor wanted = labels.masked_fill(counts.logical_not(), 0);
  return weighted(masked_mean(regression_loss(name, outputs, wanted, at::Reduction::None), counts));
}

void ExportedModule::set_loss_options(const ClassLossOptions& options) {
  const bool is_of_classes = is_classification_loss(options_.loss),
             is_of_each = options_.loss == kLossOfEachClass;
  ClassLossOptions own = options;
  own.multi_label = is_of_each;
  const std::pair<const char*, bool> refused[] = {
      {"multi_label", options.multi_label && !is_of_each},
      {"label_smoothing", options.label_smoothing > 0 && !is_of_classes},
      {"focal_gamma", options.focal_gamma > 0 && !is_of_classes && !is_of_each},
      {"pos_weight", !options.pos_weight.empty() && !is_of_each},
      {"ignore_index", options.ignore_index.has_value() && is_loss_output()}};
  for (const auto& [name, is_refused] : refused)
    if (is_refused) refuse_loss_option(name, options_.loss);
  ClassLossModel::set_loss_options(own);
  changed();
  if (is_of_classes)
    add_metric("acc", std::make_shared<Accuracy>(AccuracyOptions{.ignore_index = options.ignore_index}));
}

void ExportedModule::set_class_weights(const at::Tensor& weights) {
  if (weights.defined() && !is_classification_loss(options_.loss))
    refuse_loss_option("class_weights", options_.loss);
  ClassLossModel::set_class_weights(weights);
  changed();
}

at::Tensor ExportedModule::training_step(const Batch& batch) { return step(Stage::train, batch); }

void ExportedModule::validation_step(const Batch& batch) {
  const at::Tensor loss = step(Stage::val, batch);
  plot("loss", WeightedLoss{loss, take_loss_weight()}, /*train=*/false);
}

void ExportedModule::test_step(const Batch& batch) {
  const at::Tensor loss = step(Stage::test, batch);
  log("test_loss", WeightedLoss{loss, take_loss_weight()});
}

at::Tensor ExportedModule::step(Stage stage, const Batch& batch) {
  const at::Tensor outputs = forward_inputs(batch);
  if (is_loss_output()) return outputs;
  const at::Tensor& labels = batch.labels();
  const at::Tensor to_minimise = loss(outputs, labels);
  if (is_classification_loss(options_.loss)) {
    const auto [by_class, wanted] = with_classes_second(outputs, labels);
    measure(stage, by_class, wanted);
  } else {
    measure(stage, outputs, labels);
  }
  return to_minimise;
}

at::Tensor ExportedModule::predict_step(const Batch& batch) { return outputs_without_loss(batch)[0]; }

Module::Monitor ExportedModule::monitor() const {
  return is_classification_loss(options_.loss) ? Monitor{.name = "val_acc", .higher_is_better = true}
                                               : Module::monitor();
}

void ExportedModule::save(const std::filesystem::path& path) const {
  const at::NoGradGuard no_grad;
  LoadedWeights fresh = load_weights_of(program_->file);
  for (std::size_t i = 0; i < fresh.tensors.size(); ++i) {
    const at::Tensor& now = program_->weights.tensors[i];
    if (std::ranges::find(program_->constants, i) != program_->constants.end()) continue;
    if (now.scalar_type() != fresh.tensors[i].scalar_type())
      throw CheckpointError(
          {.place = path.string(),
           .found = std::string("weights are ") + c10::toString(now.scalar_type()),
           .wanted = std::string(c10::toString(fresh.tensors[i].scalar_type())) +
                     ", the dtype that the program was exported with",
           .remedy = "convert the model back first, such as with model->to(torch::kFloat)"});
    fresh.tensors[i].detach().copy_(now);
  }
  std::vector<std::string_view> storages;
  for (const at::Tensor& storage : fresh.storages)
    storages.emplace_back(static_cast<const char*>(storage.const_data_ptr()), storage.nbytes());
  program_->file.write_copy(path, storages);
}

}  // namespace kindling
