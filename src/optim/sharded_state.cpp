#include "optim/sharded_state.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <string>

#include "distributed/packed_texts.h"
#include "kindling/base/error.h"

namespace kindling {

std::vector<std::int64_t> owners_of(std::span<const at::Tensor> parameters, std::int64_t num_processes) {
  std::vector<std::size_t> order(parameters.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(
      order, [&](std::size_t a, std::size_t b) { return parameters[a].numel() > parameters[b].numel(); });
  std::vector<std::int64_t> load(static_cast<std::size_t>(num_processes)), owners(parameters.size());
  for (const std::size_t i : order) {
    const auto least = std::ranges::min_element(load);
    *least += parameters[i].numel();
    owners[i] = least - load.begin();
  }
  return owners;
}

namespace {

// Finds the parameter that an entry of an optimizer's state belongs to.
class ParameterNames {
 public:
  explicit ParameterNames(const Optimizer& optimizer) {
    for (std::size_t i = 0; i < optimizer.names().size(); ++i) places_[optimizer.names()[i]] = i;
  }
  // Maps "net.1.weight.exp_avg" to the index of "net.1.weight"; nothing if it belongs to no parameter.
  std::optional<std::size_t> place_of(const std::string& entry) const {
    for (std::size_t dot = entry.rfind('.'); dot != std::string::npos && dot > 0;
         dot = entry.rfind('.', dot - 1))
      if (const auto found = places_.find(entry.substr(0, dot)); found != places_.end()) return found->second;
    return std::nullopt;
  }

 private:
  std::map<std::string, std::size_t> places_;
};

// Drops what belongs to other ranks. Keeps entries that belong to no parameter, which loading then rejects.
StateDict own_share(const Optimizer& optimizer, const StateDict& state, const ProcessGroup& group) {
  const auto owners = owners_of(optimizer.parameters(), group.size());
  const ParameterNames names(optimizer);
  StateDict own{.tensors = {}, .metadata = state.metadata};
  for (const auto& item : state.tensors)
    if (const auto place = names.place_of(item.first); !place || owners[*place] == group.rank())
      own.tensors.push_back(item);
  return own;
}

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

std::string description(const NamedTensors& tensors) {
  std::vector<std::string> texts;
  for (const auto& [name, tensor] : tensors) {
    texts.push_back(name);
    texts.push_back(std::to_string(static_cast<int>(tensor.scalar_type())));
    texts.push_back(std::to_string(tensor.dim()));
    for (const std::int64_t size : tensor.sizes()) texts.push_back(std::to_string(size));
  }
  return packed(texts);
}

// Returns empty tensors in host memory, as described.
NamedTensors described(const std::string& description) {
  const std::vector<std::string> texts = unpacked(description);
  NamedTensors tensors;
  std::size_t at = 0;
  const auto number = [&] { return std::stoll(texts.at(at++)); };
  while (at < texts.size()) {
    std::string name = texts[at++];
    const auto type = static_cast<at::ScalarType>(number());
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(number()));
    for (std::int64_t& size : sizes) size = number();
    tensors.emplace_back(std::move(name), at::empty(sizes, type));
  }
  return tensors;
}

// Sorts entries as in the complete state of an optimizer: parameter by parameter.
void order(NamedTensors& tensors, const Optimizer& optimizer) {
  const ParameterNames names(optimizer);
  std::ranges::stable_sort(tensors, {}, [&](const auto& item) { return names.place_of(item.first); });
}

}  // namespace

StateDict saved_state(const Optimizer& optimizer, ProcessGroup* shards) {
  if (shards == nullptr) return optimizer.state_dict();
  ProcessGroup& group = *shards;
  StateDict state = own_share(optimizer, optimizer.state_dict(), group);
  const auto descriptions = group.all_gather(description(state.tensors));
  if (group.rank() > 0) {
    for (const auto& [name, tensor] : state.tensors) group.send(tensor.cpu().contiguous(), 0);
    return state;
  }
  for (std::int64_t rank = 1; rank < group.size(); ++rank)
    for (auto& [name, tensor] : described(descriptions[static_cast<std::size_t>(rank)])) {
      group.receive(tensor, rank);
      state.tensors.emplace_back(name, tensor);
    }
  order(state.tensors, optimizer);
  return state;
}

void load_saved_state(Optimizer& optimizer, const StateDict& saved, const ProcessGroup* shards) {
  optimizer.load_state_dict(shards != nullptr ? own_share(optimizer, saved, *shards) : saved);
}

void drop_foreign_state(Optimizer& optimizer, const ProcessGroup& shards) {
  const StateDict state = optimizer.state_dict(), own = own_share(optimizer, state, shards);
  if (own.tensors.size() < state.tensors.size()) optimizer.load_state_dict(own);
}

void require_per_parameter(const Optimizer& optimizer) {
  if (optimizer.is_per_parameter()) return;
  throw ConfigError({.place = "shard_optimizer_state",
                     .found = "the rule does not declare that it updates each parameter independently",
                     .wanted = "a rule whose is_per_parameter() is true",
                     .remedy = "override it in a custom rule, or set shard_optimizer_state = false"});
}

}  // namespace kindling
