#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <typeinfo>

#include "kindling/base/export.h"
#include "kindling/config/options.h"
#include "kindling/interop/exported_module.h"
#include "kindling/nn/classifier.h"
#include "kindling/nn/lazy_linear.h"

namespace kindling {

struct ExportedBackboneOptions {
  std::filesystem::path program{};  // written by torch.export.save; its first output are the features
  std::int64_t num_classes = 10;
  std::filesystem::path eval_file{};  // the same program exported after model.eval(); see ExportedModule

  static constexpr auto fields = kindling::fields(
      kindling::field("program", &ExportedBackboneOptions::program,
                      {.doc = "a .pt2 file written by torch.export.save in Python, whose first output is the "
                              "features",
                       .example = "\"backbone.pt2\""}),
      kindling::field("num_classes", &ExportedBackboneOptions::num_classes,
                      {.doc = "number of classes", .min = 1}),
      kindling::field("eval_file", &ExportedBackboneOptions::eval_file,
                      {.doc = "the same program exported after model.eval(), for validation, test, predict "
                              "and export; empty: as eval_file of exported",
                       .example = "\"backbone_eval.pt2\""}));
};

// A classifier made of a model exported from Python and a new linear layer: program → flatten → linear. Its
// parameters are `backbone.NAME`, by the names in Python, with the exported weights, and `head.weight` and
// `head.bias`, whose input size is that of the features in the first batch. Export the program without its
// last layer. For what programs can do, see ExportedModule.
class KINDLING_API ExportedBackbone : public Classifier {
 public:
  // Throws ConfigError without a program, and CheckpointError as ExportedModule does.
  explicit ExportedBackbone(ExportedBackboneOptions options);
  ~ExportedBackbone() override;

  // [batch, …] → logits [batch, num_classes]. Throws DataError for a program whose first output is not
  // floating-point with at least two dimensions.
  at::Tensor forward(const at::Tensor& input) override;
  // The inputs of the program are those of ExportedModule::forward_inputs().
  at::Tensor forward_inputs(const Batch& batch) override;
  // True for this class only; a derived class must override it for its own step.
  bool static_step() const override { return typeid(*this) == typeid(ExportedBackbone); }

  ExportedModule& backbone() noexcept { return *backbone_; }

 private:
  at::Tensor logits(const at::Tensor& features);

  std::shared_ptr<ExportedModule> backbone_;
  LazyLinear head_{nullptr};
};

}  // namespace kindling
