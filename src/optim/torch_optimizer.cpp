#include "kindling/optim/torch_optimizer.h"

#include <ATen/core/List.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>
#include <torch/serialize/archive.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "kindling/base/error.h"
#include "kindling/base/number_text.h"
#include "kindling/tensors/move.h"
#include "optim/laid_as.h"
#include "tensors/saved_number.h"
#include "tensors/shape_text.h"

namespace kindling {
namespace {

using torch::optim::OptimizerParamGroup;

// LibTorch can read the entries of a state only through the bytes of an archive.
torch::serialize::InputArchive readable(torch::serialize::OutputArchive& written,
                                        std::optional<torch::Device> device = std::nullopt) {
  std::string bytes;
  written.save_to([&](const void* data, std::size_t size) {
    bytes.append(static_cast<const char*>(data), size);
    return size;
  });
  torch::serialize::InputArchive archive;
  archive.load_from(bytes.data(), bytes.size(), device);
  return archive;
}

// The groups as LibTorch's optimizers expect them in load(). Parameters have their place, from 1, as key.
torch::serialize::OutputArchive archive_of(const std::vector<OptimizerParamGroup>& groups) {
  torch::serialize::OutputArchive archive;
  archive.write("param_groups/size", at::scalar_tensor(static_cast<std::int64_t>(groups.size()), at::kLong));
  std::size_t place = 0;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    torch::serialize::OutputArchive group(archive.compilation_unit()), options(archive.compilation_unit());
    const auto size = static_cast<std::int64_t>(groups[i].params().size());
    group.write("params/size", at::scalar_tensor(size, at::kLong));
    for (std::int64_t k = 0; k < size; ++k)
      group.write("params/" + std::to_string(k), c10::IValue(std::to_string(++place)));
    groups[i].options().serialize(options);
    group.write("options", options);
    archive.write("param_groups/" + std::to_string(i), group);
  }
  return archive;
}

// --- Entries of the saved state: tensors as they are; a list as its elements, `NAME.0`, and the text "list
// 3"; numbers as the texts "int 3", "float 0.5" and "bool 1".

void put_entry(StateDict& state, const std::string& name, const c10::IValue& value) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) state.tensors.emplace_back(name, value.toTensor());
  } else if (value.isInt()) {
    state.metadata[name] = "int " + std::to_string(value.toInt());
  } else if (value.isDouble()) {
    state.metadata[name] = "float " + number_text(value.toDouble());
  } else if (value.isBool()) {
    state.metadata[name] = value.toBool() ? "bool 1" : "bool 0";
  } else if (value.isTensorList()) {
    const auto list = value.toTensorVector();
    state.metadata[name] = "list " + std::to_string(list.size());
    for (std::size_t i = 0; i < list.size(); ++i)
      if (list[i].defined()) state.tensors.emplace_back(name + "." + std::to_string(i), list[i]);
  } else if (!value.isNone()) {
    throw CheckpointError({.place = "optimizer",
                           .found = "the state '" + name + "' is of type " + value.tagKind(),
                           .wanted = "a tensor, a list of tensors, a whole number, a number or a bool"});
  }
}

// The kinds of numbers that put_entry() writes; nothing for other texts (learning rates).
std::optional<c10::IValue> entry_of_text(const std::string& name, const std::string& text) {
  const auto after = [&](std::string_view tag) -> std::optional<std::string> {
    if (!text.starts_with(tag)) return std::nullopt;
    return text.substr(tag.size());
  };
  if (const auto number = after("int ")) return c10::IValue(parse_saved_number<std::int64_t>(*number, name));
  if (const auto number = after("float ")) return c10::IValue(parse_saved_number<double>(*number, name));
  if (const auto number = after("bool "))
    return c10::IValue(parse_saved_number<std::int64_t>(*number, name, {.min = 0, .max = 1}) == 1);
  return std::nullopt;
}

std::optional<std::int64_t> size_of_list(const std::string& name, const std::string& text) {
  if (!text.starts_with("list ")) return std::nullopt;
  return parse_saved_number<std::int64_t>(text.substr(5), name, {.min = 0, .max = 1'000'000});
}

// Names of all entries, for a comparison of two states.
std::set<std::string> names_of(const StateDict& state) {
  std::set<std::string> names;
  for (const auto& [name, tensor] : state.tensors) names.insert(name);
  for (const auto& [name, text] : state.metadata)
    if (entry_of_text(name, text) || size_of_list(name, text)) names.insert(name);
  return names;
}

// The state of one parameter, by the rule's names.
class ParameterEntries {
 public:
  explicit ParameterEntries(at::Tensor parameter, bool has_its_shape)
      : parameter_(std::move(parameter)), has_its_shape_(has_its_shape) {}

  void add(const std::string& key, const at::Tensor& values, std::string& misfits, const std::string& name) {
    if (has_its_shape_ && values.sizes() != parameter_.sizes())
      misfits += (misfits.empty() ? "'" : ", '") + name + "' has the shape " + shape_text(values);
    values_[key] = c10::IValue(placed(values));
  }
  void add(const std::string& key, c10::IValue value) { values_[key] = std::move(value); }
  void add(const std::string& key, const std::vector<at::Tensor>& list) {
    c10::List<at::Tensor> placed_list;
    for (const at::Tensor& tensor : list) placed_list.push_back(placed(tensor));
    values_[key] = c10::IValue(std::move(placed_list));
  }
  void write(torch::serialize::OutputArchive& archive) const {
    for (const auto& [key, value] : values_) archive.write(key, value);
  }
  bool empty() const noexcept { return values_.empty(); }
  bool contains(const std::string& key) const { return values_.contains(key); }
  void count_keys(std::map<std::string, std::size_t>& counts) const {
    for (const auto& [key, value] : values_) ++counts[key];
  }

 private:
  at::Tensor placed(const at::Tensor& values) const {
    return laid_as(parameter_, copy_to(values.detach(), parameter_.device()));
  }

  at::Tensor parameter_;
  bool has_its_shape_;
  std::map<std::string, c10::IValue> values_;
};

// Whether every tensor of the state has its parameter's shape.
bool is_elementwise(const torch::optim::Optimizer& rule) {
  return dynamic_cast<const torch::optim::SGD*>(&rule) != nullptr ||
         dynamic_cast<const torch::optim::Adam*>(&rule) != nullptr ||
         dynamic_cast<const torch::optim::AdamW*>(&rule) != nullptr ||
         dynamic_cast<const torch::optim::Adagrad*>(&rule) != nullptr ||
         dynamic_cast<const torch::optim::RMSprop*>(&rule) != nullptr;
}

[[noreturn]] void refuse_state(const std::string& misfits) {
  throw CheckpointError({.place = "optimizer",
                         .found = "the state does not fit: " + misfits,
                         .wanted = "the state of the same optimizer of the same model"});
}

// Explains why LibTorch could not load a state, which its own message does not: names the entries that one
// parameter has and most others do not, or the other way round.
std::string unlike_the_others(const std::vector<ParameterEntries>& entries,
                              const std::vector<std::string>& names) {
  std::map<std::string, std::size_t> counts;
  std::size_t num_with_state = 0;
  for (const ParameterEntries& one : entries) {
    one.count_keys(counts);
    num_with_state += one.empty() ? 0 : 1;
  }
  std::string text;
  for (std::size_t i = 0; i < entries.size(); ++i)
    for (const auto& [key, count] : counts) {
      const bool is_usual = 2 * count > num_with_state;
      if (entries[i].empty() || entries[i].contains(key) == is_usual) continue;
      text += (text.empty() ? "'" : ", '") + names[i] + "." + key +
              (is_usual ? "' is missing" : "' is not part of its state");
    }
  return text.empty() ? "values are missing or have other types than this optimizer's" : text;
}

// LibTorch's rules square complex numbers, where Python's square their parts; SGD is linear.
void require_real_parameters(const torch::optim::Optimizer& rule) {
  if (dynamic_cast<const torch::optim::SGD*>(&rule) != nullptr) return;
  for (const OptimizerParamGroup& group : rule.param_groups())
    for (const at::Tensor& parameter : group.params())
      if (parameter.is_complex())
        throw ConfigError({.place = "TorchOptimizer",
                           .found = "a complex parameter, which this optimizer of LibTorch trains wrongly",
                           .wanted = "real parameters, or SGD",
                           .remedy = "use Kindling's optimizer of that name"});
}

const torch::optim::Optimizer& checked(const std::unique_ptr<torch::optim::Optimizer>& wrapped) {
  if (wrapped == nullptr)
    throw ConfigError(
        {.place = "TorchOptimizer", .found = "a null pointer", .wanted = "an optimizer of LibTorch"});
  require_real_parameters(*wrapped);
  return *wrapped;
}

std::vector<ParameterGroup> groups_of(const torch::optim::Optimizer& wrapped) {
  std::vector<ParameterGroup> groups;
  for (const OptimizerParamGroup& group : wrapped.param_groups())
    groups.push_back({.parameters = group.params()});
  return groups;
}

std::vector<ParameterGroup> with_rates(std::vector<ParameterGroup> groups,
                                       const torch::optim::Optimizer& wrapped) {
  if (groups.empty()) groups = groups_of(wrapped);
  for (std::size_t i = 0; i < groups.size(); ++i) groups[i].lr = wrapped.param_groups()[i].options().get_lr();
  return groups;
}

}  // namespace

TorchOptimizer::TorchOptimizer(std::unique_ptr<torch::optim::Optimizer> wrapped)
    : TorchOptimizer(std::move(wrapped), {}) {}

TorchOptimizer::TorchOptimizer(std::unique_ptr<torch::optim::Optimizer> wrapped,
                               std::vector<ParameterGroup> groups)
    : Optimizer(with_rates(std::move(groups), checked(wrapped)), 0), wrapped_(std::move(wrapped)) {}

std::vector<OptimizerParamGroup> TorchOptimizer::plain_groups(const std::vector<ParameterGroup>& groups) {
  std::vector<OptimizerParamGroup> plain;
  for (const ParameterGroup& group : groups) plain.emplace_back(group.parameters);
  return plain;
}

void TorchOptimizer::refuse_weight_decay() {
  throw ConfigError({.place = "TorchOptimizer",
                     .found = "a group with a weight decay",
                     .wanted = "none: this rule has no weight decay"});
}

bool TorchOptimizer::needs_closure() const {
  return dynamic_cast<const torch::optim::LBFGS*>(wrapped_.get()) != nullptr;
}

void TorchOptimizer::apply_rates() {
  for (std::size_t i = 0; i < groups().size(); ++i) wrapped_->param_groups()[i].options().set_lr(lr(i));
}

// Called for each group; the wrapped optimizer updates all of them in one step, in the call for the first.
void TorchOptimizer::update(const Update& update) {
  if (needs_closure())
    throw ConfigError({.place = "TorchOptimizer",
                       .found = "a step of LBFGS without a closure",
                       .wanted = "step_with(closure), which evaluates the loss several times"});
  const auto first =
      std::ranges::find_if(parameters(), [](const at::Tensor& p) { return p.grad().defined(); });
  if (first - parameters().begin() != static_cast<std::ptrdiff_t>(update.active.front())) return;
  apply_rates();
  wrapped_->step();
}

at::Tensor TorchOptimizer::step_with(const Closure& closure) {
  if (!needs_closure()) return Optimizer::step_with(closure);
  apply_rates();
  return wrapped_->step(closure);
}

StateDict TorchOptimizer::state_dict() const {
  StateDict saved = Optimizer::state_dict();
  const StateDict own = wrapped_state();
  saved.tensors = own.tensors;
  saved.metadata.insert(own.metadata.begin(), own.metadata.end());
  return saved;
}

StateDict TorchOptimizer::wrapped_state() const {
  torch::serialize::OutputArchive all;
  for (std::size_t i = 0; i < parameters().size(); ++i) {
    const auto state = wrapped_->state().find(parameters()[i].unsafeGetTensorImpl());
    if (state == wrapped_->state().end()) continue;
    torch::serialize::OutputArchive one(all.compilation_unit());
    state->second->serialize(one);
    all.write(std::to_string(i), one);
  }
  StateDict saved;
  torch::serialize::InputArchive archive = readable(all, at::kCPU);
  for (std::size_t i = 0; i < parameters().size(); ++i) {
    torch::serialize::InputArchive one;
    if (!archive.try_read(std::to_string(i), one)) continue;
    for (const std::string& key : one.keys()) {
      c10::IValue value;
      one.read(key, value);
      put_entry(saved, names()[i] + "." + key, value);
    }
  }
  return saved;
}

void TorchOptimizer::load_state_dict(const StateDict& state) {
  const StateDict before = state_dict();
  try {
    Optimizer::load_state_dict({.tensors = {}, .metadata = state.metadata});
    load_wrapped(state);
  } catch (const Error&) {
    Optimizer::load_state_dict({.tensors = {}, .metadata = before.metadata});
    load_wrapped(before);
    throw;
  }
}

// Writes an archive of the kind that the wrapped optimizer has saved, and lets it load that.
void TorchOptimizer::load_wrapped(const StateDict& state) {
  const bool has_their_shapes = is_elementwise(*wrapped_);
  std::map<std::string, std::size_t> places;
  std::vector<ParameterEntries> entries;
  for (std::size_t i = 0; i < parameters().size(); ++i) {
    places[names()[i]] = i;
    entries.emplace_back(parameters()[i].detach(), has_their_shapes);
  }
  // "net.1.weight.exp_avg" to the place of "net.1.weight" and "exp_avg".
  const auto split = [&](const std::string& name) -> std::optional<std::pair<std::size_t, std::string>> {
    for (std::size_t dot = name.rfind('.'); dot != std::string::npos && dot > 0;
         dot = name.rfind('.', dot - 1))
      if (const auto found = places.find(name.substr(0, dot)); found != places.end())
        return std::pair(found->second, name.substr(dot + 1));
    return std::nullopt;
  };
  std::string misfits;
  const auto add_misfit = [&](const std::string& name, const char* what) {
    misfits += (misfits.empty() ? "'" : ", '") + name + what;
  };
  std::set<std::string> elements;
  for (const auto& [name, text] : state.metadata) {
    const auto place = split(name);
    if (!place) continue;  // a learning rate
    if (const auto number = entry_of_text(name, text)) entries[place->first].add(place->second, *number);
    if (const auto size = size_of_list(name, text)) {
      std::vector<at::Tensor> list;
      for (std::int64_t i = 0; i < *size; ++i) {
        const std::string element = name + "." + std::to_string(i);
        if (const at::Tensor* values = state.find(element))
          list.push_back(*values);
        else
          add_misfit(element, "' is missing");
        elements.insert(element);
      }
      if (misfits.empty()) entries[place->first].add(place->second, list);
    }
  }
  for (const auto& [name, values] : state.tensors) {
    if (elements.contains(name)) continue;
    if (const auto place = split(name))
      entries[place->first].add(place->second, values, misfits, name);
    else
      add_misfit(name, "' is not part of its state");
  }
  if (!misfits.empty()) refuse_state(misfits);

  torch::serialize::OutputArchive archive, of_groups = archive_of(wrapped_->param_groups());
  torch::serialize::OutputArchive of_states(archive.compilation_unit());
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].empty()) continue;
    torch::serialize::OutputArchive one(archive.compilation_unit());
    entries[i].write(one);
    of_states.write(std::to_string(i + 1), one);
  }
  archive.write("pytorch_version", c10::IValue("1.5.0"));  // of the format
  archive.write("state", of_states);
  archive.write("param_groups", of_groups);
  torch::serialize::InputArchive loaded = readable(archive);
  wrapped_->state().clear();
  try {
    wrapped_->load(loaded);
  } catch (const c10::Error&) {
    refuse_state(unlike_the_others(entries, names()));
  }
  const std::set<std::string> taken = names_of(wrapped_state());
  for (const std::string& name : names_of(state))
    if (!taken.contains(name)) add_misfit(name, "' is not part of its state");
  if (!misfits.empty()) refuse_state(misfits);
}

}  // namespace kindling
