#include <ATen/core/Tensor.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "kindling/base/error.h"
#include "kindling/base/number_text.h"
#include "kindling/nn/classifier.h"
#include "kindling/tensors/state_dict.h"
#include "kindling/training/trainer.h"
#include "program/commands.h"
#include "program/loaded_config.h"

namespace kindling {
namespace {

struct Evaluation {
  std::shared_ptr<Module> model;
  std::shared_ptr<DataModule> data;
  TrainerOptions options;
};

// Weights: --weights, else model.init_weights, else an error.
Evaluation prepare(const Request& request, RunConfig& config) {
  if (!request.weights.empty())
    config.model.init_weights = std::filesystem::is_directory(request.weights)
                                    ? request.weights / "weights.safetensors"
                                    : request.weights;
  if (!config.model.init_weights)
    throw ConfigError({.place = request.command,
                       .found = "no weights are given",
                       .wanted = "--weights RUN|FILE or model.init_weights"});
  return {.model = config.make_model(), .data = config.make_data(), .options = config.trainer_options()};
}

int evaluate(const CommandContext& context, Metrics (Trainer::*call)(std::shared_ptr<Module>, DataModule&)) {
  const LoadedConfig loaded = load_config(context.request, context.registry);
  if (loaded.only_asked) return 0;
  const Evaluation evaluation = prepare(context.request, *loaded.config);
  Trainer trainer(evaluation.options);
  for (const auto& [name, value] : (trainer.*call)(evaluation.model, *evaluation.data))
    std::cout << name << " " << number_text(value) << "\n";
  return 0;
}

// A line per sample: the class when it is a classifier, then every output.
void print_csv(const at::Tensor& outputs, bool is_classifier) {
  const at::Tensor rows = outputs.reshape({outputs.size(0), -1}).to(at::kDouble).contiguous();
  const at::Tensor classes = is_classifier ? rows.argmax(1) : at::Tensor();
  std::cout << "sample" << (is_classifier ? ",class" : "");
  for (std::int64_t j = 0; j < rows.size(1); ++j) std::cout << ",output_" << j;
  std::cout << "\n";
  const double* value = rows.const_data_ptr<double>();
  for (std::int64_t i = 0; i < rows.size(0); ++i) {
    std::cout << i;
    if (is_classifier) std::cout << "," << classes.const_data_ptr<std::int64_t>()[i];
    for (std::int64_t j = 0; j < rows.size(1); ++j) std::cout << "," << number_text(*value++);
    std::cout << "\n";
  }
}

}  // namespace

int validate_command(const CommandContext& context) { return evaluate(context, &Trainer::validate); }

int test_command(const CommandContext& context) { return evaluate(context, &Trainer::test); }

int predict_command(const CommandContext& context) {
  const LoadedConfig loaded = load_config(context.request, context.registry);
  if (loaded.only_asked) return 0;
  const Evaluation evaluation = prepare(context.request, *loaded.config);
  Trainer trainer(evaluation.options);
  print_csv(trainer.predict(evaluation.model, *evaluation.data),
            dynamic_cast<const Classifier*>(evaluation.model.get()) != nullptr);
  return 0;
}

}  // namespace kindling
