#include "kindling/interop/exported_backbone.h"

#include "kindling/base/error.h"
#include "tensors/shape_text.h"

namespace kindling {

ExportedBackbone::ExportedBackbone(ExportedBackboneOptions options) {
  validate(options, "backbone");
  if (options.program.empty())
    throw ConfigError({.place = "model.program",
                       .found = "no file is given",
                       .wanted = "a .pt2 file saved by torch.export.save"});
  backbone_ = register_module("backbone", std::make_shared<ExportedModule>(ExportedModuleOptions{
                                              .file = options.program, .eval_file = options.eval_file}));
  head_ = register_module("head", LazyLinear(options.num_classes));
}

ExportedBackbone::~ExportedBackbone() = default;

at::Tensor ExportedBackbone::forward(const at::Tensor& input) { return logits(backbone_->forward(input)); }

at::Tensor ExportedBackbone::forward_inputs(const Batch& batch) {
  return logits(backbone_->forward_inputs(batch));
}

at::Tensor ExportedBackbone::logits(const at::Tensor& features) {
  if (features.dim() < 2 || !features.is_floating_point())
    throw DataError({.place = "ExportedBackbone",
                     .found = "the first output of the program is " + type_text(features),
                     .wanted = "floating-point features [batch, ...]"});
  return head_->forward(features.flatten(1));
}

}  // namespace kindling
