// Automatic mixed precision: LibTorch's own lists of which operators take which precision.
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include "fake_accelerator_parts.h"

namespace kindling::fake {

void register_autocast(torch::Library& all_operators,
                       torch::Library& m) {  // `m` is the name LibTorch's macros use
  using namespace at;  // the macros name its types without it, other ones in each version
  all_operators.fallback(torch::CppFunction::makeFallthrough());
#define KINDLING_LOWER_PRECISION(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define KINDLING_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define KINDLING_FP32_SET_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define KINDLING_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_LOWER_PRECISION_FP(KINDLING_LOWER_PRECISION)
  AT_FORALL_FP32(KINDLING_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(KINDLING_FP32_SET_DTYPE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
  AT_FORALL_PROMOTE(KINDLING_PROMOTE)
#undef KINDLING_LOWER_PRECISION
#undef KINDLING_FP32
#undef KINDLING_FP32_SET_DTYPE
#undef KINDLING_PROMOTE
}

}  // namespace kindling::fake
