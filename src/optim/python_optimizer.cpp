#include "kindling/optim/python_optimizer.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <map>

#include "base/joined.h"
#include "kindling/base/error.h"
#include "kindling/base/json.h"
#include "kindling/base/log.h"
#include "kindling/base/number_text.h"
#include "kindling/base/suggest.h"
#include "kindling/optim/lbfgs.h"
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
  if (const auto* text = std::get_if<std::string>(&option)) return json_string(*text);
  if (std::holds_alternative<std::monostate>(option)) return "None";
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

bool is_same_option(const OptionValueOfPython& one, const OptionValueOfPython& other) {
  const auto is_text = [](const auto& option) { return std::holds_alternative<std::string>(option); };
  return is_text(one) || is_text(other) ? one == other : numbers_of(one) == numbers_of(other);
}

// A file has no entry where Python has None.
TorchOptions without_none(TorchOptions options) {
  std::erase_if(options,
                [](const auto& option) { return std::holds_alternative<std::monostate>(option.second); });
  if (const auto kind = options.find("adjust_lr_fn");
      kind != options.end() && kind->second == OptionValueOfPython("original"))
    options.erase(kind);  // the same as None
  return options;
}

std::vector<std::string> differences_of_options(const TorchOptions& there, const TorchOptions& here) {
  std::vector<std::string> found;
  for (const auto& [name, value] : here) {
    const auto other = there.find(name);
    if (is_in(kWithoutEffect, name) || (other == there.end() && is_in(kYounger, name))) continue;
    if (other == there.end())
      found.push_back("'" + name + "' is missing in the file");
    else if (!is_same_option(other->second, value))
      found.push_back("'" + name + "' is " + text_of_option(other->second) + " in the file and " +
                      text_of_option(value) + " here");
  }
  for (const auto& [name, value] : there) {
    // A text that is not an option here is a name, such as that of the group.
    if (here.contains(name) || is_in(kWithoutEffect, name) || std::holds_alternative<std::string>(value))
      continue;
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
    const auto differences = differences_of_options(without_none(file.groups[i].options),
                                                    without_none(options_of_group(optimizer, i)));
    if (!differences.empty())
      throw CheckpointError({.place = place + ", group " + std::to_string(i),
                             .found = joined(differences, ", "),
                             .wanted = "an optimizer of the same kind with the same options",
                             .remedy = "use the same options; nothing was loaded"});
  }
}

// Values that LBFGS keeps as Python numbers and lists.
using StateForms = std::map<std::string, TorchStateForm>;
const StateForms& forms_of_lbfgs() {
  using Form = TorchStateForm;
  static const StateForms forms{
      {"n_iter", Form::integer}, {"func_evals", Form::integer}, {"t", Form::real}, {"prev_loss", Form::real},
      {"old_dirs", Form::list},  {"old_stps", Form::list},      {"ro", Form::list}};
  return forms;
}

// The rows of a list, undefined for an empty one.
at::Tensor rows_of(const TorchOptimizerEntry& entry, const StateDict& values) {
  std::vector<at::Tensor> rows;
  for (std::size_t i = 0; i < *entry.list_size; ++i) rows.push_back(values.tensors[entry.tensor + i].second);
  return rows.empty() ? at::Tensor() : at::stack(rows);
}

at::Tensor value_of(const TorchOptimizerEntry& entry, const StateDict& values, const at::Tensor& parameter) {
  const at::Tensor value = entry.list_size ? rows_of(entry, values)
                           : entry.number  ? at::scalar_tensor(*entry.number, at::kDouble)
                                           : values.tensors[entry.tensor].second;
  if (!value.defined()) return value;
  if (const auto form = forms_of_lbfgs().find(entry.name);
      form != forms_of_lbfgs().end() || entry.name == "H_diag") {
    const bool is_number = form != forms_of_lbfgs().end() && form->second != TorchStateForm::list;
    return value.to(is_number ? at::kDouble : c10::toRealValueType(parameter.scalar_type()));
  }
  // Counts and products stay float32 whatever the parameter is.
  const bool is_own_scalar = entry.name == "step" || (value.dim() == 0 && parameter.dim() > 0);
  if (value.is_complex()) return value.to(c10::toComplexType(parameter.scalar_type()));
  return value.to(is_own_scalar ? at::kFloat : c10::toRealValueType(parameter.scalar_type()));
}

// The places in Optimizer::parameters(), by the numbers in the file.
using PlacesOfNumbers = std::map<std::int64_t, std::size_t>;

// Finds the parameters of a group by their names, from the optimizer's parameter `begin` on.
void match_names(const TorchOptimizerGroup& group, const Optimizer& optimizer, std::size_t begin,
                 const std::string& place, PlacesOfNumbers& places) {
  std::map<std::string, std::size_t> here;
  for (std::size_t i = begin; i < begin + group.parameters.size(); ++i) here.emplace(optimizer.names()[i], i);
  std::map<std::string, std::size_t> left = here;
  std::vector<std::string> unknown;
  for (std::size_t i = 0; i < group.names.size(); ++i) {
    const auto found = left.find(group.names[i]);
    if (found == left.end()) {
      unknown.push_back(json_string(group.names[i]));  // or twice
      continue;
    }
    places.emplace(group.parameters[i], found->second);
    left.erase(found);
  }
  std::vector<std::string> names;
  for (const auto& [name, _] : here) names.push_back(json_string(name));
  if (!unknown.empty())
    throw CheckpointError({.place = place,
                           .found = "its \"param_names\" have " + list_names(unknown),
                           .wanted = "the names of the parameters here, " + list_names(names),
                           .remedy =
                               "name them alike, or remove \"param_names\" from each of \"param_groups\" in "
                               "Python to match them by their order; nothing was loaded"});
}

// Matches the parameters by their names if the file and the optimizer have them, else by their order.
PlacesOfNumbers places_of(const TorchOptimizerFile& file, const Optimizer& optimizer,
                          const std::string& place) {
  PlacesOfNumbers places;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < file.groups.size(); ++i) {
    const TorchOptimizerGroup& group = file.groups[i];
    if (!group.names.empty() && !optimizer.groups()[i].names.empty())
      match_names(group, optimizer, begin, place + ", group " + std::to_string(i), places);
    else
      for (std::size_t j = 0; j < group.parameters.size(); ++j)
        places.emplace(group.parameters[j], begin + j);
    begin += group.parameters.size();
  }
  return places;
}

// L-BFGS keeps vectors of all parameters in their order, and lists of as many steps.
class FlatValues {
 public:
  FlatValues(const TorchOptimizerFile& file, const StateDict& values, const Optimizer& optimizer,
             const std::string& place)
      : file_(file), values_(values), place_(place) {
    for (const at::Tensor& parameter : optimizer.parameters())
      num_values_ += parameter.numel() * (parameter.is_complex() ? 2 : 1);
  }

  // Throws CheckpointError.
  void check(const PlacesOfNumbers& places) const {
    const bool has_any = std::ranges::any_of(file_.state, [](const auto& entry) {
      return is_in(std::array{"d", "old_dirs"}, entry.name);
    });
    if (!has_any) return;
    for (const char* name : {"d", "prev_flat_grad"}) check_vectors(entry_of(name, /*is_list=*/false));
    const TorchOptimizerEntry& directions = entry_of("old_dirs", /*is_list=*/true);
    check_vectors(directions);
    for (const char* name : {"old_stps", "ro"}) {
      const TorchOptimizerEntry& list = entry_of(name, /*is_list=*/true);
      if (*list.list_size != *directions.list_size)
        refuse("its \"" + list.name + "\" has " + std::to_string(*list.list_size) + " tensors",
               std::to_string(*directions.list_size) + ", as its \"old_dirs\" has");
      if (list.name == "old_stps") check_vectors(list);
    }
    const std::size_t factors = entry_of("ro", /*is_list=*/true).tensor;
    for (std::size_t i = factors; i < factors + *directions.list_size; ++i)
      if (const std::int64_t dim = values_.tensors[i].second.dim(); dim != 0)
        refuse("its \"ro\" has a tensor of " + std::to_string(dim) + " dimensions", "scalars");
    std::size_t next = 0;
    for (const TorchOptimizerGroup& group : file_.groups)
      for (const std::int64_t number : group.parameters)
        if (places.at(number) != next++) refuse("its parameters are in another order", "the order here");
  }

 private:
  [[noreturn]] void refuse(const std::string& found, const std::string& wanted) const {
    throw CheckpointError(
        {.place = place_, .found = found, .wanted = wanted, .remedy = "nothing was loaded"});
  }

  const TorchOptimizerEntry& entry_of(const std::string& name, bool is_list) const {
    const auto found = std::ranges::find(file_.state, name, &TorchOptimizerEntry::name);
    const char* const wanted = is_list ? "a list of tensors" : "a tensor";
    if (found == file_.state.end()) refuse("its state has no \"" + name + "\"", wanted);
    if (found->number || found->list_size.has_value() != is_list)
      refuse("its \"" + name + "\" is " +
                 (found->number      ? "a number"
                  : found->list_size ? "a list"
                                     : "a tensor"),
             wanted);
    return *found;
  }

  void check_vectors(const TorchOptimizerEntry& entry) const {
    for (std::size_t i = 0; i < entry.list_size.value_or(1); ++i) {
      const at::Tensor& value = values_.tensors[entry.tensor + i].second;
      if (value.numel() != num_values_)
        refuse("its \"" + entry.name + "\" has " + std::to_string(value.numel()) + " values",
               std::to_string(num_values_) + ", as the parameters have");
      if (value.dim() != 1)
        refuse("its \"" + entry.name + "\" has " + std::to_string(value.dim()) + " dimensions", "one");
    }
  }

  const TorchOptimizerFile& file_;
  const StateDict& values_;
  const std::string& place_;
  std::int64_t num_values_ = 0;
};

StateDict state_of(const TorchOptimizerFile& file, const Optimizer& optimizer, const std::string& path) {
  const PlacesOfNumbers places = places_of(file, optimizer, path);
  const StateDict values = read_state(WeightsFile(file.values));
  FlatValues(file, values, optimizer, path).check(places);
  StateDict state;
  for (const TorchOptimizerEntry& entry : file.state) {
    const std::size_t place = places.at(entry.parameter);
    if (const at::Tensor value = value_of(entry, values, optimizer.parameters()[place]); value.defined())
      state.tensors.emplace_back(optimizer.names()[place] + "." + entry.name, value);
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
  void operator()(const std::string* value) const { options[name] = *value; }
  void operator()(const std::array<double, 2>* values) const {
    options[name] = std::vector<double>(values->begin(), values->end());
  }
  template <class Value>
  void operator()(const std::optional<Value>* value) const {
    if (*value) (*this)(&**value);
  }
  void operator()(const void*) const {}  // no option of Python's
};

}  // namespace

void load_python_optimizer(Optimizer& optimizer, const std::filesystem::path& path, const std::string& key) {
  const TorchOptimizerFile file = open_torch_optimizer(path, key);
  check_groups(file, optimizer, path.string());
  const StateDict state = state_of(file, optimizer, path.string());
  try {
    optimizer.load_state_dict(state);
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
  StateDict saved = optimizer.state_dict();
  const bool is_lbfgs = dynamic_cast<const Lbfgs*>(&optimizer) != nullptr;
  if (is_lbfgs && !saved.tensors.empty())  // no direction yet, an empty list in Python
    for (const char* name : {"old_dirs", "old_stps", "ro"})
      if (const std::string full = optimizer.names()[0] + "." + name; saved.find(full) == nullptr)
        saved.tensors.emplace_back(full, at::empty({0}));
  const HostTensors tensors(saved);
  std::map<std::int64_t, std::vector<TensorToWrite>> state;
  for (TensorToWrite tensor : tensors.writes) {
    const std::size_t dot = tensor.name.rfind('.');
    const std::int64_t number = numbers.at(tensor.name.substr(0, dot));
    tensor.name.erase(0, dot + 1);
    state[number].push_back(std::move(tensor));
  }
  write_torch_optimizer(path, groups, state, is_lbfgs ? forms_of_lbfgs() : StateForms());
}

TorchOptions python_options_of(const OptionSet& set) {
  TorchOptions options;
  for (const OptionRef& ref : set.refs())
    std::visit([&](const auto* value) { OptionVisitor{options, ref.name}(value); }, ref.value);
  return options;
}

}  // namespace kindling
