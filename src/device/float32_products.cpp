#include "device/float32_products.h"

#include "device/shared_setting.h"

namespace kindling {
namespace {

using at::Float32Backend;
using at::Float32Op;

// In the order of at::Float32MatmulPrecision.
constexpr const char* kPrecisionWords[] = {"highest", "high", "medium"};
static_assert(static_cast<int>(at::Float32MatmulPrecision::MEDIUM) == 2);

void set_products_of(Float32Backend backend, at::Float32Precision precision) {
  at::globalContext().setFloat32Precision(backend, Float32Op::MATMUL, precision);
}

// LibTorch stores the name, and for each backend either the name's meaning or a setting that was made
// separately. Setting the name resets all backends.
struct ProductsSetting {
  std::string word{};
  std::optional<at::Float32Precision> cuda{}, onednn{};  // absent: as the name says
};

// LibTorch does not return its name while a backend has a different setting.
ProductsSetting products_setting() {
  const at::Float32Precision cuda = float32_products_on(at::kCUDA), onednn = float32_products_on(at::kCPU);
  set_products_of(Float32Backend::CUDA, at::Float32Precision::IEEE);
  set_products_of(Float32Backend::MKLDNN, at::Float32Precision::IEEE);
  const auto word = static_cast<std::size_t>(at::globalContext().float32MatmulPrecision());
  set_products_of(Float32Backend::CUDA, cuda);
  set_products_of(Float32Backend::MKLDNN, onednn);
  return {.word = kPrecisionWords[word], .cuda = cuda, .onednn = onednn};
}

void set_products(const ProductsSetting& wanted) {
  at::globalContext().setFloat32MatmulPrecision(wanted.word);
  if (wanted.cuda) set_products_of(Float32Backend::CUDA, *wanted.cuda);
  if (wanted.onednn) set_products_of(Float32Backend::MKLDNN, *wanted.onednn);
}

SharedSetting<ProductsSetting>& products_of_process() {
  static SharedSetting<ProductsSetting> setting(products_setting, set_products);
  return setting;
}

}  // namespace

Float32Products::Float32Products(const std::optional<std::string>& precision) {
  if (precision) ticket_ = products_of_process().take({.word = *precision});
}

Float32Products::~Float32Products() {
  if (ticket_) products_of_process().give_back(*ticket_);
}

std::string float32_matmul_precision() {
  const bool are_short_on_gpus = shortens_float32_products(at::kCUDA);
  if (float32_products_on(at::kCPU) == at::Float32Precision::BF16)
    return are_short_on_gpus ? "medium" : "mixed";
  return are_short_on_gpus ? "high" : shortens_float32_products(at::kCPU) ? "mixed" : "highest";
}

at::Float32Precision float32_products_on(c10::DeviceType device) {
  return at::globalContext().float32Precision(
      device == at::kCPU ? Float32Backend::MKLDNN : Float32Backend::CUDA, Float32Op::MATMUL);
}

bool shortens_float32_products(c10::DeviceType device) {
  const at::Float32Precision precision = float32_products_on(device);
  return precision == at::Float32Precision::TF32 || precision == at::Float32Precision::BF16;
}

}  // namespace kindling
