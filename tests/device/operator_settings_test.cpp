// Each setting of LibTorch that changes what operators compute is part of the settings that captured steps
// are kept for.
#include "device/operator_settings.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>

namespace kindling {
namespace {

// `change` is given whether to change the setting or to restore it.
struct Setting {
  std::string name;
  std::function<void(bool changed)> change;
};

class OperatorSettingsOf : public testing::TestWithParam<Setting> {};

TEST_P(OperatorSettingsOf, DifferWhileASettingIsChanged) {
  const OperatorSettings before = operator_settings(at::kCPU);
  EXPECT_EQ(operator_settings(at::kCPU), before);
  GetParam().change(true);
  const OperatorSettings changed = operator_settings(at::kCPU);
  GetParam().change(false);
  EXPECT_NE(changed, before);
  EXPECT_EQ(operator_settings(at::kCPU), before);
}

at::Context& context() { return at::globalContext(); }

INSTANTIATE_TEST_SUITE_P(
    , OperatorSettingsOf,
    testing::Values(
        Setting{"Autocast", [](bool changed) { at::autocast::set_autocast_enabled(at::kCPU, changed); }},
        Setting{"AutocastDtype",
                [](bool changed) {
                  at::autocast::set_autocast_dtype(at::kCPU, changed ? at::kHalf : at::kBFloat16);
                }},
        Setting{"AutocastCache", [](bool changed) { at::autocast::set_autocast_cache_enabled(!changed); }},
        Setting{"GradMode", [](bool changed) { c10::GradMode::set_enabled(!changed); }},
        Setting{"InferenceMode",
                [](bool changed) {
                  static std::optional<c10::InferenceMode> mode;
                  changed ? void(mode.emplace()) : mode.reset();
                }},
        Setting{"DispatchKeys",
                [](bool changed) {
                  c10::impl::tls_set_dispatch_key_included(c10::DispatchKey::FuncTorchBatched, changed);
                }},
        Setting{"DefaultDtype",
                [](bool changed) {
                  c10::set_default_dtype(c10::scalarTypeToTypeMeta(changed ? at::kDouble : at::kFloat));
                }},
        Setting{"DeterministicAlgorithms",
                [](bool changed) { context().setDeterministicAlgorithms(changed, /*warn_only=*/false); }},
        Setting{"Onednn", [](bool changed) { context().setUserEnabledMkldnn(!changed); }},
        Setting{"CudnnBenchmark", [](bool changed) { context().setBenchmarkCuDNN(changed); }},
        Setting{"CudnnDeterministic", [](bool changed) { context().setDeterministicCuDNN(changed); }},
        Setting{"MathAttention", [](bool changed) { context().setSDPUseMath(!changed); }},
        Setting{"Float32Products",
                [](bool changed) {
                  static const at::Float32Precision before =
                      context().float32Precision(at::Float32Backend::MKLDNN, at::Float32Op::MATMUL);
                  context().setFloat32Precision(at::Float32Backend::MKLDNN, at::Float32Op::MATMUL,
                                                changed ? at::Float32Precision::BF16 : before);
                }},
        Setting{"ShortSums", [](bool changed) { context().setAllowBF16ReductionCuBLAS(!changed); }},
        Setting{"Threads",
                [](bool changed) {
                  static const int num_threads = at::get_num_threads();
                  at::set_num_threads(changed ? num_threads + 1 : num_threads);
                }}),
    [](const auto& setting) { return setting.param.name; });

}  // namespace
}  // namespace kindling
