#include "kindling/optim/python_optimizer.h"

#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <map>

#include "base/joined.h"
#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "kindling/base/number_text.h"
#include "tensors/state_tensors.h"

namespace kindling {
namespace {

// Options of how a step is computed, or values that a Python scheduler keeps in a group: none affects the
// result.
constexpr std::array kWithoutEffect{"lr",           "initial_lr", "foreach", "capturable", "differentiable",
                                    "fused",        "max_lr",     "min_lr",  "swa_lr",     "base_momentum",
                                    "max_momentum", "param_names"};
// Added after PyTorch 1.13; false if a file or a rule here does not have them.
constexpr std::array kYounger{"maximize", "decoupled_weight_decay"};

bool is_in(const auto& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

using OptionValueOfPython = TorchOptions::mapped_type;

std::vector<double> numbers_of(const OptionValueOfPython& option) {
  if (const auto* numbers = std::get_if<std::vector<double>>(&option)) return *numbers;
  return {std::visit(
      [](const auto& value) -> double {
        if constexpr (std::is_arithmetic_v<std::decay_t<decltype(value)>>)
          return static_cast<double>(value);
        else
          return 0;
      },
      option)};
}

std::string text_of_option(const OptionValueOfPython& option) {
  if (const bool* flag = std::get_if<bool>(&option)) return *flag ? "true" : "false";
  const std::string text = joined(numbers_of(option), ", ", number_text);
  return std::holds_alternative<std::vector<double>>(option) ? "[" + text + "]" : text;
}

// The options of one of the optimizer's groups, with its own weight decay.
TorchOptions options_of_group(const Optimizer& optimizer, std::size_t group) {
  TorchOptions options = optimizer.python_options();
  if (options.contains("weight_decay")) options["weight_decay"] = *optimizer.groups()[group].weight_decay;
  return options;
}

// Sets the current momentum of a schedule.
void put_momentum(TorchOptions& options, const Optimizer& optimizer) {
  if (!optimizer.has_momentum()) return;
  if (options.contains("momentum")) options["momentum"] = optimizer.momentum();
  if (const auto betas = options.find("betas"); betas != options.end())
    std::get<std::vector<double>>(betas->second)[0] = optimizer.momentum();
}

std::vector<std::string> differences_of_options(const TorchOptions& there, const TorchOptions& here) {
  std::vector<std::string> found;
  for (const auto& [name, value] : here) {
    const auto other = there.find(name);
    if (is_in(kWithoutEffect, name) || (other == there.end() && is_in(kYounger, name))) continue;
    if (other == there.end())
      found.push_back("'" + name + "' is missing in the file");
    else if (numbers_of(other->second) != numbers_of(value))
      found.push_back("'" + name + "' is " + text_of_option(other->second) + " in the file and " +
                      text_of_option(value) + " here");
  }
  for (const auto& [name, value] : there) {
    if (here.contains(name) || is_in(kWithoutEffect, name)) continue;
    if (!is_in(kYounger, name) || numbers_of(value) != std::vector<double>{0})
      found.push_back("'" + name + "' is " + text_of_option(value) + " in the file, but not an option here");
  }
  return found;
}

void warn_of_rate(const TorchOptions& there, double here, std::size_t group, const std::string& place) {
  auto rate = there.find("initial_lr");  // a scheduler changes "lr"
  if (rate == there.end()) rate = there.find("lr");
  if (rate == there.end() || numbers_of(rate->second) == std::vector{here}) return;
  log_warning(place + ", group " + std::to_string(group) + ": the learning rate is " +
              text_of_option(rate->second) + " in the file and stays " + number_text(here));
}

std::string text_of_sizes(const std::vector<std::size_t>& sizes) {
  return std::to_string(sizes.size()) + (sizes.size() == 1 ? " group of " : " groups of ") +
         joined(sizes, ", ", [](std::size_t size) { return std::to_string(size); }) + " parameters";
}

// Rejects another kind of optimizer, and another model.
void check_groups(const TorchOptimizerFile& file, const Optimizer& optimizer, const std::string& place) {
  std::vector<std::size_t> there, here;
  for (const TorchOptimizerGroup& group : file.groups) there.push_back(group.parameters.size());
  for (const ParameterGroup& group : optimizer.groups()) here.push_back(group.parameters.size());
  if (there != here)
    throw CheckpointError({.place = place,
                           .found = "it has " + text_of_sizes(there),
                           .wanted = text_of_sizes(here),
                           .remedy = "create both optimizers with the same parameters; nothing was loaded"});
  if (optimizer.python_options().empty()) return;  // a custom rule
  for (std::size_t i = 0; i < file.groups.size(); ++i) {
    const auto differences = differences_of_options(file.groups[i].options, options_of_group(optimizer, i));
    if (!differences.empty())
      throw CheckpointError({.place = place + ", group " + std::to_string(i),
                             .found = joined(differences, ", "),
                             .wanted = "an optimizer of the same kind with the same options",
                             .remedy = "use the same options; nothing was loaded"});
  }
}

at::Tensor value_of(const TorchOptimizerEntry& entry, const StateDict& values, const at::Tensor& parameter) {
  const at::Tensor value =
      entry.number ? at::scalar_tensor(*entry.number, at::kDouble) : values.tensors[entry.tensor].second;
  // Counts and products stay float32 whatever the parameter is.
  const bool is_own_scalar = entry.name == "step" || (value.dim() == 0 && parameter.dim() > 0);
  return value.to(is_own_scalar ? at::kFloat : parameter.scalar_type());
}

StateDict state_of(const TorchOptimizerFile& file, const Optimizer& optimizer) {
  std::map<std::int64_t, std::size_t> places;  // in parameters(), by Python's numbers
  for (const TorchOptimizerGroup& group : file.groups)
    for (const std::int64_t number : group.parameters) places.emplace(number, places.size());
  const StateDict values = read_state(WeightsFile(file.values));
  StateDict state;
  for (const TorchOptimizerEntry& entry : file.state) {
    const std::size_t place = places.at(entry.parameter);
    state.tensors.emplace_back(optimizer.names()[place] + "." + entry.name,
                               value_of(entry, values, optimizer.parameters()[place]));
  }
  return state;
}

struct OptionVisitor {
  TorchOptions& options;
  const std::string& name;

  void operator()(const bool* value) const { options[name] = *value; }
  void operator()(const std::int64_t* value) const { options[name] = *value; }
  void operator()(const double* value) const { options[name] = *value; }
  void operator()(const std::vector<double>* values) const { options[name] = *values; }
  void operator()(const std::array<double, 2>* values) const {
    options[name] = std::vector<double>(values->begin(), values->end());
  }
  template <class Value>
  void operator()(const std::optional<Value>* value) const {
    if (*value) (*this)(&**value);
  }
  void operator()(const void*) const {}  // not a number
};

}  // namespace

void load_python_optimizer(Optimizer& optimizer, const std::filesystem::path& path, const std::string& key) {
  const TorchOptimizerFile file = open_torch_optimizer(path, key);
  check_groups(file, optimizer, path.string());
  try {
    optimizer.load_state_dict(state_of(file, optimizer));
  } catch (const CheckpointError& error) {
    ErrorParts parts = error.parts();
    parts.place = path.string() + ", " + parts.place;
    throw CheckpointError(parts);
  }
  for (std::size_t i = 0; i < file.groups.size(); ++i)
    warn_of_rate(file.groups[i].options, *optimizer.groups()[i].lr, i, path.string());
}

void save_python_optimizer(const Optimizer& optimizer, const std::filesystem::path& path) {
  if (optimizer.python_options().empty())
    throw CheckpointError({.place = path.string(),
                           .found = "the optimizer has no options under Python's names",
                           .wanted = "one of torch.optim's, or a rule with python_options()"});
  std::vector<TorchOptimizerGroup> groups(optimizer.groups().size());
  std::map<std::string, std::int64_t> numbers;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    for (std::size_t j = 0; j < optimizer.groups()[i].parameters.size(); ++j) {
      groups[i].parameters.push_back(static_cast<std::int64_t>(numbers.size()));
      numbers.emplace(optimizer.names()[numbers.size()], static_cast<std::int64_t>(numbers.size()));
    }
    groups[i].options = options_of_group(optimizer, i);
    groups[i].options["lr"] = optimizer.lr(i);
    put_momentum(groups[i].options, optimizer);
    if (const double initial = *optimizer.groups()[i].lr; initial != optimizer.lr(i))
      groups[i].options["initial_lr"] = initial;  // a schedule is active
  }
  const HostTensors tensors(optimizer.state_dict());
  std::map<std::int64_t, std::vector<TensorToWrite>> state;
  for (TensorToWrite tensor : tensors.writes) {
    const std::size_t dot = tensor.name.rfind('.');
    const std::int64_t number = numbers.at(tensor.name.substr(0, dot));
    tensor.name.erase(0, dot + 1);
    state[number].push_back(std::move(tensor));
  }
  write_torch_optimizer(path, groups, state);
}

TorchOptions python_options_of(const OptionSet& set) {
  TorchOptions options;
  for (const OptionRef& ref : set.refs())
    std::visit([&](const auto* value) { OptionVisitor{options, ref.name}(value); }, ref.value);
  return options;
}

}  // namespace kindling
