#include "formats/torch/torch_weights.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <unordered_set>
#include <utility>

#include "formats/torch/module_tensors.h"
#include "formats/torch/python_conversion.h"
#include "formats/torch/torch_tensor_list.h"
#include "kindling/base/error.h"
#include "kindling/base/json.h"
#include "kindling/base/suggest.h"

namespace kindling {
namespace {

using Kind = PickleValue::Kind;
using Place = PickleValue::Place;

constexpr std::size_t kMostCandidates = 20, kMostSkipped = 100;

// A value that is reached from the file's object, and how: as messages and as Python name it.
struct Reached {
  Place place = 0;
  std::string path{}, in_python{};
};

// Calls visit(name, value, Python's suffix) for the entries of a dict or of a sequence, and for the
// attributes of an object.
template <class Visit>
void for_each_member(const Pickle& pickle, const PickleValue& value, Visit visit) {
  const auto visit_pairs = [&](const PickleValue& pairs, std::size_t begin, bool are_attributes) {
    for (std::size_t i = begin; i + 1 < pairs.items.size(); i += 2)
      if (const PickleValue& name = pickle[pairs.items[i]]; name.kind == Kind::text)
        visit(name.text, pairs.items[i + 1], are_attributes);
  };
  if (value.kind == Kind::dict) return visit_pairs(value, 0, false);
  if (value.kind == Kind::object) {
    visit_pairs(value, 3, false);
    if (const PickleValue& state = pickle[value.items[2]]; state.kind == Kind::dict)
      visit_pairs(state, 0, true);
  } else if (value.kind == Kind::list || value.kind == Kind::tuple) {
    for (std::size_t i = 0; i < value.items.size(); ++i) {
      const std::string name = std::to_string(i);
      visit(std::string_view(name), value.items[i], false);
    }
  }
}

std::string python_member(const PickleValue& value, std::string_view name, bool is_attribute) {
  if (is_attribute) return "." + std::string(name);
  if (value.kind == Kind::dict || value.kind == Kind::object) return "[" + json_string(name) + "]";
  return "[" + std::string(name) + "]";
}

class WeightsSearch {
 public:
  explicit WeightsSearch(const TorchContainer& file) : file_(file), pickle_(*file.pickle), modules_(file) {}

  // The state dict of the file's object or of the entry of the key.
  TorchWeights find(const std::string& key) {
    const std::optional<Reached> start = member({pickle_.root(), "", ""}, key);
    if (!start) refuse_key(key);
    if (is_state_dict(start->place)) return weights_of(*start);
    const std::vector<Reached> candidates = candidates_from(*start);
    if (candidates.size() == 1 && key.empty() && has_all_tensors(candidates[0]))
      return weights_of(candidates[0]);
    refuse_start(*start, key, candidates);
  }

 private:
  const std::vector<bool>& holds_tensor() {
    if (holds_tensor_.empty()) holds_tensor_ = pickle_.reaching({Kind::tensor, Kind::other_tensor});
    return holds_tensor_;
  }
  static bool is_tensor(const PickleValue& value) {
    return value.kind == Kind::tensor || value.kind == Kind::other_tensor;
  }

  // True for a module, and for a dict with tensors that has no other tensors in its entries.
  bool is_state_dict(Place place) {
    const PickleValue& value = pickle_[place];
    if (modules_.is_module(place)) return true;
    if (value.kind != Kind::dict) return false;
    bool has_tensor = false, has_others = false;
    for (std::size_t i = 0; i + 1 < value.items.size(); i += 2) {
      const bool is_named = pickle_[value.items[i]].kind == Kind::text;
      const PickleValue& entry = pickle_[value.items[i + 1]];
      has_tensor = has_tensor || (is_named && is_tensor(entry));
      has_others = has_others || !is_named || !is_tensor(entry);
    }
    return has_tensor && (!has_others || nested_tensor_in(value) == nullptr);
  }
  // False for single numbers only, such as the best losses in the states of callbacks.
  bool has_arrays(const PickleValue& dict) const {
    for (std::size_t i = 1; i < dict.items.size(); i += 2) {
      const PickleValue& entry = pickle_[dict.items[i]];
      if (entry.kind == Kind::other_tensor) return true;
      if (entry.kind == Kind::tensor && !pickle_[entry.items[1]].items.empty()) return true;
    }
    return false;
  }
  // Returns the key of an entry that contains a tensor but is not one; nullptr: there is none.
  const PickleValue* nested_tensor_in(const PickleValue& dict) {
    for (std::size_t i = 0; i + 1 < dict.items.size(); i += 2) {
      const PickleValue &name = pickle_[dict.items[i]], &entry = pickle_[dict.items[i + 1]];
      if (holds_tensor()[dict.items[i + 1]] && (name.kind != Kind::text || !is_tensor(entry))) return &name;
    }
    return nullptr;
  }

  // The entry of a path such as "model.state_dict", whose parts may contain dots.
  std::optional<Reached> member(const Reached& from, std::string_view key) const {
    if (key.empty()) return from;
    for (std::size_t size = key.size(); size != key.npos && size > 0; size = key.rfind('.', size - 1)) {
      std::optional<Reached> next = entry(from, key.substr(0, size));
      if (next && size < key.size()) next = member(*next, key.substr(size + 1));
      if (next) return next;
    }
    return std::nullopt;
  }
  std::optional<Reached> entry(const Reached& from, std::string_view name) const {
    const PickleValue& value = pickle_[from.place];
    std::optional<Reached> found;  // the last one counts, as in Python
    for_each_member(pickle_, value, [&](std::string_view known, Place place, bool is_attribute) {
      if (known == name)
        found = Reached{place, from.path + (from.path.empty() ? "" : ".") + std::string(name),
                        from.in_python + python_member(value, name, is_attribute)};
    });
    return found;
  }

  // The state dicts below a value, nearest first.
  std::vector<Reached> candidates_from(const Reached& start) {
    std::vector<Reached> open = {start}, found;
    std::unordered_set<Place> seen = {start.place};
    for (std::size_t i = 0; i < open.size() && found.size() < kMostCandidates; ++i) {
      const Reached from = std::move(open[i]);
      const PickleValue& value = pickle_[from.place];
      if (i > 0 && is_state_dict(from.place)) {
        if (modules_.is_module(from.place) || has_arrays(value)) found.push_back(from);
        continue;
      }
      if (is_optimizer_state(pickle_, value) || from.path.size() > kLongestPath) continue;
      for_each_member(pickle_, value, [&](std::string_view name, Place place, bool is_attribute) {
        if (!holds_tensor()[place] || is_tensor(pickle_[place]) || name.size() > kLongestPath) return;
        if (open.size() < kMostOpen && seen.insert(place).second)
          open.push_back({place, from.path + (from.path.empty() ? "" : ".") + std::string(name),
                          from.in_python + python_member(value, name, is_attribute)});
      });
    }
    return found;
  }

  // True if no tensor of the file is outside.
  bool has_all_tensors(const Reached& candidate) {
    std::unordered_set<Place> inside;
    for (const NamedTensor& tensor : named_tensors(candidate.place)) inside.insert(tensor.tensor);
    for (Place place = 0; place < pickle_.size(); ++place)
      if (is_tensor(pickle_[place]) && !inside.contains(place)) return false;
    return true;
  }

  std::vector<NamedTensor> named_tensors(Place place) {
    if (modules_.is_module(place)) return modules_.of(place);
    std::vector<NamedTensor> tensors;
    const PickleValue& dict = pickle_[place];
    for (std::size_t i = 0; i + 1 < dict.items.size(); i += 2)
      if (is_tensor(pickle_[dict.items[i + 1]]))
        tensors.push_back({std::string(pickle_[dict.items[i]].text), dict.items[i + 1]});
    return tensors;
  }

  TorchWeights weights_of(const Reached& start) {
    TorchWeights weights;
    const std::string suffix = start.in_python + (modules_.is_module(start.place) ? ".state_dict()" : "");
    TorchTensorList tensors(file_, {.suffix = suffix, .runs_code = pickle_.has_foreign_names()});
    for (const NamedTensor& tensor : named_tensors(start.place))
      tensors.add(tensor.name, pickle_[tensor.tensor]);
    weights.tensors = tensors.take();
    if (weights.tensors.empty()) refuse_empty(start);
    if (const PickleValue& dict = pickle_[start.place]; dict.kind == Kind::dict)
      for (std::size_t i = 0; i + 1 < dict.items.size() && weights.skipped.size() < kMostSkipped; i += 2)
        if (!is_tensor(pickle_[dict.items[i + 1]]))
          weights.skipped.push_back(key_text(pickle_[dict.items[i]]) + " (" +
                                    described(pickle_, pickle_[dict.items[i + 1]]) + ")");
    return weights;
  }

  std::string key_text(const PickleValue& key) const {
    if (key.kind == Kind::text) return quoted_key(key.text);
    return key.kind == Kind::integer ? std::to_string(key.integer) : described(pickle_, key);
  }

  // --- errors ---
  [[noreturn]] void refuse(const std::string& where, const std::string& found, const std::string& wanted,
                           const std::string& remedy) const {
    throw CheckpointError({.place = file_.place + where, .found = found, .wanted = wanted, .remedy = remedy});
  }
  [[noreturn]] void refuse_empty(const Reached& start) const {
    const std::string where = start.path.empty() ? "" : ", " + quoted_key(start.path);
    const std::string what = described(pickle_, pickle_[start.place]);
    if (file_.is_script)
      refuse(where, "it is a TorchScript program without parameters and buffers", "a program with weights",
             "torch.jit.freeze turns weights into constants: save the program before");
    refuse(where, "it contains no tensors, only " + what, "a state dict",
           "save the model's weights in Python: torch.save(model.state_dict(), path)");
  }
  [[noreturn]] void refuse_key(const std::string& key) {
    refuse_nested("there is no entry with the key " + quoted_key(key),
                  candidates_from({pickle_.root(), "", ""}));
  }
  [[noreturn]] void refuse_nested(const std::string& found, const std::vector<Reached>& candidates) const {
    std::vector<std::string> names;
    for (const Reached& candidate : candidates) names.push_back(quoted_key(candidate.path));
    const std::string wanted = names.empty()       ? "a state dict"
                               : names.size() == 1 ? "the key " + names[0] + ", which is a state dict"
                                                   : "one of the keys of state dicts: " + list_names(names);
    refuse("", found, wanted,
           names.empty() ? "save the model's weights in Python: torch.save(model.state_dict(), path)"
                         : "pass the key: --key of kindling import, or the key of load_state_file");
  }
  [[noreturn]] void refuse_start(const Reached& start, const std::string& key,
                                 const std::vector<Reached>& candidates) {
    const PickleValue& value = pickle_[start.place];
    if (!candidates.empty())
      refuse_nested(key.empty() ? "the file's object is not a state dict"
                                : "there is no state dict under the key " + quoted_key(key),
                    candidates);
    if (!key.empty()) {
      const std::vector<Reached> others = candidates_from({pickle_.root(), "", ""});
      if (!others.empty()) refuse_nested("there is no state dict under the key " + quoted_key(key), others);
    }
    if (!holds_tensor()[start.place]) refuse_empty(start);
    const std::string where = start.path.empty() ? "" : ", " + quoted_key(start.path);
    if (value.kind == Kind::dict)
      if (const PickleValue* name = nested_tensor_in(value))
        refuse(where,
               "its entry " + key_text(*name) +
                   " contains tensors and is not one, such as the packed "
                   "parameters of a quantized layer",
               "a dict of tensors", "save the weights as a dict of tensors in Python");
    refuse(where, "it is " + described(pickle_, value), "a state dict",
           "save the model's weights in Python: torch.save(model.state_dict(), path)");
  }

  static constexpr std::size_t kMostOpen = 10'000, kLongestPath = 300;

  const TorchContainer& file_;
  const Pickle& pickle_;
  ModuleTensors modules_;
  std::vector<bool> holds_tensor_;
};

}  // namespace

const PickleValue* entry_of(const Pickle& pickle, const PickleValue& dict, std::string_view key) {
  if (dict.kind != Kind::dict) return nullptr;
  for (std::size_t i = dict.items.size() / 2 * 2; i > 0; i -= 2)
    if (const PickleValue& name = pickle[dict.items[i - 2]]; name.kind == Kind::text && name.text == key)
      return &pickle[dict.items[i - 1]];
  return nullptr;
}

bool is_optimizer_state(const Pickle& pickle, const PickleValue& value) {
  const PickleValue *state = entry_of(pickle, value, "state"),
                    *groups = entry_of(pickle, value, "param_groups");
  return state != nullptr && groups != nullptr && state->kind == Kind::dict && groups->kind == Kind::list;
}

TorchWeights torch_weights_in(const TorchContainer& file, const std::string& key) {
  return WeightsSearch(file).find(key);
}

}  // namespace kindling
