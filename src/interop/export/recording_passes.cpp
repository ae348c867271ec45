#include "programs/merged_recordings.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <map>
#include <optional>
#include <type_traits>
#include <utility>

#include "kindling/base/error.h"
#include "kindling/base/number_text.h"

namespace kindling {
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
    place_ = "an input of the forward";
    for (const std::string& input : merged_.inputs) merge_tensor(input);
    for (std::size_t i = 0; i < merged_.calls.size(); ++i) merge_call(i);
    place_ = "the outputs of the forward";
    for (const ForwardRecording& other : recordings_)
      if (other.outputs != merged_.outputs) refuse("which values they are depends on " + by_what());
    return std::move(merged_);
  }

 private:
  using Arguments = std::vector<const ProgramArgument*>;  // one of each recording

  [[noreturn]] void refuse(const std::string& found, const std::string& remedy = "") const {
    throw Error({.place = place_,
                 .found = found,
                 .wanted = std::string("a forward that calls the same operators for every batch") +
                           (!is_dynamic()     ? ""
                            : is_batch_only() ? " size"
                                              : " and all its dynamic sizes"),
                 .remedy = remedy});
  }
  bool is_dynamic() const { return sizes_.count() > 0; }
  bool is_batch_only() const { return sizes_.count() == 1 && sizes_.has_batch(); }
  // Of what differs: the batches that were recorded differ in their values, too.
  std::string by_what() const {
    return !is_dynamic()     ? "the batch's values"
           : is_batch_only() ? "the batch (its size or its values)"
                             : "the batch (its sizes or its values)";
  }

  void be_at(const RecordedCall& call) {
    const auto& [name, overload] = call.op.operator_name();
    place_ = "operator " + name + (overload.empty() ? "" : "." + overload) +
             (call.behind.empty() ? "" : " in or behind the layer " + call.behind);
  }

  void require_same_calls() {
    for (const ForwardRecording& other : recordings_) {
      const std::size_t both = std::min(other.calls.size(), merged_.calls.size());
      for (std::size_t i = 0; i < both; ++i)
        if (other.calls[i].op.operator_name() != merged_.calls[i].op.operator_name()) {
          be_at(merged_.calls[i]);
          refuse("whether it is called depends on " + by_what() + ": with another one it is " +
                 other.calls[i].op.operator_name().name);
        }
      place_ = "export of a model";
      if (other.calls.size() != merged_.calls.size())
        refuse("how many operators the forward calls depends on " + by_what());
    }
  }

  void merge_constants() {
    for (const ForwardRecording& other : recordings_)
      for (std::size_t i = 0; i < merged_.constants.size(); ++i) {
        const auto& [name, value] = merged_.constants[i];
        be_at_user_of(name);
        if (other.constants.size() != merged_.constants.size() || other.constants[i].first != name ||
            !has_same_bytes(other.constants[i].second, value))
          refuse("it takes a tensor that the host has filled and that depends on " + by_what(),
                 "compute it with operators");
      }
  }

  void be_at_user_of(const std::string& constant) {
    for (const RecordedCall& call : merged_.calls)
      for (const ProgramNode::Input& input : call.node.inputs)
        for_each_value(input.argument, [&](const std::string& value) {
          if (value == constant) be_at(call);
        });
  }

  // NaN is itself here.
  static bool has_same_bytes(const at::Tensor& one, const at::Tensor& other) {
    return one.sizes() == other.sizes() && one.scalar_type() == other.scalar_type() &&
           std::equal(static_cast<const char*>(one.const_data_ptr()),
                      static_cast<const char*>(one.const_data_ptr()) + one.nbytes(),
                      static_cast<const char*>(other.const_data_ptr()));
  }

  void merge_call(std::size_t number) {
    RecordedCall& call = merged_.calls[number];
    be_at(call);
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
          refuse("how many tensors it gives depends on " + by_what());
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
        refuse(name + " is of another kind, depending on " + by_what());
    if (const auto* list = std::get_if<ProgramList>(&arguments[0]->value))
      return merged_list(arguments, *list, schema);
    if (std::holds_alternative<std::int64_t>(arguments[0]->value)) return merged_integer(arguments, schema);
    for (const ProgramArgument* other : arguments)
      if (!std::visit(Same{other->value}, arguments[0]->value))
        refuse(name + " depends on " + by_what() + values_text(arguments),
               "compute it with operators, or give it as a whole number of a size");
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
    ProgramList list{.of = first.of, .items = {}};
    for (std::size_t i = 0; i < first.items.size(); ++i) {
      Arguments items;
      for (const ProgramArgument* one : arguments) {
        const auto& other = std::get<ProgramList>(one->value);
        if (other.of != first.of || other.items.size() != first.items.size())
          refuse("how long its argument " + schema.name() + " is depends on " + by_what());
        items.push_back(&other.items[i]);
      }
      list.items.push_back(merged_argument(items, schema));
      if (std::holds_alternative<NumberName>(list.items.back().value))
        list.of = ProgramList::Of::symbolic_integers;
    }
    for (const ProgramArgument* one : arguments)
      if (list_size(*one) != first.items.size())
        refuse("how long its argument " + schema.name() + " is depends on " + by_what());
    return {std::move(list)};
  }

  ProgramArgument merged_integer(const Arguments& arguments, const c10::Argument& schema) {
    Numbers numbers;
    for (const ProgramArgument* one : arguments) numbers.push_back(std::get<std::int64_t>(one->value));
    const SizePolynomial polynomial = require_polynomial(numbers, "its argument " + schema.name());
    if (const auto constant = polynomial.constant()) return {*constant};
    if (!may_be_computed(*schema.real_type()))
      refuse("its argument " + schema.name() + " depends on " + by_what() + " (" + text_of(numbers) +
                 ") and has to be a constant",
             "take another operator");
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
           "only sums of products of the dynamic sizes can be exported, such as 2 * batch + 1, and neither "
           "quotients nor powers above 3; for one size, any number can" +
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
        refuse("the rank or the type of its result depends on " + by_what());
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
