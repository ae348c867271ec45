#include "formats/torch/torch_optimizer_reader.h"

#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>
#include <unordered_set>
#include <utility>

#include "formats/torch/torch_tensor_list.h"
#include "formats/torch/torch_weights.h"
#include "kindling/base/error.h"
#include "kindling/base/suggest.h"

namespace kindling {
namespace {

constexpr std::string_view kStateKey = "state", kGroupsKey = "param_groups", kParametersKey = "params",
                           kNamesKey = "param_names";
// LBFGS's memory of a step's computation, which the next one writes before it reads.
constexpr std::string_view kScratchState = "al";

bool is_number(const PickleValue& value) {
  return value.kind == PickleValue::Kind::integer || value.kind == PickleValue::Kind::real;
}
double number_of(const PickleValue& value) {
  return value.kind == PickleValue::Kind::real ? value.real : static_cast<double>(value.integer);
}

// The shortest decimal number that rounds to the value: what a user has written.
double as_written(float value) {
  if (!std::isfinite(value)) return value;
  char text[32];
  const auto [end, error] = std::to_chars(text, text + sizeof text, value);
  double number = value;
  std::from_chars(text, end, number);
  return number;
}

class OptimizerReader {
 public:
  using Kind = PickleValue::Kind;

  explicit OptimizerReader(const TorchContainer& file)
      : file_(file), pickle_(*file.pickle), place_(file.place), tensors_(file) {}

  OptimizerInPickle read(const std::string& key) {
    const PickleValue& dict = optimizer_at(key);
    for (const PickleValue::Place group : entry_of(pickle_, dict, kGroupsKey)->items)
      read_group(pickle_[group]);
    const PickleValue& state = *entry_of(pickle_, dict, kStateKey);
    for (std::size_t i = 0; i < state.items.size(); i += 2)
      read_state(pickle_[state.items[i]], pickle_[state.items[i + 1]]);
    found_.tensors = tensors_.take();
    return std::move(found_);
  }

 private:
  [[noreturn]] void refuse(const std::string& where, const std::string& found, const std::string& wanted = "",
                           const std::string& remedy = kOptimizerRemedy) const {
    throw CheckpointError({.place = place_ + where, .found = found, .wanted = wanted, .remedy = remedy});
  }

  const PickleValue& optimizer_at(const std::string& key) const {
    const PickleValue& all = pickle_.result();
    const PickleValue* const value = key.empty() ? &all : entry_of(pickle_, all, key);
    if (value != nullptr && is_optimizer_state(pickle_, *value)) return *value;
    std::vector<std::string> names;
    if (all.kind == Kind::dict)
      for_each_named(pickle_, all, [&](std::string_view name, const PickleValue& one) {
        if (is_optimizer_state(pickle_, one)) names.push_back(quoted_key(name));
      });
    const std::string found = key.empty()
                                  ? "the file's object is not an optimizer's state dict"
                                  : "there is no optimizer's state dict under the key " + quoted_key(key);
    if (names.empty()) refuse("", found, "a dict of \"state\" and \"param_groups\"");
    refuse("", found, "one of the keys of optimizers: " + list_names(names), "pass the key");
  }

  void read_group(const PickleValue& group) {
    const std::string where = ", group " + std::to_string(found_.groups.size());
    const PickleValue* const parameters = entry_of(pickle_, group, kParametersKey);
    if (parameters == nullptr || parameters->kind != Kind::list) refuse(where, "it has no list \"params\"");
    TorchOptimizerGroup& read = found_.groups.emplace_back();
    for (const PickleValue::Place place : parameters->items) {
      const PickleValue& number = pickle_[place];
      if (number.kind != Kind::integer || !parameters_.insert(number.integer).second)
        refuse(where, "\"params\" are not distinct numbers");
      read.parameters.push_back(number.integer);
    }
    for_each_named(pickle_, group, [&](std::string_view name, const PickleValue& value) {
      if (name == kNamesKey)
        take_names(read, value, where);
      else if (name != kParametersKey)
        take_option(read.options, std::string(name), value);
    });
  }

  void take_names(TorchOptimizerGroup& group, const PickleValue& value, const std::string& where) const {
    group.names.clear();
    for (const PickleValue::Place place : value.items)
      if (pickle_[place].kind == Kind::text) group.names.emplace_back(pickle_[place].text);
    if (value.kind == Kind::none) return;
    if (value.kind != Kind::list || group.names.size() != value.items.size() ||
        group.names.size() != group.parameters.size())
      refuse(where, "\"param_names\" is not a list of a text for each of \"params\"");
  }

  // Returns the value of a tensor of one number; nothing for another one, which is not an option.
  std::optional<double> number_in(const std::string& option, const PickleValue& value) const {
    TorchTensorList one(file_);
    one.add("of the option " + option, value);
    const TorchTensor tensor = one.take()[0];
    const std::size_t size = tensor.size_bytes();
    std::array<char, 8> bytes{};
    const auto as = [&]<class Number>(Number number) {
      std::memcpy(&number, bytes.data(), sizeof number);
      return number;
    };
    if (size != size_of(tensor.type) || size > bytes.size()) return std::nullopt;
    file_.storages->read(tensor.storage, tensor.offset * size, bytes.data(), size);
    if (tensor.type == TensorType::float64) return as(double{});
    if (tensor.type == TensorType::float32) return as_written(as(float{}));
    if (tensor.type == TensorType::bfloat16)
      return as_written(std::bit_cast<float>(std::uint32_t{as(std::uint16_t{})} << 16));
    if (tensor.type == TensorType::int64) return static_cast<double>(as(std::int64_t{}));
    return std::nullopt;
  }

  void take_option(TorchOptions& options, const std::string& name, const PickleValue& value) const {
    options.erase(name);  // the last one counts, as in Python
    if (value.kind == Kind::boolean)
      options[name] = value.integer != 0;
    else if (value.kind == Kind::integer)
      options[name] = value.integer;
    else if (value.kind == Kind::real)
      options[name] = value.real;
    else if (value.kind == Kind::text)
      options[name] = std::string(value.text);
    else if (value.kind == Kind::tuple || value.kind == Kind::list)
      take_numbers(options, name, value);
    else if (value.kind == Kind::tensor)
      if (const auto number = number_in(name, value)) options[name] = *number;
  }

  void take_numbers(TorchOptions& options, const std::string& name, const PickleValue& values) const {
    std::vector<double> numbers;
    for (const PickleValue::Place place : values.items) {
      const PickleValue& value = pickle_[place];
      std::optional<double> number;
      if (value.kind == Kind::tensor)
        number = number_in(name, value);
      else if (is_number(value))
        number = number_of(value);
      if (!number) return;
      numbers.push_back(*number);
    }
    options[name] = std::move(numbers);
  }

  void read_state(const PickleValue& parameter, const PickleValue& values) {
    if (parameter.kind != Kind::integer || !parameters_.contains(parameter.integer))
      refuse(", \"state\"", "it has a key that is not a parameter's number");
    const std::string number = std::to_string(parameter.integer), where = ", parameter " + number;
    if (values.kind != Kind::dict) refuse(where, "its state is " + described(pickle_, values), "a dict");
    if (!with_state_.insert(parameter.integer).second) refuse(where, "its state appears twice");
    for_each_named(pickle_, values, [&](std::string_view name, const PickleValue& value) {
      TorchOptimizerEntry entry{.parameter = parameter.integer, .name = std::string(name)};
      if (value.kind == Kind::none) return;  // PyTorch before 2.0 stores None before the first momentum
      if (name == kScratchState && value.kind == Kind::list) return;
      entry.tensor = tensors_.size();
      if (value.kind == Kind::list) {
        entry.list_size = value.items.size();
        for (std::size_t i = 0; i < value.items.size(); ++i)
          tensors_.add(number + "." + entry.name + "." + std::to_string(i), pickle_[value.items[i]]);
      } else if (value.kind == Kind::tensor) {
        tensors_.add(number + "." + entry.name, value);
      } else if (is_number(value)) {
        entry.number = number_of(value);
      } else {
        refuse(where, "its state " + quoted_key(name) + " is " + described(pickle_, value),
               "a tensor, a number or a list of tensors");
      }
      found_.state.push_back(std::move(entry));
    });
  }

  const TorchContainer& file_;
  const Pickle& pickle_;
  const std::string& place_;
  TorchTensorList tensors_;
  OptimizerInPickle found_;
  std::unordered_set<std::int64_t> parameters_, with_state_;  // their numbers
};

}  // namespace

OptimizerInPickle optimizer_in(const TorchContainer& file, const std::string& key) {
  return OptimizerReader(file).read(key);
}

}  // namespace kindling
