#include "kindling/tensors/state_dict.h"

#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>

#include <cstring>
#include <set>

#include "kindling/base/error.h"
#include "kindling/formats/safetensors.h"
#include "kindling/tensors/lazy.h"
#include "kindling/tensors/move.h"

namespace kindling {

LazyLayer::~LazyLayer() = default;

namespace {

constexpr std::pair<TensorType, at::ScalarType> kTypes[] = {
    {TensorType::boolean, at::kBool},  {TensorType::uint8, at::kByte},
    {TensorType::int8, at::kChar},     {TensorType::int16, at::kShort},
    {TensorType::int32, at::kInt},     {TensorType::int64, at::kLong},
    {TensorType::float16, at::kHalf},  {TensorType::bfloat16, at::kBFloat16},
    {TensorType::float32, at::kFloat}, {TensorType::float64, at::kDouble},
};

TensorType tensor_type(const at::Tensor& tensor, const std::string& name) {
  for (const auto& [type, scalar] : kTypes)
    if (scalar == tensor.scalar_type()) return type;
  throw CheckpointError(
      {.place = "tensor '" + name + "'",
       .found = std::string("its dtype ") + c10::toString(tensor.scalar_type()) + " cannot be saved",
       .wanted = "bool, an integer or a floating-point dtype"});
}

at::ScalarType scalar_type(TensorType type) {
  for (const auto& [known, scalar] : kTypes)
    if (known == type) return scalar;
  throw CheckpointError({.found = "safetensors: unknown tensor type"});
}

// Layers without parameters, by the name that their weight will have.
std::vector<std::pair<std::string, LazyLayer*>> layers_without_shape(torch::nn::Module& module) {
  std::vector<std::pair<std::string, LazyLayer*>> layers;
  for (const auto& item : module.named_modules()) {
    auto* lazy = dynamic_cast<LazyLayer*>(item.value().get());
    if (lazy == nullptr || lazy->is_materialized()) continue;
    layers.emplace_back(item.key().empty() ? "weight" : item.key() + ".weight", lazy);
  }
  return layers;
}

std::string text_of(const at::Tensor& tensor) {
  std::string text = "[";
  for (const auto size : tensor.sizes()) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

// Every way in which `state` does not fit `own`, a clause each.
std::string misfits(const StateDict& own, const StateDict& state) {
  std::string text;
  const auto add = [&](const std::string& clause) { text += (text.empty() ? "" : ", ") + clause; };
  std::set<std::string> expected;
  for (const auto& [name, tensor] : own.tensors) {
    expected.insert(name);
    const at::Tensor* value = state.find(name);
    if (value == nullptr)
      add("'" + name + "' is missing");
    else if (!tensor.defined())
      add("'" + name + "' has the shape " + text_of(*value) + ", which its layer cannot take");
    else if (value->sizes() != tensor.sizes())
      add("'" + name + "' has the shape " + text_of(*value) + ", the model's is " + text_of(tensor));
  }
  for (const auto& [name, tensor] : state.tensors)
    if (!expected.contains(name)) add("'" + name + "' is not in the model");
  return text;
}

}  // namespace

const at::Tensor* StateDict::find(const std::string& name) const {
  for (const auto& [key, tensor] : tensors)
    if (key == name) return &tensor;
  return nullptr;
}

StateDict state_dict(const torch::nn::Module& module) {
  StateDict state;
  for (const auto& item : module.named_parameters())
    if (item.value().defined()) state.tensors.emplace_back(item.key(), item.value());
  for (const auto& item : module.named_buffers())
    if (item.value().defined()) state.tensors.emplace_back(item.key(), item.value());
  return state;
}

void load_state_dict(torch::nn::Module& module, const StateDict& state, const std::string& place) {
  const auto lazy_layers = layers_without_shape(module);
  for (const auto& [name, layer] : lazy_layers)
    if (const at::Tensor* weight = state.find(name)) layer->materialize_like(*weight);
  StateDict own = state_dict(module);
  for (const auto& [name, layer] : lazy_layers)
    if (!layer->is_materialized()) own.tensors.emplace_back(name, at::Tensor());
  if (const std::string text = misfits(own, state); !text.empty()) {
    for (const auto& [name, layer] : lazy_layers) layer->dematerialize();
    throw CheckpointError({.place = place,
                           .found = "the values do not fit the model: " + text,
                           .wanted = "the names and shapes of the model",
                           .remedy = "nothing was loaded; check the model's options"});
  }
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : own.tensors) tensor.copy_(move_to(*state.find(name), tensor.device()));
}

void save_safetensors(const StateDict& state, const std::filesystem::path& path) {
  std::vector<at::Tensor> on_host;  // keeps the bytes alive until they are written
  std::vector<TensorToWrite> writes;
  for (const auto& [name, tensor] : state.tensors) {
    on_host.push_back(move_to(tensor.detach(), cpu()).contiguous());
    writes.push_back({.name = name,
                      .type = tensor_type(tensor, name),
                      .shape = tensor.sizes().vec(),
                      .data = on_host.back().const_data_ptr(),
                      .size_bytes = on_host.back().nbytes()});
  }
  write_safetensors(path, writes, state.metadata);
}

StateDict load_safetensors(const std::filesystem::path& path) {
  const SafetensorsFile file = read_safetensors(path);
  StateDict state{.tensors = {}, .metadata = file.metadata};
  for (const TensorEntry& entry : file.tensors) {
    at::Tensor tensor = at::empty(entry.shape, scalar_type(entry.type));
    const std::string_view bytes = file.data(entry);
    if (!bytes.empty()) std::memcpy(tensor.mutable_data_ptr(), bytes.data(), bytes.size());
    state.tensors.emplace_back(entry.name, std::move(tensor));
  }
  return state;
}

}  // namespace kindling
