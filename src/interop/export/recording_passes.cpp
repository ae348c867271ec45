#include "interop/export/recording_passes.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <type_traits>
#include <utility>

#include "kindling/base/error.h"
#include "kindling/base/number_text.h"

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

  void restore() {
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

  // Returns the value whose transpose is this input; nullptr if there is none.
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

  // A single number added to all outputs is not the bias of a linear layer.
  bool adds_bias(const RecordedCall& add, const RecordedCall& product, const std::string& weight) const {
    if (!calls(add, "aten::add_", "Tensor") || value_in(add, 0) == nullptr || value_in(add, 1) == nullptr)
      return false;
    const std::vector<ProgramSize>& sizes = recording_.tensors.at(*value_in(add, 1)).sizes;
    return *value_in(add, 0) == value_of(product) && is_one(add, 2) && sizes.size() == 1 &&
           sizes[0].number == recording_.tensors.at(weight).sizes[0].number;
  }

  // Replaces `last` and takes over its result.
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
            last.last_layer};
  }

  ForwardRecording& recording_;
  std::map<std::string, std::string> transposed_;
};

// True for a call that makes the program refuse other inputs, and returns nothing.
bool is_assertion(const RecordedCall& call) {
  return call.op.schema().name() == "aten::_assert_tensor_metadata";
}

// Walks backwards and tracks which values later calls need.
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
    if (is_assertion(call)) return true;
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

void restore_linear(ForwardRecording& recording) { LinearLayers(recording).restore(); }

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
  for (const RecordedCall& call : recording.calls)  // unused results of calls that are needed
    for (const ProgramArgument& output : call.node.outputs)
      for_each_value(output, [&](const std::string& value) { need.add(value); });
  for (const auto* kept : {&recording.weights, &recording.inputs})
    for (const std::string& value : *kept) need.add(value);
  std::erase_if(recording.tensors, [&](const auto& tensor) { return !need.has(tensor.first); });
  std::erase_if(recording.constants, [&](const auto& constant) { return !need.has(constant.first); });
}

namespace {

// One of each recording.
using Numbers = std::vector<std::int64_t>;

constexpr std::size_t kMostNamed = 5;  // in a message

std::string text_of(const Numbers& numbers) {
  std::string text;
  for (std::size_t i = 0; i < std::min(numbers.size(), kMostNamed); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(numbers[i]);
  return text;
}

class RecordingMerger {
 public:
  RecordingMerger(const std::vector<ForwardRecording>& recordings, const DynamicSizes& sizes)
      : recordings_(recordings), sizes_(sizes), merged_(recordings.front()) {}

  ForwardRecording merge() {
    require_same_calls();
    merge_constants();
    place_ = "an input of the forward pass";
    for (const std::string& input : merged_.inputs) merge_tensor(input);
    for (std::size_t i = 0; i < merged_.calls.size(); ++i) merge_call(i);
    place_ = "the outputs of the forward pass";
    for (const ForwardRecording& other : recordings_)
      if (other.outputs != merged_.outputs)
        refuse("which values are returned depends on " + dependency_text());
    return std::move(merged_);
  }

 private:
  using Arguments = std::vector<const ProgramArgument*>;  // one of each recording

  [[noreturn]] void refuse(const std::string& found, const std::string& remedy = "") const {
    throw Error({.place = place_,
                 .found = found,
                 .wanted = std::string("a forward pass that calls the same operators for every batch") +
                           (!is_dynamic()     ? ""
                            : is_batch_only() ? " size"
                                              : " and for all dynamic sizes"),
                 .remedy = remedy});
  }
  bool is_dynamic() const { return sizes_.count() > 0; }
  bool is_batch_only() const { return sizes_.count() == 1 && sizes_.has_batch(); }
  // Names the cause of a difference: the recorded batches also differ in their values.
  std::string dependency_text() const {
    return !is_dynamic()     ? "the values of the batch"
           : is_batch_only() ? "the batch (its size or its values)"
                             : "the batch (its sizes or its values)";
  }

  void locate_at(const RecordedCall& call) {
    const auto& [name, overload] = call.op.operator_name();
    place_ = "operator " + name + (overload.empty() ? "" : "." + overload) +
             (call.last_layer.empty() ? "" : " in or after layer " + call.last_layer);
  }

  void require_same_calls() {
    for (const ForwardRecording& other : recordings_) {
      const std::size_t both = std::min(other.calls.size(), merged_.calls.size());
      for (std::size_t i = 0; i < both; ++i)
        if (other.calls[i].op.operator_name() != merged_.calls[i].op.operator_name()) {
          locate_at(merged_.calls[i]);
          refuse("whether it is called depends on " + dependency_text() + ": another batch calls " +
                 other.calls[i].op.operator_name().name);
        }
      place_ = "export of a model";
      if (other.calls.size() != merged_.calls.size())
        refuse("the number of operators that the forward pass calls depends on " + dependency_text());
    }
  }

  void merge_constants() {
    for (const ForwardRecording& other : recordings_)
      for (std::size_t i = 0; i < merged_.constants.size(); ++i) {
        const auto& [name, value] = merged_.constants[i];
        locate_at_user_of(name);
        if (other.constants.size() != merged_.constants.size() || other.constants[i].first != name ||
            !has_same_bytes(other.constants[i].second, value))
          refuse("it takes a tensor that the host has filled and that depends on " + dependency_text(),
                 "compute the tensor with operators");
      }
  }

  void locate_at_user_of(const std::string& constant) {
    for (const RecordedCall& call : merged_.calls)
      for (const ProgramNode::Input& input : call.node.inputs)
        for_each_value(input.argument, [&](const std::string& value) {
          if (value == constant) locate_at(call);
        });
  }

  // Compares bytes, so that NaN equals itself.
  static bool has_same_bytes(const at::Tensor& one, const at::Tensor& other) {
    return one.sizes() == other.sizes() && one.scalar_type() == other.scalar_type() &&
           std::equal(static_cast<const char*>(one.const_data_ptr()),
                      static_cast<const char*>(one.const_data_ptr()) + one.nbytes(),
                      static_cast<const char*>(other.const_data_ptr()));
  }

  void merge_call(std::size_t number) {
    RecordedCall& call = merged_.calls[number];
    locate_at(call);
    const auto& schema = call.op.schema().arguments();
    for (std::size_t i = 0; i < call.node.inputs.size(); ++i) {
      Arguments arguments;
      for (const ForwardRecording& one : recordings_)
        arguments.push_back(&one.calls[number].node.inputs[i].argument);
      call.node.inputs[i].argument = merged_argument(arguments, schema[i]);
    }
    for (std::size_t i = 0; i < call.node.outputs.size(); ++i) {
      for (const ForwardRecording& one : recordings_)
        if (list_size(one.calls[number].node.outputs[i]) != list_size(call.node.outputs[i]))
          refuse("the number of tensors that it returns depends on " + dependency_text());
      for_each_value(call.node.outputs[i], [this](const std::string& value) { merge_tensor(value); });
    }
  }

  static std::size_t list_size(const ProgramArgument& argument) {
    const auto* list = std::get_if<ProgramList>(&argument.value);
    return list == nullptr ? 0 : list->items.size();
  }

  ProgramArgument merged_argument(const Arguments& arguments, const c10::Argument& schema) {
    const std::string name = "its argument " + schema.name();
    for (const ProgramArgument* other : arguments)
      if (other->value.index() != arguments[0]->value.index())
        refuse(name + " has a type that depends on " + dependency_text());
    if (const auto* list = std::get_if<ProgramList>(&arguments[0]->value))
      return merged_list(arguments, *list, schema);
    if (std::holds_alternative<std::int64_t>(arguments[0]->value)) return merged_integer(arguments, schema);
    for (const ProgramArgument* other : arguments)
      if (!std::visit(Same{other->value}, arguments[0]->value))
        refuse(name + " depends on " + dependency_text() + values_text(arguments),
               "compute it with operators, or pass it as an integer computed from sizes");
    return *arguments[0];
  }

  static std::string values_text(const Arguments& arguments) {
    std::string text;
    for (std::size_t i = 0; i < std::min(arguments.size(), kMostNamed); ++i)
      if (const auto* real = std::get_if<double>(&arguments[i]->value))
        text += (text.empty() ? ": " : ", ") + number_text(*real);
    return text;
  }

  struct Same {
    const decltype(ProgramArgument::value)& other;
    bool operator()(const TensorName& value) const { return std::get<TensorName>(other).name == value.name; }
    bool operator()(const NumberName& value) const { return std::get<NumberName>(other).name == value.name; }
    bool operator()(double value) const {
      const double another = std::get<double>(other);
      return another == value || (another != another && value != value);
    }
    bool operator()(const ProgramDevice& value) const {
      const auto& device = std::get<ProgramDevice>(other);
      return device.type == value.type && device.index == value.index;
    }
    bool operator()(std::monostate) const { return true; }
    bool operator()(StridedLayout) const { return true; }
    bool operator()(const ProgramList&) const { return false; }
    bool operator()(const auto& value) const {
      return std::get<std::remove_cvref_t<decltype(value)>>(other) == value;
    }
  };

  ProgramArgument merged_list(const Arguments& arguments, const ProgramList& first,
                              const c10::Argument& schema) {
    ProgramList list{.element = first.element, .items = {}};
    for (std::size_t i = 0; i < first.items.size(); ++i) {
      Arguments items;
      for (const ProgramArgument* one : arguments) {
        const auto& other = std::get<ProgramList>(one->value);
        if (other.element != first.element || other.items.size() != first.items.size())
          refuse("the length of its argument " + schema.name() + " depends on " + dependency_text());
        items.push_back(&other.items[i]);
      }
      list.items.push_back(merged_argument(items, schema));
      if (std::holds_alternative<NumberName>(list.items.back().value))
        list.element = ProgramList::Element::symbolic_integers;
    }
    for (const ProgramArgument* one : arguments)
      if (list_size(*one) != first.items.size())
        refuse("the length of its argument " + schema.name() + " depends on " + dependency_text());
    return {std::move(list)};
  }

  ProgramArgument merged_integer(const Arguments& arguments, const c10::Argument& schema) {
    Numbers numbers;
    for (const ProgramArgument* one : arguments) numbers.push_back(std::get<std::int64_t>(one->value));
    const SizePolynomial polynomial = require_polynomial(numbers, "its argument " + schema.name());
    if (const auto constant = polynomial.constant()) return {*constant};
    if (!may_be_computed(*schema.real_type()))
      refuse("its argument " + schema.name() + " depends on " + dependency_text() + " (" + text_of(numbers) +
                 ") but must be constant",
             "use another operator");
    return {number_of(polynomial)};
  }

  static bool may_be_computed(const c10::Type& type) {
    if (const auto* optional = type.castRaw<c10::OptionalType>())
      return may_be_computed(*optional->getElementType());
    if (const auto* list = type.castRaw<c10::ListType>()) return may_be_computed(*list->getElementType());
    return type.kind() == c10::TypeKind::SymIntType || type.kind() == c10::TypeKind::NumberType ||
           type.kind() == c10::TypeKind::TensorType;
  }

  SizePolynomial require_polynomial(const Numbers& numbers, const std::string& what) const {
    const std::optional<SizePolynomial> polynomial = sizes_.recorded().polynomial_through(numbers);
    if (polynomial) return *polynomial;
    std::string seen;
    for (std::size_t i = 0; i < std::min(numbers.size(), kMostNamed); ++i)
      seen += (i == 0 ? "" : "; ") + std::to_string(numbers[i]) + " with " +
              sizes_.text(sizes_.recorded().all()[i]);
    if (!is_dynamic()) refuse(what + " is " + text_of(numbers));
    refuse(what + " is " + seen,
           "only polynomials in the dynamic sizes can be exported, such as 2 * batch + 1, without quotients "
           "or powers above 3; a fixed size allows any number" +
               std::string(sizes_.has_batch() ? " (dynamic_batch = false)" : ""));
  }

  NumberName number_of(const SizePolynomial& polynomial) {
    const auto [known, is_new] = names_.try_emplace(polynomial, "n" + std::to_string(names_.size()));
    if (is_new) merged_.numbers[known->second] = polynomial;
    return {.kind = NumberName::Kind::integer, .name = known->second};
  }

  void merge_tensor(const std::string& value) {
    ProgramTensor& tensor = merged_.tensors.at(value);
    std::vector<const ProgramTensor*> all;
    for (const ForwardRecording& one : recordings_) all.push_back(&one.tensors.at(value));
    for (const ProgramTensor* one : all)
      if (one->sizes.size() != tensor.sizes.size() || one->type != tensor.type)
        refuse("the rank or dtype of its result depends on " + dependency_text());
    const auto merge = [&](auto number_in) {
      Numbers numbers;
      for (const ProgramTensor* one : all) numbers.push_back(number_in(*one));
      const SizePolynomial polynomial = require_polynomial(numbers, "a size or a stride of its result");
      const auto constant = polynomial.constant();
      return constant ? ProgramSize{.number = *constant}
                      : ProgramSize{.number = numbers[0], .expression = expression_of(polynomial)};
    };
    for (std::size_t i = 0; i < tensor.sizes.size(); ++i) {
      tensor.sizes[i] = merge([i](const ProgramTensor& one) { return one.sizes[i].number; });
      tensor.strides[i] = merge([i](const ProgramTensor& one) { return one.strides[i].number; });
    }
    tensor.offset = merge([](const ProgramTensor& one) { return one.offset.number; });
  }

  const std::vector<ForwardRecording>& recordings_;
  const DynamicSizes& sizes_;
  ForwardRecording merged_;
  std::map<SizePolynomial, std::string> names_;
  std::string place_;
};

}  // namespace

ForwardRecording merged_recordings(const std::vector<ForwardRecording>& recordings,
                                   const DynamicSizes& sizes) {
  return RecordingMerger(recordings, sizes).merge();
}

}  // namespace kindling
