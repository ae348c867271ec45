#include "formats/torch/script_classes.h"

#include "formats/torch/python_conversion.h"
#include "kindling/base/error.h"

namespace kindling {
namespace {

// The strings in a line such as __buffers__ = ["running_mean", "running_var", ].
std::vector<std::string> quoted_names(std::string_view line) {
  std::vector<std::string> names;
  for (std::size_t open = line.find('"'); open != line.npos; open = line.find('"', open)) {
    const std::size_t close = line.find('"', open + 1);
    if (close == line.npos) break;
    names.emplace_back(line.substr(open + 1, close - open - 1));
    open = close + 1;
  }
  return names;
}

std::map<std::string, ScriptClass, std::less<>> script_classes_in(std::string_view code) {
  constexpr std::string_view kClass = "class ",
                             kParameters = "  __parameters__ = ", kBuffers = "  __buffers__ = ";
  std::map<std::string, ScriptClass, std::less<>> classes;
  ScriptClass* current = nullptr;
  for (std::size_t begin = 0; begin < code.size();) {
    const std::size_t end = std::min(code.find('\n', begin), code.size());
    const std::string_view line = code.substr(begin, end - begin);
    begin = end + 1;
    if (line.starts_with(kClass)) {
      const std::string_view rest = line.substr(kClass.size());
      current = &classes[std::string(rest.substr(0, rest.find_first_of("(:")))];
      current->is_module = rest.ends_with("(Module):");
    } else if (current != nullptr && line.starts_with(kParameters)) {
      current->parameters = quoted_names(line);
    } else if (current != nullptr && line.starts_with(kBuffers)) {
      current->buffers = quoted_names(line);
    }
  }
  return classes;
}

}  // namespace

const ScriptClass& ScriptClasses::find(std::string_view module, std::string_view name) {
  auto known = modules_.find(module);
  if (known == modules_.end())
    known = modules_.emplace(module, script_classes_in(file_.code_of(module))).first;
  const auto found = known->second.find(name);
  if (found == known->second.end())
    throw CheckpointError(
        {.place = file_.place,
         .found = "its code has no class " +
                  quoted_key(std::string(module.substr(0, 100)) + "." + std::string(name.substr(0, 100))),
         .wanted = "a complete archive of torch.jit.save",
         .remedy = kDamagedTorchFile});
  return found->second;
}

}  // namespace kindling
