#include "training/start_together.h"

#include <string>

#include "kindling/base/error.h"
#include "kindling/base/number_text.h"
#include "tensors/shape_text.h"
#include "tensors/state_fit.h"

namespace kindling {
namespace {

std::string description(const at::Tensor& tensor) {
  return type_text(tensor) + (tensor.requires_grad() ? "" : ", frozen");
}

// What all steps hang on.
ProcessGroup::NamedTexts values_of(const TrainerOptions& options, const DistributedOptions& together) {
  return {{"compression", together.compression},
          {"max_epochs", options.max_epochs ? std::to_string(*options.max_epochs) : ""},
          {"max_steps", options.max_steps ? std::to_string(*options.max_steps) : ""},
          {"gradient_clip_val", number_text(options.gradient_clip_val)},
          {"accumulate_grad_batches", std::to_string(options.accumulate_grad_batches)},
          {"gradient_shards", std::to_string(options.gradient_shards)},
          {"shard_optimizer_state", options.shard_optimizer_state ? "true" : "false"},
          {"sync_batchnorm", options.sync_batchnorm ? "true" : "false"},
          {"precision", options.precision},
          {"float32_matmul_precision", options.float32_matmul_precision.value_or("")},
          {"on_nonfinite", options.on_nonfinite},
          {"check_val_every_n_epoch", std::to_string(options.check_val_every_n_epoch)},
          {"num_sanity_val_steps", std::to_string(options.num_sanity_val_steps)},
          {"the number of callbacks", std::to_string(options.callbacks.size())}};
}

void add(ProcessGroup::NamedTexts& to, const std::string& name, const BatchSource* source) {
  if (source == nullptr) return to.push_back({name, "no data"});
  const DataLoader& loader = source->loader();
  to.push_back({name + "'s number of samples", std::to_string(loader.dataset().size())});
  to.push_back({name + "'s batch_size", std::to_string(loader.options().batch_size)});
  to.push_back({name + "'s number of batches", std::to_string(source->num_batches())});
  to.push_back({name + "'s shuffle", loader.options().shuffle ? "true" : "false"});
  to.push_back({name + "'s seed", std::to_string(loader.options().seed)});
}

void add_tensors(ProcessGroup::NamedTexts& to, const char* kind, std::vector<at::Tensor>& tensors,
                 const torch::OrderedDict<std::string, at::Tensor>& named) {
  for (const auto& item : named) {
    if (!item.value().defined()) continue;
    to.push_back({std::string(kind) + " '" + item.key() + "'", description(item.value())});
    tensors.push_back(item.value());
  }
}

}  // namespace

void require_shapes(Module& model) {
  if (const auto lazy = layers_without_shape(model); !lazy.empty())
    throw ConfigError({.place = "layer '" + lazy.front().first + "'",
                       .found = "it is lazy and has no shape yet",
                       .wanted = "parameters, which all processes begin with",
                       .remedy = "call layer_summary(model, data) first"});
}

void start_together(ProcessGroup& group, Module& model, const TrainerOptions& options) {
  require_shapes(model);
  ProcessGroup::NamedTexts values = values_of(options, group.options());
  std::vector<at::Tensor> tensors;
  values.push_back({"the model", model.name()});
  add_tensors(values, "parameter", tensors, model.named_parameters());
  add_tensors(values, "buffer", tensors, model.named_buffers());
  group.require_same("the start of a training by several processes", values);
  group.broadcast(tensors);
}

void require_same_data(ProcessGroup& group, const BatchSource& train, const BatchSource* validation) {
  ProcessGroup::NamedTexts values;
  add(values, "training", &train);
  add(values, "validation", validation);
  group.require_same("the data of several processes", values);
}

}  // namespace kindling
