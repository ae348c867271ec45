#include "kindling/nn/manual_module.h"

#include "kindling/base/error.h"
#include "nn/model_calls.h"
#include "nn/named_optimizers.h"

namespace kindling {
namespace {

void check_optimizer(const std::string& place, const std::string& name, const Optimizer* optimizer) {
  if (optimizer == nullptr || name.empty() || name.find('.') != std::string::npos)
    throw ConfigError({.place = place,
                       .found = "'" + name + "'" + (optimizer != nullptr ? "" : " is nullptr"),
                       .wanted = "an Optimizer under a name without dots"});
  if (optimizer->needs_closure())
    throw ConfigError({.place = place,
                       .found = "'" + name + "' evaluates the loss of a batch several times",
                       .wanted = "an optimizer that needs only the gradients"});
}

}  // namespace

std::string list_of_names(const std::set<std::string>& names) {
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "'" : ", '") + name + "'";
  return list;
}

std::string list_of_names(const NamedOptimizers& optimizers) {
  std::set<std::string> names;
  for (const auto& [name, optimizer] : optimizers) names.insert(name);
  return list_of_names(names);
}

NamedOptimizers make_named_optimizers(Module& model) {
  NamedOptimizers made = model.configure_named_optimizers();
  const std::string place = model.name() + "::configure_named_optimizers";
  if (made.empty()) throw ConfigError({.place = place, .found = "there are none", .wanted = "at least one"});
  for (const auto& [name, optimizer] : made) {
    check_optimizer(place, name, optimizer.get());
    optimizer->take_names(model);
  }
  return made;
}

Optimizer& optimizer_named(const NamedOptimizers& optimizers, std::string_view name) {
  const auto found = optimizers.find(name);
  if (found != optimizers.end()) return *found->second;
  throw ConfigError({.place = "update",
                     .found = "there is no optimizer '" + std::string(name) + "'",
                     .wanted = "one of " + list_of_names(optimizers)});
}

void ManualModule::update(std::string_view optimizer, const at::Tensor& loss, UpdateOptions options) {
  ManualUpdates* const updates = trainer().updates();
  if (updates == nullptr)
    throw Error({.place = name() + "::update",
                 .found = "no training step of a trainer is running",
                 .wanted = "a call from training_step"});
  updates->update(optimizer, loss, options.retain_graph);
}

}  // namespace kindling
