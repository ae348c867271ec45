#include "programs/recording_passes.h"

#include <algorithm>
#include <map>
#include <set>

namespace kindling {
namespace {

bool calls(const RecordedCall& call, const char* name, const char* overload = "") {
  return call.op.schema().name() == name && call.op.schema().overload_name() == overload;
}

const std::string* value_in(const RecordedCall& call, std::size_t input) {
  const auto* tensor = std::get_if<TensorName>(&call.node.inputs[input].argument.value);
  return tensor == nullptr ? nullptr : &tensor->name;
}

const std::string& value_of(const RecordedCall& call) {
  return std::get<TensorName>(call.node.outputs[0].value).name;
}

bool is_one(const RecordedCall& call, std::size_t input) {
  const auto& value = call.node.inputs[input].argument.value;
  const auto* integer = std::get_if<std::int64_t>(&value);
  const auto* real = std::get_if<double>(&value);
  return (integer != nullptr && *integer == 1) || (real != nullptr && *real == 1);
}

class LinearLayers {
 public:
  explicit LinearLayers(ForwardRecording& recording) : recording_(recording) {}

  void give_back() {
    std::vector<RecordedCall> former = std::move(recording_.calls);
    recording_.calls.clear();
    for (std::size_t i = 0; i < former.size(); ++i) {
      RecordedCall& call = former[i];
      if (calls(call, "aten::t") && value_in(call, 0) != nullptr)
        transposed_[value_of(call)] = *value_in(call, 0);
      if (const std::string* weight = weight_of_addmm(call)) {
        call = linear(call, call.node.inputs[1], *weight, call.node.inputs[0]);
      } else if (const std::string* matrix = weight_of_matmul(call)) {
        const bool has_bias = i + 1 < former.size() && adds_bias(former[i + 1], call, *matrix);
        call = has_bias ? linear(former[i + 1], call.node.inputs[0], *matrix, former[i + 1].node.inputs[1])
                        : linear(call, call.node.inputs[0], *matrix, {});
        i += has_bias;
      }
      recording_.calls.push_back(std::move(call));
    }
  }

 private:
  std::size_t rank(const std::string& value) const { return recording_.tensors.at(value).sizes.size(); }

  // What has been transposed; nullptr: nothing.
  const std::string* transposed(const RecordedCall& call, std::size_t input) const {
    const std::string* value = value_in(call, input);
    const auto found = value == nullptr ? transposed_.end() : transposed_.find(*value);
    return found == transposed_.end() || rank(found->second) != 2 ? nullptr : &found->second;
  }

  const std::string* weight_of_addmm(const RecordedCall& call) const {
    if (!calls(call, "aten::addmm") || value_in(call, 0) == nullptr || rank(*value_in(call, 0)) != 1)
      return nullptr;
    return is_one(call, 3) && is_one(call, 4) ? transposed(call, 2) : nullptr;
  }

  const std::string* weight_of_matmul(const RecordedCall& call) const {
    return calls(call, "aten::matmul") && value_in(call, 0) != nullptr ? transposed(call, 1) : nullptr;
  }

  // One number that is added to all outputs is no bias of a linear layer.
  bool adds_bias(const RecordedCall& add, const RecordedCall& product, const std::string& weight) const {
    if (!calls(add, "aten::add_", "Tensor") || value_in(add, 0) == nullptr || value_in(add, 1) == nullptr)
      return false;
    const std::vector<ProgramSize>& sizes = recording_.tensors.at(*value_in(add, 1)).sizes;
    return *value_in(add, 0) == value_of(product) && is_one(add, 2) && sizes.size() == 1 &&
           sizes[0].number == recording_.tensors.at(weight).sizes[0].number;
  }

  // In the place of `last`, of which it has the result.
  static RecordedCall linear(const RecordedCall& last, const ProgramNode::Input& input,
                             const std::string& weight, const ProgramNode::Input& bias) {
    static const c10::OperatorHandle op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::linear", "");
    return {op,
            {.target = "",
             .inputs = {{.name = "input", .argument = input.argument},
                        {.name = "weight", .argument = {TensorName{weight}}},
                        {.name = "bias", .argument = bias.argument}},
             .outputs = last.node.outputs,
             .layer = last.node.layer},
            {},
            last.behind};
  }

  ForwardRecording& recording_;
  std::map<std::string, std::string> transposed_;
};

// Walks backwards and knows what is needed from here on.
class Need {
 public:
  explicit Need(const ForwardRecording& recording) : recording_(recording) {
    for (const std::string& output : recording.outputs) add(output);
    for (const std::string& weight : recording.weights) storages_.insert(recording.storages.at(weight));
  }

  void add(const std::string& value) {
    values_.insert(value);
    storages_.insert(recording_.storages.at(value));
  }
  bool has(const std::string& value) const { return values_.contains(value); }

  bool has(const RecordedCall& call) const {
    bool is_needed =
        std::ranges::any_of(call.writes, [this](const void* storage) { return storages_.contains(storage); });
    for (const ProgramArgument& output : call.node.outputs)
      for_each_value(output, [&](const std::string& value) { is_needed = is_needed || has(value); });
    return is_needed;
  }

 private:
  const ForwardRecording& recording_;
  std::set<std::string> values_;
  std::set<const void*> storages_;
};

}  // namespace

void give_back_linear(ForwardRecording& recording) { LinearLayers(recording).give_back(); }

void remove_dead_calls(ForwardRecording& recording) {
  Need need(recording);
  std::vector<RecordedCall> living;
  for (std::size_t i = recording.calls.size(); i-- > 0;) {
    RecordedCall& call = recording.calls[i];
    if (!need.has(call)) continue;
    for (const ProgramNode::Input& input : call.node.inputs)
      for_each_value(input.argument, [&](const std::string& value) { need.add(value); });
    living.push_back(std::move(call));
  }
  std::ranges::reverse(living);
  recording.calls = std::move(living);
  for (const RecordedCall& call : recording.calls)  // results that nobody needs beside those that are needed
    for (const ProgramArgument& output : call.node.outputs)
      for_each_value(output, [&](const std::string& value) { need.add(value); });
  for (const auto* kept : {&recording.weights, &recording.inputs})
    for (const std::string& value : *kept) need.add(value);
  std::erase_if(recording.tensors, [&](const auto& tensor) { return !need.has(tensor.first); });
  std::erase_if(recording.constants, [&](const auto& constant) { return !need.has(constant.first); });
}

}  // namespace kindling
