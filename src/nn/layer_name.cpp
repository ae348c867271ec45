#include "nn/layer_name.h"

#include <torch/nn/module.h>

#include <string_view>

namespace kindling {

std::string layer_name(const torch::nn::Module& layer) {
  std::string name = layer.name();
  constexpr std::string_view kCheckpoint = "kindling::CheckpointedForward<";
  if (name.starts_with(kCheckpoint))
    name = name.substr(kCheckpoint.size(), name.find(',') - kCheckpoint.size());
  if (const auto colon = name.rfind("::"); colon != std::string::npos) name.erase(0, colon + 2);
  if (name.ends_with("Impl")) name.resize(name.size() - 4);
  if (name.starts_with("Lazy")) name.erase(0, 4);  // by now it knows its input size
  return name;
}

}  // namespace kindling
