#include "device/float32_products.h"

namespace kindling {
namespace {

using at::Float32Backend;
using at::Float32Op;

// In the order of at::Float32MatmulPrecision.
constexpr const char* kPrecisionWords[] = {"highest", "high", "medium"};
static_assert(static_cast<int>(at::Float32MatmulPrecision::MEDIUM) == 2);

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
  context.setFloat32MatmulPrecision(kPrecisionWords[static_cast<std::size_t>(before_)]);
  context.setFloat32Precision(Float32Backend::CUDA, Float32Op::MATMUL, cuda_before_);
  context.setFloat32Precision(Float32Backend::MKLDNN, Float32Op::MATMUL, onednn_before_);
}

}  // namespace kindling
