#include "interop/onnx/onnx_operators.h"

namespace kindling {

const std::map<std::string, OnnxMapping>& onnx_mappings() {
  static const std::map<std::string, OnnxMapping> all = [] {
    std::map<std::string, OnnxMapping> made;
    for (const auto kind : {&onnx_pointwise, &onnx_shapes, &onnx_pieces, &onnx_indexing, &onnx_creation,
                            &onnx_products, &onnx_convolutions, &onnx_pools, &onnx_reductions, &onnx_norms,
                            &onnx_attention, &onnx_recurrent, &onnx_numbers})
      for (auto& [name, mapping] : kind()) made.emplace(name, std::move(mapping));
    return made;
  }();
  return all;
}

}  // namespace kindling
