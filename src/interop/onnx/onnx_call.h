#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "formats/pt2/exported_program.h"
#include "interop/onnx/onnx_graph.h"
#include "interop/onnx/onnx_values.h"

namespace kindling {

// A call of an operator that is converted to ONNX nodes: its arguments by their names in the schema,
// including defaults, its results, and the most common nodes. Values of the graph are referred to by name; ""
// is none. Reading an argument as a wrong type throws CheckpointError with the location of the call.
class OnnxCall {
 public:
  // `schema`: nullptr for a function of numbers, whose arguments are "0", "1" and so on.
  OnnxCall(const ProgramNode& node, const c10::FunctionSchema* schema, OnnxValues& values, OnnxGraph& graph);

  // --- arguments ---
  bool has(const std::string& name) const;  // true if it is given and not None
  bool is_tensor(const std::string& name) const;
  bool is_complex(const std::string& name) const;  // true for a complex tensor
  // Complex tensors are read and set part by part: the functions below see one part, whose dtype is real.
  // Numbers and real tensors that are added to complex ones have an imaginary part of zeros.
  void set_part(OnnxPart part) { part_ = part; }
  std::string tensor(const std::string& name);  // "" for none
  // Returns a tensor or a number, converted to this type in the graph.
  std::string operand(const std::string& name, at::ScalarType type);
  std::vector<std::string> tensors(const std::string& name);
  at::ScalarType type_of(const std::string& name) const;  // of a tensor
  const ProgramTensor& meta(const std::string& name) const;
  const at::Tensor* constant(const std::string& name) const;  // of a tensor; nullptr if it is not constant
  std::vector<at::Tensor> constants(const std::string& name) const;  // throws if one is not constant
  std::int64_t rank(const std::string& name) const {
    return static_cast<std::int64_t>(meta(name).sizes.size());
  }
  std::vector<std::string> names(const std::string& name) const;  // of the program's tensors in a list
  const ProgramTensor& value_meta(const std::string& name) const { return values_.meta(name); }
  std::string typed_value(const std::string& name, at::ScalarType type);  // of the program's tensor
  bool is_complex_value(const std::string& name) const { return values_.is_complex(name); }
  bool is_list(const std::string& name) const;

  std::int64_t integer(const std::string& name) const;
  double real(const std::string& name) const;
  bool flag(const std::string& name) const;
  std::string text(const std::string& name) const;
  at::ScalarType type(const std::string& name, at::ScalarType otherwise) const;  // of an argument "dtype"
  std::vector<std::int64_t> integers(const std::string& name) const;             // none: empty
  std::vector<double> reals(const std::string& name) const;
  OnnxNumber number(const std::string& name);
  std::vector<OnnxNumber> numbers(const std::string& name);
  // Dimensions, counted from the front.
  std::int64_t dim(const std::string& name, std::int64_t rank) const { return wrapped(integer(name), rank); }
  std::vector<std::int64_t> dims(const std::string& name, std::int64_t rank) const;
  std::int64_t wrapped(std::int64_t dim, std::int64_t rank) const;
  const ProgramArgument& argument(const std::string& name) const;

  // --- results ---
  const ProgramTensor& result(std::size_t number = 0) const;
  at::ScalarType result_type(std::size_t number = 0) const;
  bool is_result_used(std::size_t number) const;  // whether the program uses it
  bool is_complex_result(std::size_t number = 0) const;
  void set_result(const std::string& value, std::size_t number = 0);
  void set_list_result(const std::vector<std::string>& values);
  void set_result_to_argument(const std::string& name);  // the result is this argument, unchanged
  void set_number_result(const std::string& value);
  std::vector<std::string> list_results() const;  // the program's names of the tensors in it
  std::size_t num_list_results() const { return list_results().size(); }
  const std::string& first_result(OnnxPart part = OnnxPart::real) const noexcept {
    return first_results_[static_cast<std::size_t>(part)];
  }  // the first result, "" for a list

  // --- nodes ---
  OnnxGraph& graph() noexcept { return graph_; }
  // These refuse nodes of float64 for which onnxruntime has no kernel.
  std::string add(const std::string& type, const std::vector<std::string>& inputs,
                  const std::vector<OnnxAttribute>& attributes = {}) {
    return add_all(type, inputs, attributes, 1)[0];
  }
  std::vector<std::string> add_all(const std::string& type, const std::vector<std::string>& inputs,
                                   const std::vector<OnnxAttribute>& attributes, std::size_t num_outputs);
  std::string scalar(const c10::Scalar& value, at::ScalarType type);
  std::string int64s(const std::vector<std::int64_t>& numbers);
  std::string cast(const std::string& value, at::ScalarType from, at::ScalarType to);
  std::string permuted(const std::string& value, const std::vector<std::int64_t>& order);
  std::string swapped(const std::string& value, std::int64_t rank, std::int64_t first, std::int64_t second);
  // One list of numbers, int64 [n].
  std::string vector_of(const std::vector<OnnxNumber>& numbers);
  OnnxNumber size(const std::string& argument, std::int64_t dim);  // of a tensor
  std::string reshaped(const std::string& value, const std::vector<OnnxNumber>& sizes);
  std::string reshaped(const std::string& value, const std::vector<std::int64_t>& sizes) {
    return reshaped(value, std::vector<OnnxNumber>(sizes.begin(), sizes.end()));
  }
  std::string reshaped_to_result(const std::string& value);  // with at most one size that is not constant

  [[noreturn]] void refuse(const std::string& found, const std::string& wanted = "",
                           const std::string& remedy = "") const;

 private:
  [[noreturn]] void refuse_argument(const std::string& name, const std::string& wanted) const;
  const std::string& name_of(const std::string& argument) const;
  std::string value_of(const std::string& name) {
    return values_.tensor(name, values_.is_complex(name) ? part_ : OnnxPart::real);
  }
  bool is_zero_part(at::ScalarType type) const;  // of what is not complex

  const ProgramNode& node_;
  OnnxValues& values_;
  OnnxGraph& graph_;
  std::map<std::string, ProgramArgument> arguments_;
  OnnxPart part_ = OnnxPart::real;
  std::array<std::string, 2> first_results_;  // by part
};

// Returns the location of a call for messages: "layer net.1, torch.ops.aten.conv2d.default".
std::string place_of(const ProgramNode& node);

}  // namespace kindling
