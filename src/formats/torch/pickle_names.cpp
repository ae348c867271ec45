#include "formats/torch/pickle_names.h"

#include "formats/tensor_types.h"

namespace kindling {
namespace {

// True if `known` is "module name".
bool is_pair(std::string_view known, std::string_view module, std::string_view name) {
  return known.size() == module.size() + 1 + name.size() && known.starts_with(module) &&
         known[module.size()] == ' ' && known.ends_with(name);
}

}  // namespace

std::string_view known_name(std::string_view module, std::string_view name) {
  if (module == "__builtin__") module = "builtins";  // Python 2, and every pickle of protocol 2
  for (const std::string_view known : kPickleNames)
    if (is_pair(known, module, name)) return known;
  for (const TensorTypeRow& row : kTensorTypes)
    for (const std::string_view known : {row.storage, row.dtype})
      if (!known.empty() && is_pair(known, module, name)) return known;
  return {};
}

bool is_safe_in_python(std::string_view module, std::string_view name) {
  return module == "torch" || module == "torch.storage" ||
         (module == "torch._utils" && name.starts_with("_rebuild")) ||
         (module == "collections" && name == "Counter") || (module == "_codecs" && name == "encode") ||
         (module == "torch.serialization" && name == "_get_layout");
}

}  // namespace kindling
