#include <algorithm>

#include "formats/torch/pickle.h"
#include "kindling/base/json.h"

namespace kindling {

std::string name_text(const Pickle& pickle, const PickleValue& name) {
  std::string text(name.text.substr(0, 100));
  if (name.items.empty())
    std::ranges::replace(text, ' ', '.');
  else
    text.insert(0, std::string(pickle[name.items[0]].text.substr(0, 100)) + ".");
  return text;
}

std::string described(const Pickle& pickle, const PickleValue& value) {
  using Kind = PickleValue::Kind;
  if (value.kind == Kind::object) {
    const PickleValue& callee = pickle[value.items[0]];
    return callee.kind == Kind::name ? "an object of " + json_string(name_text(pickle, callee)) : "an object";
  }
  if (value.kind == Kind::other_tensor)
    return "a tensor made by " + json_string(value.text.substr(value.text.rfind(' ') + 1).substr(0, 100));
  constexpr const char* kNames[] = {"None",
                                    "a boolean",
                                    "a number",
                                    "a number",
                                    "a string",
                                    "bytes",
                                    "a number of more than 64 bits",
                                    "a list",
                                    "a tuple",
                                    "a set",
                                    "a dict",
                                    "a Python name",
                                    "a storage",
                                    "a tensor"};
  return kNames[static_cast<std::size_t>(value.kind)];
}

std::vector<bool> Pickle::reaching(std::initializer_list<Kind> kinds) const {
  std::vector<std::uint32_t> begin(values_.size() + 2, 0);  // of each value's users
  for (const PickleValue& value : values_)
    for (const Place item : value.items) ++begin[item + 2];
  for (std::size_t i = 2; i < begin.size(); ++i) begin[i] += begin[i - 1];
  std::vector<Place> users(begin.back());
  for (Place place = 0; place < values_.size(); ++place)
    for (const Place item : values_[place].items) users[begin[item + 1]++] = place;
  std::vector<bool> reaches(values_.size());
  std::vector<Place> open;
  const auto reach = [&](Place place) {
    if (!reaches[place]) open.push_back(place);
    reaches[place] = true;
  };
  for (Place place = 0; place < values_.size(); ++place)
    if (std::ranges::find(kinds, values_[place].kind) != kinds.end()) reach(place);
  while (!open.empty()) {
    const Place place = open.back();
    open.pop_back();
    for (std::uint32_t i = begin[place]; i < begin[place + 1]; ++i) reach(users[i]);
  }
  return reaches;
}

}  // namespace kindling
