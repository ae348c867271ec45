#include <ATen/ops/zeros.h>

#include <algorithm>

#include "interop/onnx/onnx_operators.h"

namespace kindling {
namespace {

using Numbers = std::vector<std::int64_t>;

struct Windows {
  Numbers kernel, stride, padding, dilation;
};

Numbers window_numbers(OnnxCall& call, const char* name, std::size_t dims, const Numbers& otherwise) {
  const Numbers given = call.has(name) ? call.integers(name) : Numbers();
  return given.empty() ? otherwise : given.size() == 1 ? Numbers(dims, given[0]) : given;
}

Windows windows_of(OnnxCall& call, std::size_t dims) {
  Windows windows;
  windows.kernel = window_numbers(call, "kernel_size", dims, {});
  windows.stride = window_numbers(call, "stride", dims, windows.kernel);
  windows.padding = window_numbers(call, "padding", dims, {});
  windows.dilation = window_numbers(call, "dilation", dims, Numbers(dims, 1));
  return windows;
}

// True if windows end where the input does, so that rounding up or down is the same.
bool fit(const OnnxCall& call, const Windows& windows) {
  const std::vector<ProgramSize>& sizes = call.meta("self").sizes;
  const std::size_t dims = windows.kernel.size(), first = sizes.size() - dims;
  for (std::size_t i = 0; i < dims; ++i) {
    const ProgramSize& size = sizes[first + i];
    const std::int64_t rest =
        size.number + 2 * windows.padding[i] - windows.dilation[i] * (windows.kernel[i] - 1) - 1;
    if (!size.expression.empty() || rest % windows.stride[i] != 0) return false;
  }
  return true;
}

// Samples without a batch dimension get one temporarily.
std::string pooled(OnnxCall& call, std::size_t dims, const char* type,
                   const std::vector<OnnxAttribute>& attributes) {
  const bool is_sample = call.rank("self") == static_cast<std::int64_t>(dims) + 1;
  std::string x = call.tensor("self");
  if (is_sample) x = call.add("Unsqueeze", {x, call.int64s({0})});
  const std::string y = call.add(type, {x}, attributes);
  return is_sample ? call.add("Squeeze", {y, call.int64s({0})}) : y;
}

std::vector<OnnxAttribute> window_attributes(const Windows& windows) {
  Numbers pads = windows.padding;
  pads.insert(pads.end(), windows.padding.begin(), windows.padding.end());
  return {{"kernel_shape", windows.kernel}, {"strides", windows.stride}, {"pads", pads}};
}

OnnxMapping max_pool(std::size_t dims) {
  return [dims](OnnxCall& call) {
    const Windows windows = windows_of(call, dims);
    if (call.is_result_used(1)) call.refuse("the indices of its largest values are used");
    std::vector<OnnxAttribute> attributes = window_attributes(windows);
    attributes.emplace_back("dilations", windows.dilation);
    if (call.flag("ceil_mode") && !fit(call, windows)) attributes.emplace_back("ceil_mode", 1);
    call.set_result(pooled(call, dims, "MaxPool", attributes));
  };
}

OnnxMapping average_pool(std::size_t dims) {
  return [dims](OnnxCall& call) {
    const Windows windows = windows_of(call, dims);
    if (call.has("divisor_override")) call.refuse("it has a custom divisor (divisor_override)");
    // Runtimes differ in how they count the values of the last windows.
    if (call.flag("ceil_mode") && !fit(call, windows))
      call.refuse("its last windows extend beyond the input (ceil_mode)", "",
                  "pad the input so that all windows are complete");
    std::vector<OnnxAttribute> attributes = window_attributes(windows);
    attributes.emplace_back("count_include_pad", call.flag("count_include_pad") ? 1 : 0);
    call.set_result(pooled(call, dims, "AveragePool", attributes));
  };
}

// The averages of an adaptive pool as a matrix [input, output].
at::Tensor averaging_matrix(std::int64_t inputs, std::int64_t outputs, at::ScalarType type) {
  at::Tensor matrix = at::zeros({inputs, outputs}, at::dtype(type));
  for (std::int64_t i = 0; i < outputs; ++i) {
    const std::int64_t begin = i * inputs / outputs, end = ((i + 1) * inputs + outputs - 1) / outputs;
    matrix.narrow(0, begin, end - begin).select(1, i).fill_(1.0 / static_cast<double>(end - begin));
  }
  return matrix;
}

void average_by_matrices(OnnxCall& call, const Numbers& inputs, const Numbers& outputs) {
  std::string x = call.tensor("self");
  const std::int64_t rank = call.rank("self");
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (inputs[i] == outputs[i]) continue;
    const std::int64_t dim = rank - static_cast<std::int64_t>(outputs.size() - i);
    const auto turned = [&](const std::string& value) {
      return dim == rank - 1 ? value : call.swapped(value, rank, dim, rank - 1);
    };
    const std::string matrix =
        call.graph().constant(averaging_matrix(inputs[i], outputs[i], call.result_type()));
    x = turned(call.add("MatMul", {turned(x), matrix}));
  }
  call.set_result(call.add("Identity", {x}));
}

OnnxMapping adaptive_pool(std::size_t dims, bool is_average) {
  return [dims, is_average](OnnxCall& call) {
    const Numbers outputs = window_numbers(call, "output_size", dims, {});
    if (!is_average && call.is_result_used(1)) call.refuse("the indices of its largest values are used");
    const std::string global = is_average ? "GlobalAveragePool" : "GlobalMaxPool";
    if (outputs == Numbers(dims, 1)) return call.set_result(pooled(call, dims, global.c_str(), {}));
    Numbers inputs, kernel;
    bool divides = true;
    for (std::size_t i = 0; i < dims; ++i) {
      const ProgramSize& size = call.meta("self").sizes[call.meta("self").sizes.size() - dims + i];
      if (!size.expression.empty()) call.refuse("its input has a size that is not constant");
      inputs.push_back(size.number);
      kernel.push_back(size.number / outputs[i]);
      divides = divides && size.number % outputs[i] == 0;
    }
    if (divides)
      return call.set_result(pooled(call, dims, is_average ? "AveragePool" : "MaxPool",
                                    {{"kernel_shape", kernel}, {"strides", kernel}}));
    if (!is_average) call.refuse("its windows differ in size");
    average_by_matrices(call, inputs, outputs);
  };
}

// Sizes, or scale factors of the current sizes.
std::string resized(OnnxCall& call, const std::string& x, std::int64_t rank,
                    std::vector<OnnxAttribute> attributes) {
  if (call.has("scale_factors")) {
    std::vector<double> factors = call.reals("scale_factors");
    factors.insert(factors.begin(), static_cast<std::size_t>(rank) - factors.size(), 1.0);
    at::Tensor scales = at::zeros({rank}, at::dtype(at::kFloat));
    for (std::size_t i = 0; i < factors.size(); ++i)
      scales.select(0, static_cast<std::int64_t>(i)).fill_(factors[i]);
    return call.add("Resize", {x, "", call.graph().constant(scales)}, attributes);
  }
  std::vector<OnnxNumber> sizes = call.numbers("output_size");
  const std::int64_t kept = rank - static_cast<std::int64_t>(sizes.size());
  const std::string front = call.add("Shape", {x}, {{"start", 0}, {"end", kept}});
  const std::string all = call.add("Concat", {front, call.vector_of(sizes)}, {{"axis", 0}});
  return call.add("Resize", {x, "", "", all}, attributes);
}

void upsample_nearest(OnnxCall& call) {
  call.set_result(resized(call, call.tensor("input"), call.rank("input"),
                          {{"mode", std::string("nearest")},
                           {"coordinate_transformation_mode", std::string("asymmetric")},
                           {"nearest_mode", std::string("floor")}}));
}

// The nearest of the pixels' centers.
void upsample_nearest_exact(OnnxCall& call) {
  call.set_result(resized(call, call.tensor("input"), call.rank("input"),
                          {{"mode", std::string("nearest")},
                           {"coordinate_transformation_mode", std::string("half_pixel")},
                           {"nearest_mode", std::string("round_prefer_ceil")}}));
}

// The overloads without "vec" have the argument "self" instead of "input". `antialias`: windows grow with the
// ratio of the sizes, as in PIL.
OnnxMapping upsample(const char* mode, bool antialias = false) {
  return [mode, antialias](OnnxCall& call) {
    const char* input = call.has("input") ? "input" : "self";
    if (call.has("scales_h") || call.has("scales_w"))
      call.refuse("it has scales in addition to the size of its result");
    const std::string corners = call.flag("align_corners") ? "align_corners" : "half_pixel";
    std::vector<OnnxAttribute> attributes{
        {"mode", std::string(mode)}, {"coordinate_transformation_mode", corners}, {"cubic_coeff_a", -0.75}};
    if (antialias) attributes.emplace_back("antialias", 1);
    if (antialias) attributes.emplace_back("exclude_outside", 1);  // weights at the border sum to 1, too
    call.set_result(resized(call, call.tensor(input), call.rank(input), attributes));
  };
}

}  // namespace

OnnxMappings onnx_pools() {
  OnnxMappings mappings{{"max_pool2d_with_indices", max_pool(2)},
                        {"max_pool3d_with_indices", max_pool(3)},
                        {"_adaptive_avg_pool2d", adaptive_pool(2, true)},
                        {"_adaptive_avg_pool3d", adaptive_pool(3, true)},
                        {"upsample_linear1d.vec", upsample("linear")},
                        {"upsample_bilinear2d.vec", upsample("linear")},
                        {"upsample_trilinear3d.vec", upsample("linear")},
                        {"upsample_bicubic2d.vec", upsample("cubic")},
                        {"upsample_bilinear2d", upsample("linear")},
                        {"_upsample_bilinear2d_aa", upsample("linear", true)},
                        {"_upsample_bilinear2d_aa.vec", upsample("linear", true)}};
  for (std::size_t dims = 1; dims <= 3; ++dims) {
    const std::string end = std::to_string(dims) + "d";
    mappings.emplace_back("max_pool" + end, max_pool(dims));
    mappings.emplace_back("avg_pool" + end, average_pool(dims));
    mappings.emplace_back("adaptive_avg_pool" + end, adaptive_pool(dims, true));
    mappings.emplace_back("adaptive_max_pool" + end, adaptive_pool(dims, false));
    mappings.emplace_back("upsample_nearest" + end + ".vec", &upsample_nearest);
    mappings.emplace_back("_upsample_nearest_exact" + end + ".vec", &upsample_nearest_exact);
  }
  return mappings;
}

}  // namespace kindling
