#include "training/named_optimizers.h"

#include <optional>
#include <set>
#include <string>

#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "training/optimizer_states.h"
#include "training/state_parts.h"

namespace kindling {
namespace {

constexpr const char* kOptimizers = "optimizers.";  // a name follows

std::string list_of(const std::set<std::string>& names) {
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "'" : ", '") + name + "'";
  return list;
}

std::string names_of(const NamedOptimizers& optimizers) {
  std::set<std::string> names;
  for (const auto& [name, optimizer] : optimizers) names.insert(name);
  return list_of(names);
}

void check(const std::string& place, const std::string& name, const Optimizer* optimizer) {
  if (optimizer == nullptr || name.empty() || name.find('.') != std::string::npos)
    throw ConfigError({.place = place,
                       .found = "'" + name + "'" + (optimizer != nullptr ? "" : " is nullptr"),
                       .wanted = "an Optimizer under a name without dots"});
  if (optimizer->needs_closure())
    throw ConfigError({.place = place,
                       .found = "'" + name + "' evaluates the loss of a batch several times",
                       .wanted = "an optimizer that needs the gradients alone"});
}

bool has_values(const EpochLog& log, std::optional<std::size_t> column) {
  for (std::int64_t row = 0; column && row < log.num_rows(); ++row)
    if (log.value(row, *column)) return true;
  return false;
}

}  // namespace

NamedOptimizers named_optimizers_of(ManualModule& model) {
  NamedOptimizers made = model.configure_named_optimizers();
  const std::string place = model.name() + "::configure_named_optimizers";
  if (made.empty()) throw ConfigError({.place = place, .found = "there are none", .wanted = "one at least"});
  for (const auto& [name, optimizer] : made) {
    check(place, name, optimizer.get());
    optimizer->take_names(model);
  }
  return made;
}

Optimizer& optimizer_named(const NamedOptimizers& optimizers, std::string_view name) {
  const auto found = optimizers.find(name);
  if (found != optimizers.end()) return *found->second;
  throw ConfigError({.place = "update",
                     .found = "there is no optimizer '" + std::string(name) + "'",
                     .wanted = "one of " + names_of(optimizers)});
}

void tell_of_idle(const Module& model, const NamedOptimizers& optimizers, const EpochLog& log) {
  if (dynamic_cast<const ManualModule*>(&model) == nullptr) return;
  std::set<std::string> idle;
  for (const auto& [name, optimizer] : optimizers)
    if (!has_values(log, log.find_column(rate_column(name), EpochLog::Kind::step_only))) idle.insert(name);
  if (idle.size() == optimizers.size())
    log_warning(model.name() + "::training_step has run no update(optimizer, loss) in this epoch");
  else if (!idle.empty())
    log_warning("no update has been run in this epoch of " + list_of(idle));
}

void save_optimizers(const NamedOptimizers& optimizers, StateDict& state, const TrainerOptions& options) {
  for (const auto& [name, optimizer] : optimizers)
    put(state, kOptimizers + name + ".", saved_state(*optimizer, options));
}

NamedOptimizers load_optimizers(Module& model, const StateDict& state, const TrainerOptions& options) {
  const StateDict saved = part_of(state, kOptimizers);
  std::set<std::string> names;
  for (const auto& [name, value] : saved.metadata) names.insert(name.substr(0, name.find('.')));
  auto* const manual = dynamic_cast<ManualModule*>(&model);
  if (manual != nullptr && !part_of(state, "optimizer.").metadata.empty())
    throw CheckpointError({.place = "the saved optimizer",
                           .found = "it has no name",
                           .wanted = "those of " + model.name() + "::configure_named_optimizers",
                           .remedy = "load the weights alone"});
  if (names.empty()) return {};
  NamedOptimizers optimizers;
  if (manual != nullptr) optimizers = named_optimizers_of(*manual);
  if (names_of(optimizers) != list_of(names))
    throw CheckpointError({.place = "the saved optimizers",
                           .found = list_of(names),
                           .wanted = manual != nullptr ? names_of(optimizers) : "one without a name"});
  for (const auto& [name, optimizer] : optimizers)
    load_saved_state(*optimizer, part_of(saved, name + "."), options);
  return optimizers;
}

}  // namespace kindling
