#include "interop/onnx/onnx_operators.h"

namespace kindling {
namespace {

using Numbers = std::vector<std::int64_t>;

// A number for all dimensions, or one for each.
Numbers for_each_dimension(OnnxCall& call, const char* name, std::size_t dims) {
  const Numbers given = call.integers(name);
  return given.size() == 1 ? Numbers(dims, given[0]) : given;
}

Numbers on_both_sides(const Numbers& padding) {
  Numbers pads = padding;
  pads.insert(pads.end(), padding.begin(), padding.end());
  return pads;
}

// The padding "same", with a result as large as the input: an odd total pads one more at the end.
Numbers named_pads(OnnxCall& call, const Numbers& dilation) {
  const std::string word = call.text("padding");
  const std::size_t dims = dilation.size();
  Numbers pads(2 * dims, 0);
  if (word == "valid") return pads;
  if (word != "same") call.refuse("its padding is neither \"same\" nor \"valid\"");
  for (std::size_t i = 0; i < dims; ++i) {
    const std::int64_t total = dilation[i] * (call.meta("weight").sizes.at(i + 2).number - 1);
    pads[i] = total / 2;
    pads[dims + i] = total - total / 2;
  }
  return pads;
}

// Samples without a batch dimension get one temporarily.
std::string with_batch(OnnxCall& call, const std::string& type,
                       const std::vector<OnnxAttribute>& attributes) {
  std::string x = call.tensor("input");
  const bool is_sample = call.rank("input") < call.rank("weight");
  if (is_sample) x = call.add("Unsqueeze", {x, call.int64s({0})});
  const std::string bias = call.has("bias") ? call.tensor("bias") : "";
  const std::string y = call.add(type, {x, call.tensor("weight"), bias}, attributes);
  return is_sample ? call.add("Squeeze", {y, call.int64s({0})}) : y;
}

void convolve(OnnxCall& call) {
  const auto dims = static_cast<std::size_t>(call.rank("weight")) - 2;
  const Numbers dilation = for_each_dimension(call, "dilation", dims);
  const bool is_word = std::holds_alternative<std::string>(call.argument("padding").value);
  const Numbers pads =
      is_word ? named_pads(call, dilation) : on_both_sides(for_each_dimension(call, "padding", dims));
  call.set_result(with_batch(call, "Conv",
                             {{"strides", for_each_dimension(call, "stride", dims)},
                              {"pads", pads},
                              {"dilations", dilation},
                              {"group", call.integer("groups")}}));
}

void convolve_transposed(OnnxCall& call) {
  const auto dims = static_cast<std::size_t>(call.rank("weight")) - 2;
  call.set_result(with_batch(call, "ConvTranspose",
                             {{"strides", for_each_dimension(call, "stride", dims)},
                              {"pads", on_both_sides(for_each_dimension(call, "padding", dims))},
                              {"output_padding", for_each_dimension(call, "output_padding", dims)},
                              {"dilations", for_each_dimension(call, "dilation", dims)},
                              {"group", call.integer("groups")}}));
}

void convolution(OnnxCall& call) { call.flag("transposed") ? convolve_transposed(call) : convolve(call); }

}  // namespace

OnnxMappings onnx_convolutions() {
  return {{"conv1d", &convolve},
          {"conv2d", &convolve},
          {"conv3d", &convolve},
          {"conv1d.padding", &convolve},
          {"conv2d.padding", &convolve},
          {"conv3d.padding", &convolve},
          {"conv_transpose1d", &convolve_transposed},
          {"conv_transpose2d.input", &convolve_transposed},
          {"conv_transpose3d.input", &convolve_transposed},
          {"convolution", &convolution}};
}

}  // namespace kindling
