#include "formats/torch_tensors.h"

#include "kindling/base/error.h"
#include "kindling/base/suggest.h"

namespace kindling {
namespace {

using Kind = PickleValue::Kind;

bool is_state_dict(const Pickle& pickle, const PickleValue& value) {
  if (value.kind != Kind::dict) return false;
  for (std::size_t i = 0; i < value.items.size(); i += 2)
    if (pickle[value.items[i]].kind != Kind::text || pickle[value.items[i + 1]].kind != Kind::tensor)
      return false;
  return true;
}

std::vector<std::string> names_of_state_dicts(const Pickle& pickle, const PickleValue& dict) {
  std::vector<std::string> names;
  for_each_named(pickle, dict, [&](std::string_view name, const PickleValue& value) {
    if (!value.items.empty() && is_state_dict(pickle, value)) names.push_back(quoted_key(name));
  });
  return names;
}

[[noreturn]] void refuse_nested(const std::vector<std::string>& names, const std::string& place,
                                const std::string& found) {
  throw CheckpointError({.place = place,
                         .found = found,
                         .wanted = names.size() == 1 ? "the key " + names[0] + ", under which there is one"
                                                     : "one of the keys of state dicts: " + list_names(names),
                         .remedy = "name it: --key of kindling import, or the key of load_state_file"});
}

// Says what keeps a value from being a state dict.
[[noreturn]] void refuse_value(const Pickle& pickle, const PickleValue& value, const std::string& place) {
  if (value.kind != Kind::dict) refuse_torch(place, "", "it holds " + described(value), "a state dict");
  for (std::size_t i = 0; i < value.items.size(); i += 2) {
    const PickleValue &name = pickle[value.items[i]], &entry = pickle[value.items[i + 1]];
    if (name.kind != Kind::text)
      refuse_torch(place, "", "a key is " + described(name), "the name of a tensor");
    if (entry.kind != Kind::tensor)
      refuse_torch(place, ", entry " + quoted_key(name.text), "it is " + described(entry), "a tensor");
  }
  refuse_torch(place, "", "it holds no state dict");
}

const PickleValue& state_dict_in(const Pickle& pickle, const std::string& key, const std::string& place) {
  const PickleValue& all = pickle.result();
  const std::vector<std::string> names =
      all.kind == Kind::dict ? names_of_state_dicts(pickle, all) : std::vector<std::string>{};
  const PickleValue* value = key.empty() ? &all : nullptr;
  if (!key.empty() && all.kind == Kind::dict)
    for_each_named(pickle, all, [&](std::string_view name, const PickleValue& one) {
      if (name == key) value = &one;  // the last one counts, as in Python
    });
  if (value != nullptr && is_state_dict(pickle, *value)) return *value;
  if (!names.empty())
    refuse_nested(names, place,
                  key.empty() ? "it is no state dict by itself"
                              : "there is no state dict under the key " + quoted_key(key));
  if (value == nullptr) refuse_torch(place, "", "there is no entry with the key " + quoted_key(key));
  refuse_value(pickle, *value, place);
}

}  // namespace

std::vector<TorchTensor> state_dict_tensors(const Pickle& pickle, const std::string& key,
                                            const TorchStorages& storages, const std::string& place) {
  TorchTensorList tensors(pickle, storages, place);
  for_each_named(pickle, state_dict_in(pickle, key, place),
                 [&](std::string_view name, const PickleValue& value) { tensors.add(name, value); });
  return tensors.take();
}

}  // namespace kindling
