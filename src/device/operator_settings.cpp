#include "device/operator_settings.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace kindling {
namespace {

// Packs small numbers one after another.
class Packed {
 public:
  template <class Number>
  Packed& add(Number number, int bits = 1) {
    value_ = value_ << bits | static_cast<std::uint64_t>(number);
    return *this;
  }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0;
};

std::uint64_t autocast_settings(c10::DeviceType device) {
  Packed packed;
  for (const c10::DeviceType type : {c10::kCPU, device}) {
    packed.add(at::autocast::is_autocast_enabled(type));
    packed.add(at::autocast::get_autocast_dtype(type), 8);
  }
  return packed.add(at::autocast::is_autocast_cache_enabled()).value();
}

std::uint64_t precision_settings(const at::Context& context) {
  Packed packed;
  for (const at::Float32Backend backend : {at::Float32Backend::CUDA, at::Float32Backend::MKLDNN})
    for (const at::Float32Op op : {at::Float32Op::MATMUL, at::Float32Op::CONV, at::Float32Op::RNN})
      packed.add(context.float32Precision(backend, op), 4);
  packed.add(context.allowFP16ReductionCuBLAS(), 4);
  return packed.add(context.allowBF16ReductionCuBLAS(), 4).value();
}

std::uint64_t back_end_settings(at::Context& context) {
  return Packed()
      .add(context.deterministicAlgorithms())
      .add(context.deterministicAlgorithmsWarnOnly())
      .add(context.deterministicFillUninitializedMemory())
      .add(context.userEnabledCuDNN())
      .add(context.benchmarkCuDNN())
      .add(context.deterministicCuDNN())
      .add(context.userEnabledMkldnn())
      .add(context.deterministicMkldnn())
      .add(context.userEnabledNNPACK())
      .add(context.userEnabledFlashSDP())
      .add(context.userEnabledMemEfficientSDP())
      .add(context.userEnabledMathSDP())
      .add(context.userEnabledCuDNNSDP())
      .add(context.allowFP16BF16ReductionMathSDP())
      .value();
}

}  // namespace

OperatorSettings operator_settings(c10::DeviceType device) {
  at::Context& context = at::globalContext();
  const c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
  return {autocast_settings(device),
          precision_settings(context),
          back_end_settings(context),
          keys.included_.raw_repr(),
          keys.excluded_.raw_repr(),
          Packed()
              .add(c10::GradMode::is_enabled())
              .add(c10::InferenceMode::is_enabled())
              .add(c10::get_default_dtype_as_scalartype(), 8)
              .value(),
          static_cast<std::uint64_t>(at::get_num_threads())};
}

}  // namespace kindling
