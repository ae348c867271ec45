#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "interop/onnx/onnx_call.h"

namespace kindling {

// Adds the nodes of a call and sets its results.
using OnnxMapping = std::function<void(OnnxCall&)>;
// By operator name: "conv2d", "add.Tensor". In-place operators such as "add_.Tensor" are listed only without
// an out-of-place variant.
using OnnxMappings = std::vector<std::pair<std::string, OnnxMapping>>;

OnnxMappings onnx_activations();
OnnxMappings onnx_pointwise();
OnnxMappings onnx_shapes();
OnnxMappings onnx_pieces();
OnnxMappings onnx_indexing();
OnnxMappings onnx_scatters();
OnnxMappings onnx_order();
OnnxMappings onnx_windows();
OnnxMappings onnx_creation();
OnnxMappings onnx_products();
OnnxMappings onnx_convolutions();
OnnxMappings onnx_pools();
OnnxMappings onnx_reductions();
OnnxMappings onnx_norms();
OnnxMappings onnx_attention();
OnnxMappings onnx_recurrent();
OnnxMappings onnx_fourier();           // of complex results or operands
OnnxMappings onnx_complex_products();  // of complex operands
OnnxMappings onnx_numbers();           // functions of numbers, by their whole targets: "_operator.mul"

const std::map<std::string, OnnxMapping>& onnx_mappings();  // all of them

// For calls with complex tensors as operands or results.
const std::map<std::string, OnnxMapping>& onnx_complex_mappings();

// A complex tensor in the graph; without an imaginary part, a real one.
struct OnnxComplex {
  std::string real, imaginary{};
};
OnnxComplex complex_operand(OnnxCall& call, const std::string& name);
// Returns a tensor or a number as it is, real or complex.
OnnxComplex factor_of(OnnxCall& call, const std::string& name);
void set_complex_result(OnnxCall& call, const OnnxComplex& value);
using OnnxProduct = std::function<std::string(const std::string&, const std::string&)>;
// Returns the product of tensors that are real or complex, from products of real ones.
OnnxComplex complex_product(OnnxCall& call, const OnnxComplex& a, const OnnxComplex& b,
                            const OnnxProduct& product);

// Returns sqrt(a² + b²) without overflow, and the angle of (x, y), where the sign of zero counts.
std::string hypot_of(OnnxCall& call, const std::string& first, const std::string& second);
std::string angle_of(OnnxCall& call, const std::string& y, const std::string& x);

// Returns the tensor of which the call takes a piece (slice or select) with other values in this piece; "" if
// the call is not one of these, or if it is unknown whether pieces overlap.
std::string with_piece(OnnxCall& call, const std::string& piece);

// Returns `first` where the condition holds and `second` elsewhere, both in the dtype of the result. Unlike
// onnxruntime's Where, it also takes booleans.
std::string selected(OnnxCall& call, const std::string& condition, const std::string& first,
                     const std::string& second);

// Returns the operand "self" in the dtype of the result.
std::string self_of(OnnxCall& call);

// Returns a value of the result's dtype times a number.
std::string times(OnnxCall& call, const std::string& value, double factor);

// Returns it times the argument `factor`, such as "alpha", which is usually 1.
std::string times_argument(OnnxCall& call, const std::string& value, const char* factor);

// Returns indices, given by the program's names, broadcast to one shape and stacked in a last dimension, as
// GatherND and ScatterND take them.
std::string stacked_indices(OnnxCall& call, const std::vector<std::string>& names);

// The tensors that index dimensions of another one: x[:, rows, columns].
struct OnnxIndices {
  std::vector<std::string> names{};  // of the program's tensors
  std::vector<std::int64_t> dims{};  // that they index
  std::int64_t rank = 0;             // of the tensors after they are broadcast to one shape

  // Returns where the result has their dimensions: in the place of adjacent ones, otherwise first.
  std::vector<std::int64_t> result_dims() const;
};
OnnxIndices indices_of(const OnnxCall& call);
bool is_mask(const OnnxCall& call, const std::string& name);

// Permutes a value with `rank` dimensions so that `dims` come first, and back.
std::string with_dims_first(OnnxCall& call, const std::string& value, std::int64_t rank,
                            const std::vector<std::int64_t>& dims);
std::string with_dims_back(OnnxCall& call, const std::string& value, std::int64_t rank,
                           const std::vector<std::int64_t>& dims);

}  // namespace kindling
