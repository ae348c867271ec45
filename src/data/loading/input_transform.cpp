#include "kindling/data/input_transform.h"

#include <utility>

#include "kindling/base/error.h"

namespace kindling {

InputTransform::~InputTransform() = default;

std::shared_ptr<InputTransform> input_transform_of(const torch::nn::Module& model) {
  const auto children = model.named_children();
  const auto* child = children.find(kInputTransform);
  return child == nullptr ? nullptr : std::dynamic_pointer_cast<InputTransform>(*child);
}

void set_input_transform(torch::nn::Module& model, std::shared_ptr<InputTransform> transform) {
  if (!transform) return;
  if (input_transform_of(model))
    model.replace_module(kInputTransform, std::move(transform));
  else if (model.named_children().contains(kInputTransform))
    throw ConfigError({.place = kInputTransform,
                       .found = "the model has a submodule of this name that is not an InputTransform",
                       .wanted = "another name for the submodule, because the data have an input transform"});
  else
    model.register_module(kInputTransform, std::move(transform));
}

StateDict state_dict_with_transform(const torch::nn::Module& model) {
  StateDict state = state_dict(model);
  if (const auto transform = input_transform_of(model))
    state.metadata[kInputTransform] = transform->description();
  return state;
}

void adopt_saved_transform(const torch::nn::Module& model, const StateDict& state, const std::string& place) {
  const auto transform = input_transform_of(model);
  const auto saved = state.metadata.find(kInputTransform);
  if (!transform || saved == state.metadata.end() || transform->adopt(saved->second)) return;
  throw CheckpointError(
      {.place = place,
       .found = "the training data have other columns, kinds or categories than when it was saved",
       .wanted = "the same training data",
       .remedy = "restore the data and the keys of [data], or start a new run"});
}

}  // namespace kindling
