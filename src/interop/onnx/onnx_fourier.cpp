#include <ATen/TensorOperators.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/fft_fft.h>
#include <ATen/ops/fft_hfft.h>
#include <ATen/ops/fft_ifft.h>
#include <ATen/ops/fft_ihfft.h>
#include <ATen/ops/fft_irfft.h>
#include <ATen/ops/fft_rfft.h>
#include <ATen/ops/imag.h>
#include <ATen/ops/real.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "interop/onnx/onnx_operators.h"

// Discrete Fourier transforms of constant sizes as matrix multiplications: ONNX's DFT has no inverse for real
// results in this opset. The matrices are the transforms of unit vectors, computed by LibTorch.
namespace kindling {
namespace {

enum class Fourier { fft, ifft, rfft, irfft, hfft, ihfft };

bool has_real_result(Fourier kind) { return kind == Fourier::irfft || kind == Fourier::hfft; }
bool has_half_input(Fourier kind) { return has_real_result(kind); }

at::Tensor transformed(Fourier kind, const at::Tensor& x, std::optional<std::int64_t> size,
                       const std::optional<std::string>& norm) {
  const std::optional<c10::string_view> scale = norm ? std::optional<c10::string_view>(*norm) : std::nullopt;
  switch (kind) {
    case Fourier::fft:
      return at::fft_fft(x, size, -1, scale);
    case Fourier::ifft:
      return at::fft_ifft(x, size, -1, scale);
    case Fourier::rfft:
      return at::fft_rfft(x, size, -1, scale);
    case Fourier::irfft:
      return at::fft_irfft(x, size, -1, scale);
    case Fourier::hfft:
      return at::fft_hfft(x, size, -1, scale);
    case Fourier::ihfft:
      break;
  }
  return at::fft_ihfft(x, size, -1, scale);
}

// A transform along one dimension: its size there, and that of the result.
struct Transform {
  Fourier kind;
  std::int64_t dim, length;
  std::optional<std::int64_t> size;
  std::optional<std::string> norm;

  // [length, frequencies], which maps one part of the input to one of the result.
  std::string matrix(OnnxCall& call, OnnxPart from, OnnxPart to) const;
};

std::string Transform::matrix(OnnxCall& call, OnnxPart from, OnnxPart to) const {
  constexpr std::int64_t kMost = 1 << 13;
  if (length > kMost || size.value_or(0) > kMost)
    call.refuse("it transforms more than " + std::to_string(kMost) + " values of a dimension");
  const at::ScalarType type = call.result_type();
  std::string key = norm.value_or("");
  for (const std::int64_t each :
       {static_cast<std::int64_t>(kind), length, size.value_or(-1), static_cast<std::int64_t>(from),
        static_cast<std::int64_t>(to), static_cast<std::int64_t>(type)})
    key.append(" ").append(std::to_string(each));
  return call.graph().shared_constant(key, [&] {
    const bool is_real = kind == Fourier::rfft || kind == Fourier::ihfft;
    at::Tensor units = at::eye(length, is_real ? at::kDouble : at::kComplexDouble);
    if (from == OnnxPart::imaginary) units = units * c10::complex<double>(0, 1);
    const at::Tensor result = transformed(kind, units, size, norm);
    return (to == OnnxPart::imaginary ? at::imag(result)
            : result.is_complex()     ? at::real(result)
                                      : result)
        .to(type)
        .contiguous();
  });
}

// Values that the transform ignores are cut, as they may be NaN.
OnnxComplex apply(OnnxCall& call, const OnnxComplex& x, std::int64_t rank, Transform transform) {
  const auto moved = [&](const std::string& value) {
    return transform.dim == rank - 1 ? value : call.swapped(value, rank, transform.dim, rank - 1);
  };
  std::int64_t used = transform.length;
  if (transform.size)
    used = std::min(used, has_half_input(transform.kind) ? *transform.size / 2 + 1 : *transform.size);
  const auto input = [&](const std::string& value) {
    const std::string last = moved(value);
    if (used == transform.length) return last;
    return call.add("Slice", {last, call.int64s({0}), call.int64s({used}), call.int64s({-1})});
  };
  const std::string real = input(x.real), imaginary = x.imaginary.empty() ? "" : input(x.imaginary);
  transform.length = used;
  const auto part = [&](OnnxPart to) {
    const std::string of_real = call.add("MatMul", {real, transform.matrix(call, OnnxPart::real, to)});
    if (imaginary.empty()) return moved(of_real);
    return moved(call.add(
        "Add", {of_real, call.add("MatMul", {imaginary, transform.matrix(call, OnnxPart::imaginary, to)})}));
  };
  if (has_real_result(transform.kind)) return {part(OnnxPart::real), ""};
  return {part(OnnxPart::real), part(OnnxPart::imaginary)};
}

Transform transform_along(OnnxCall& call, Fourier kind, std::int64_t dim, std::optional<std::int64_t> size) {
  const ProgramSize& length = call.meta("self").sizes.at(static_cast<std::size_t>(dim));
  if (!length.expression.empty())
    call.refuse("the size of the dimension that it transforms is not constant", "a constant size",
                "export the program for one size of dimension " + std::to_string(dim));
  Transform made{kind, dim, length.number, size, std::nullopt};
  if (call.has("norm")) made.norm = call.text("norm");
  return made;
}

void set_transformed(OnnxCall& call, const OnnxComplex& value) {
  if (value.imaginary.empty()) return call.set_result(value.real);
  set_complex_result(call, value);
}

OnnxComplex input_of(OnnxCall& call) {
  if (call.is_complex("self")) return complex_operand(call, "self");
  return {call.operand("self", call.result_type()), ""};
}

OnnxMapping along_one(Fourier kind) {
  return [kind](OnnxCall& call) {
    const std::int64_t rank = call.rank("self");
    const std::optional<std::int64_t> size = call.has("n") ? std::optional(call.integer("n")) : std::nullopt;
    set_transformed(
        call, apply(call, input_of(call), rank, transform_along(call, kind, call.dim("dim", rank), size)));
  };
}

// The last dimension comes first or, if the result is real, last.
OnnxMapping along_several(Fourier of_last, Fourier of_others) {
  return [=](OnnxCall& call) {
    const std::int64_t rank = call.rank("self");
    const std::vector<std::int64_t> sizes = call.integers("s");
    std::vector<std::int64_t> dims = call.dims("dim", rank);
    if (!call.has("dim")) {
      dims.resize(sizes.empty() ? static_cast<std::size_t>(rank) : sizes.size());
      std::iota(dims.begin(), dims.end(), rank - static_cast<std::int64_t>(dims.size()));
    }
    if (dims.empty()) call.refuse("it transforms no dimension");
    OnnxComplex x = input_of(call);
    const auto transform = [&](std::size_t i, Fourier kind) {
      const bool is_sized = i < sizes.size() && sizes[i] != -1;
      x = apply(call, x, rank,
                transform_along(call, kind, dims[i], is_sized ? std::optional(sizes[i]) : std::nullopt));
    };
    if (!has_real_result(of_last)) transform(dims.size() - 1, of_last);
    for (std::size_t i = 0; i + 1 < dims.size(); ++i) transform(i, of_others);
    if (has_real_result(of_last)) transform(dims.size() - 1, of_last);
    set_transformed(call, x);
  };
}

}  // namespace

OnnxMappings onnx_fourier() {
  using enum Fourier;
  OnnxMappings mappings{{"fft_fft", along_one(fft)},   {"fft_ifft", along_one(ifft)},
                        {"fft_rfft", along_one(rfft)}, {"fft_irfft", along_one(irfft)},
                        {"fft_hfft", along_one(hfft)}, {"fft_ihfft", along_one(ihfft)}};
  for (const std::string end : {"2", "n"}) {
    mappings.emplace_back("fft_fft" + end, along_several(fft, fft));
    mappings.emplace_back("fft_ifft" + end, along_several(ifft, ifft));
    mappings.emplace_back("fft_rfft" + end, along_several(rfft, fft));
    mappings.emplace_back("fft_irfft" + end, along_several(irfft, ifft));
  }
  return mappings;
}

}  // namespace kindling
