#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "kindling/base/export.h"
#include "kindling/tensors/state_dict.h"

namespace kindling {

// Turns the raw inputs of a data module, the first tensor of a batch, into those of the model, on the batch's
// device. Its buffers are fitted on the training samples. While a model is trained on such data, the
// transform is the model's submodule `input_transform`: checkpoints and weights files contain its buffers,
// and an exported program can start with it.
class KINDLING_API InputTransform : public torch::nn::Module {
 public:
  ~InputTransform() override;

  // Takes raw inputs [batch, …]. Must not read a tensor on the host.
  virtual at::Tensor forward(const at::Tensor& raw) = 0;
  // Returns what raw inputs mean, as JSON: the metadata `input_transform` of checkpoints and weights files.
  virtual std::string description() const { return {}; }
  // Takes the description of a saved transform, and its dtypes for the buffers, so that the saved buffers can
  // be loaded next. Returns false, and changes nothing, if raw inputs had another meaning.
  virtual bool adopt(const std::string& description) { return description == this->description(); }
  // Returns the dtype of the raw inputs of an exported program; absent: that of the loader's batches.
  virtual std::optional<at::ScalarType> program_input_type() const { return std::nullopt; }
};

// The name of the submodule, and the key of its description in the metadata.
inline constexpr const char* kInputTransform = "input_transform";

// True for the name of a tensor of the transform, such as "input_transform.mean".
inline bool is_of_input_transform(std::string_view tensor) {
  const std::string_view name = kInputTransform;
  return tensor.starts_with(name) && tensor.substr(name.size()).starts_with('.');
}

// Returns the model's transform; nullptr: it has none.
KINDLING_API std::shared_ptr<InputTransform> input_transform_of(const torch::nn::Module& model);

// Registers the transform as a submodule of the model, or replaces an earlier one. Does nothing for nullptr.
// Trainer::fit() does this with DataModule::input_transform(); call it before loading the weights of such a
// model.
KINDLING_API void set_input_transform(torch::nn::Module& model, std::shared_ptr<InputTransform> transform);

// Returns state_dict(model), with the description of its transform, for save_safetensors().
KINDLING_API StateDict state_dict_with_transform(const torch::nn::Module& model);

// Lets the model's transform adopt the description that the state was saved with. Call it before loading the
// state. Throws CheckpointError if raw inputs have another meaning: the data have changed in the meantime.
// `place` names the state.
KINDLING_API void adopt_saved_transform(const torch::nn::Module& model, const StateDict& state,
                                        const std::string& place);

}  // namespace kindling
