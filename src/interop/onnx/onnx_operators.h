#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "interop/onnx/onnx_call.h"

namespace kindling {

// Makes nodes of a call, and gives its results.
using OnnxMapping = std::function<void(OnnxCall&)>;
// By the operators' names: "conv2d", "add.Tensor". Those that work in place, "add_.Tensor", are not among
// them where there is one that does the same to a copy.
using OnnxMappings = std::vector<std::pair<std::string, OnnxMapping>>;

OnnxMappings onnx_pointwise();
OnnxMappings onnx_shapes();
OnnxMappings onnx_pieces();
OnnxMappings onnx_indexing();
OnnxMappings onnx_creation();
OnnxMappings onnx_products();
OnnxMappings onnx_convolutions();
OnnxMappings onnx_pools();
OnnxMappings onnx_reductions();
OnnxMappings onnx_norms();
OnnxMappings onnx_attention();
OnnxMappings onnx_recurrent();
OnnxMappings onnx_numbers();  // functions of numbers, by their whole targets: "_operator.mul"

const std::map<std::string, OnnxMapping>& onnx_mappings();  // all of them

}  // namespace kindling
