// The public functions of interop for builds with KINDLING_INTEROP=OFF, so that what calls them still links.
#include "kindling/base/error.h"
#include "kindling/interop/compiled_package.h"
#include "kindling/interop/export_program.h"
#include "kindling/interop/exported_backbone.h"
#include "kindling/interop/exported_module.h"

namespace kindling {
namespace {

[[noreturn]] void throw_missing(const std::string& name) {
  throw Error({.place = name,
               .found = "this build of Kindling does not include the interop module",
               .remedy = "build Kindling with the CMake option KINDLING_INTEROP=ON"});
}

}  // namespace

void export_program(Module&, const Batch&, const ExportOptions&) { throw_missing("export_program()"); }

void export_program(Module&, DataModule&, const ExportOptions&) { throw_missing("export_program()"); }

void export_program(torch::nn::Module&, const BatchFunction&, const Batch&, const ExportOptions&) {
  throw_missing("export_program()");
}

void convert_to_onnx(const std::filesystem::path&, const std::filesystem::path&) {
  throw_missing("convert_to_onnx()");
}

// The constructors throw, so no object's other functions are ever called.
struct ExportedModule::Program {};
ExportedModule::ExportedModule(ExportedModuleOptions) { throw_missing("ExportedModule"); }
ExportedModule::~ExportedModule() = default;
std::vector<at::Tensor> ExportedModule::run(std::span<const at::Tensor>) { throw_missing("ExportedModule"); }
at::Tensor ExportedModule::forward(const at::Tensor&) { throw_missing("ExportedModule"); }
at::Tensor ExportedModule::forward_inputs(const Batch&) { throw_missing("ExportedModule"); }
at::Tensor ExportedModule::loss(const at::Tensor&, const at::Tensor&) { throw_missing("ExportedModule"); }
void ExportedModule::set_loss_options(const ClassLossOptions&) { throw_missing("ExportedModule"); }
void ExportedModule::set_class_weights(const at::Tensor&) { throw_missing("ExportedModule"); }
at::Tensor ExportedModule::training_step(const Batch&) { throw_missing("ExportedModule"); }
void ExportedModule::validation_step(const Batch&) { throw_missing("ExportedModule"); }
void ExportedModule::test_step(const Batch&) { throw_missing("ExportedModule"); }
std::vector<at::Tensor> ExportedModule::outputs_without_loss(const Batch&) {
  throw_missing("ExportedModule");
}
at::Tensor ExportedModule::predict_step(const Batch&) { throw_missing("ExportedModule"); }
Batch ExportedModule::predict_outputs(const Batch&) { throw_missing("ExportedModule"); }
Batch ExportedModule::export_outputs(const Batch&) { throw_missing("ExportedModule"); }
Batch ExportedModule::nested(std::vector<at::Tensor>, bool) const { throw_missing("ExportedModule"); }
void ExportedModule::train(bool) { throw_missing("ExportedModule"); }
Module::Monitor ExportedModule::monitor() const { throw_missing("ExportedModule"); }
void ExportedModule::save(const std::filesystem::path&) const { throw_missing("ExportedModule"); }
std::size_t ExportedModule::num_inputs() const { throw_missing("ExportedModule"); }
bool ExportedModule::uses_evaluation_program() const { throw_missing("ExportedModule"); }
std::optional<std::int64_t> ExportedModule::fixed_batch_size(bool) const { throw_missing("ExportedModule"); }
std::optional<BatchSizes> ExportedModule::batch_sizes(bool) const { throw_missing("ExportedModule"); }
std::vector<at::Tensor> ExportedModule::run_program(std::span<const at::Tensor>) {
  throw_missing("ExportedModule");
}
std::vector<at::Tensor> ExportedModule::run_by_rows(std::span<const at::Tensor>, std::int64_t) {
  throw_missing("ExportedModule");
}
void ExportedModule::check_filled(const std::vector<at::Tensor>&, const std::vector<at::Tensor>&,
                                  std::int64_t) {
  throw_missing("ExportedModule");
}

ExportedBackbone::ExportedBackbone(ExportedBackboneOptions) { throw_missing("ExportedBackbone"); }
ExportedBackbone::~ExportedBackbone() = default;
at::Tensor ExportedBackbone::forward(const at::Tensor&) { throw_missing("ExportedBackbone"); }
at::Tensor ExportedBackbone::forward_inputs(const Batch&) { throw_missing("ExportedBackbone"); }

struct CompiledPackage::Impl {};
CompiledPackage::CompiledPackage(const std::filesystem::path&, ExportedModule&, CompiledPackageOptions) {
  throw_missing("CompiledPackage");
}
CompiledPackage::~CompiledPackage() = default;
void CompiledPackage::set_weights(const ExportedModule&) { throw_missing("CompiledPackage"); }
std::vector<at::Tensor> CompiledPackage::run(std::span<const at::Tensor>) const {
  throw_missing("CompiledPackage");
}
at::Tensor CompiledPackage::forward(const at::Tensor&) const { throw_missing("CompiledPackage"); }

}  // namespace kindling
