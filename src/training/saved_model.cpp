#include "training/saved_model.h"

#include <string>

#include "kindling/base/error.h"
#include "kindling/training/weight_average.h"
#include "tensors/state_fit.h"
#include "training/state_parts.h"

namespace kindling {
namespace {

constexpr const char* kModel = "model.";
constexpr const char* kFrozen = "frozen.";  // parameters
constexpr const char* kFrozenLayer = "frozen_layer.";
constexpr const char* kLazy = "lazy.";  // weights that had no shape yet

// The model's own values, also while an average has their place.
StateDict own_values(const Module& model, const std::vector<std::shared_ptr<Callback>>& callbacks) {
  StateDict values = state_dict(model);
  for (const auto& callback : callbacks)
    if (const auto* average = dynamic_cast<const WeightAverage*>(callback.get()))
      average->put_own_values(values);
  return values;
}

// Layers that had no shape when the model was saved draw their weights later, so they lose what they have.
void forget_lazy_weights(Module& model, const StateDict& state) {
  for (const auto& item : model.named_modules()) {
    auto* layer = dynamic_cast<LazyLayer*>(item.value().get());
    const std::string weight = item.key().empty() ? "weight" : item.key() + ".weight";
    if (layer != nullptr && state.metadata.contains(kLazy + weight)) layer->dematerialize();
  }
}

void load_weights_of(Module& model, const StateDict& state) {
  const StateDict lazy = part_of(state, kLazy);
  forget_lazy_weights(model, state);
  LoadReport report =
      load_state_dict(model, part_of(state, kModel), "the saved model", {.strict = lazy.metadata.empty()});
  std::erase_if(report.missing, [&](const std::string& name) { return lazy.metadata.contains(name); });
  if (report.missing.size() + report.misfits.size() + report.unexpected.size() > 0)
    throw CheckpointError(
        {.place = "the saved model", .found = report.text(), .wanted = "the names and shapes of the model"});
}

}  // namespace

void save_model(Module& model, const std::vector<std::shared_ptr<Callback>>& callbacks, StateDict& state) {
  put(state, kModel, own_values(model, callbacks));
  for (const auto& [name, layer] : layers_without_shape(model)) state.metadata[kLazy + name] = "true";
  for (const auto& item : model.named_parameters())
    if (item.value().defined() && !item.value().requires_grad())
      state.metadata[kFrozen + item.key()] = "true";
  for (const auto& [weight, layer] : layers_without_shape(model))
    for (const std::string& name : layer->frozen)
      state.metadata[kFrozen + weight.substr(0, weight.rfind('.') + 1) + name] = "true";
  for (const std::string& name : model.frozen_layers()) state.metadata[kFrozenLayer + name] = "true";
}

void load_model(Module& model, const StateDict& state) {
  load_weights_of(model, state);
  if (!model.frozen_layers().empty()) model.unfreeze(model);
  for (const auto& item : model.named_modules())
    if (state.metadata.contains(kFrozenLayer + item.key())) model.freeze(*item.value());
  for (const auto& item : model.named_parameters())
    if (item.value().defined()) item.value().requires_grad_(!state.metadata.contains(kFrozen + item.key()));
  for (const auto& item : model.named_modules())
    if (auto* layer = dynamic_cast<LazyLayer*>(item.value().get())) {
      layer->frozen.clear();
      for (const std::string& name : layer->parameter_names())
        if (state.metadata.contains(kFrozen + (item.key().empty() ? name : item.key() + "." + name)))
          layer->frozen.insert(name);
    }
}

}  // namespace kindling
