#include <ATen/core/Tensor.h>

#include <iostream>

#include "cli/commands/commands.h"
#include "cli/run/loaded_config.h"
#include "cli/run/process_settings.h"
#include "cli/run/weights.h"
#include "kindling/base/error.h"
#include "kindling/base/number_text.h"
#include "kindling/nn/classifier.h"
#include "kindling/training/trainer.h"

namespace kindling {
namespace {

// Calls use(trainer, model, data), unless there is nothing to run. The weights come from --weights, else from
// model.init_weights; without both, throws ConfigError.
template <class Use>
int with_weights(const CommandContext& context, Use use) {
  const Request& request = context.request;
  const LoadedConfig loaded = load_config(request, context.registry);
  if (loaded.is_query) return 0;
  const RunConfig& config = *loaded.config;
  apply(config.process);
  if (request.weights.empty() && !config.model.init_weights)
    throw ConfigError({.place = request.command,
                       .found = "there are no weights",
                       .wanted = "--weights RUN|FILE or model.init_weights"});
  const auto model = config.make_model();
  const bool is_named = !request.weights.empty();
  const WeightsSource weights =
      find_weights(is_named ? request.weights : config.model.init_weights->string());
  if (!request.quiet) print_source(weights);
  load_weights_from(*model, weights.file, is_named ? "" : config.model.init_key);
  const auto data = config.make_data();
  Trainer trainer(config.trainer_options());
  use(trainer, model, *data);
  return 0;
}

int evaluate(const CommandContext& context, Metrics (Trainer::*call)(std::shared_ptr<Module>, DataModule&)) {
  return with_weights(context, [&](Trainer& trainer, const auto& model, DataModule& data) {
    for (const auto& [name, value] : (trainer.*call)(model, data))
      std::cout << name << " " << number_text(value) << "\n";
  });
}

// Prints a line per sample: the class for a classifier, then every output.
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
  return with_weights(context, [](Trainer& trainer, const auto& model, DataModule& data) {
    print_csv(trainer.predict(model, data), dynamic_cast<const Classifier*>(model.get()) != nullptr);
  });
}

}  // namespace kindling
