#include "measurements/float32_products.h"

#include <ATen/Version.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <sstream>

namespace kindling {
namespace {

using at::Float32Backend;
using at::Float32Op;

const char* word_of(at::Float32MatmulPrecision precision) {
  switch (precision) {
    case at::Float32MatmulPrecision::HIGH:
      return "high";
    case at::Float32MatmulPrecision::MEDIUM:
      return "medium";
    default:
      return "highest";
  }
}

// The lines of LibTorch's description that name a matrix library of the CPU.
std::string cpu_libraries() {
  std::istringstream lines(at::show_config());
  std::string text;
  for (std::string line; std::getline(lines, line);) {
    if (line.find("Math Kernel Library") == std::string::npos && line.find("MKL-DNN") == std::string::npos)
      continue;
    line.erase(0, line.find_first_not_of(" -"));
    line.erase(std::min({line.find(" for "), line.find(" (Git"), line.size()}));
    text += (text.empty() ? "" : "; ") + line;
  }
  return text.empty() ? "LibTorch's own" : text;
}

}  // namespace

// LibTorch refuses to answer some of its older getters when only the newer settings are changed, so that all
// of them are set, and put back, together.
Float32Products::Float32Products(Precision precision)
    : before_(at::globalContext().float32MatmulPrecision()),
      cuda_before_(at::globalContext().float32Precision(Float32Backend::CUDA, Float32Op::MATMUL)),
      onednn_before_(at::globalContext().float32Precision(Float32Backend::MKLDNN, Float32Op::MATMUL)) {
  at::globalContext().setFloat32MatmulPrecision(precision == Precision::tf32 ? "high" : "highest");
}

Float32Products::~Float32Products() {
  at::Context& context = at::globalContext();
  context.setFloat32MatmulPrecision(word_of(before_));
  context.setFloat32Precision(Float32Backend::CUDA, Float32Op::MATMUL, cuda_before_);
  context.setFloat32Precision(Float32Backend::MKLDNN, Float32Op::MATMUL, onednn_before_);
}

bool has_tf32(Device device) {
  const Float32Products products(Float32Products::Precision::tf32);
  constexpr std::int64_t n = 256;         // large enough for a kernel that uses it
  constexpr float number = 1 + 0x1p-13f;  // 13 bits behind the point
  const auto options = at::dtype(at::kFloat).device(device);
  const at::Tensor product = at::mm(at::full({n, n}, number, options), at::eye(n, options));
  return product.ne(number).any().item<bool>();
}

std::string matrix_library(Device device) {
  if (device.is_cpu()) return cpu_libraries();
  if (!device.is_cuda()) return "of " + device.str();
  std::ostringstream text;
  text << at::globalContext().blasPreferredBackend();
  return text.str().substr(text.str().rfind(':') + 1);  // at::BlasBackend::Cublas
}

}  // namespace kindling
