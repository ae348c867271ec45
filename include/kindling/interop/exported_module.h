#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <typeinfo>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/config/options.h"
#include "kindling/nn/module.h"

namespace kindling {

struct ExportedModuleOptions {
  std::filesystem::path file{};        // of torch.export.save
  std::string loss = "cross_entropy";  // "output": the program's first output is the loss

  static constexpr auto fields = kindling::fields(
      kindling::field("file", &ExportedModuleOptions::file,
                      {.doc = "a .pt2 file written by torch.export.save in Python"}),
      kindling::field("loss", &ExportedModuleOptions::loss,
                      {.doc = "loss of the first output and the labels; output: the first output is the loss",
                       .choices = "cross_entropy|nll|mse|l1|smooth_l1|huber|bce_with_logits|output"}));
};

// A model that Python has exported (torch.export.save, PyTorch 2.7 to 2.13), with its weights under Python's
// names. It trains, and is validated, saved and resumed, as a model written in C++: the same operators are
// called in the same order, so losses and weights are Python's. Nothing of the file is executed but operators
// of a list (dense tensors' operators of aten); of what it holds as pickles nothing is read.
//
// Layers such as dropout and batch norm work as they were recorded: a program that is to be trained is
// exported in training mode (model.train()). In evaluation mode they do not drop and use their running
// statistics, as move_exported_model_to_eval does it in Python; a program that was recorded in evaluation
// mode does so in training, too, and says so in a warning.
class KINDLING_API ExportedModule : public Module {
 public:
  // Throws CheckpointError for a file that is damaged, is none of torch.export.save, or has a program that
  // cannot be trained: control flow, operators that are not listed, programs decomposed in training mode.
  explicit ExportedModule(ExportedModuleOptions options);
  ~ExportedModule() override;

  // The program's outputs that are tensors, in their order. The inputs have the shapes and dtypes it was
  // exported for, sizes that were exported as dynamic within their range, or DataError is thrown; they are on
  // the model's device.
  std::vector<at::Tensor> run(std::span<const at::Tensor> inputs);
  // The first output of a program of one input.
  at::Tensor forward(const at::Tensor& input) override;
  // The first output. The inputs are the batch's tensors in their order, without a last one that is one too
  // many (the labels), or, of a map, its parts that have the names of forward's arguments.
  at::Tensor forward_inputs(const Batch& batch) override;
  // That of the options, the mean over the batch. Throws DataError for labels that do not fit.
  at::Tensor loss(const at::Tensor& outputs, const at::Tensor& labels) override;

  // With the loss "output", all tensors of the batch are inputs.
  at::Tensor training_step(const Batch& batch) override;
  void validation_step(const Batch& batch) override;
  void test_step(const Batch& batch) override;
  // All outputs: a map where the program gives a dictionary.
  Batch predict_outputs(const Batch& batch) override;

  // Warns, once, of a program that was recorded in evaluation mode.
  void train(bool on = true) override;
  // Its calls and their numbers are always the same.
  bool static_step() const override { return typeid(*this) == typeid(ExportedModule); }
  // The accuracy for the losses of classes, else the loss.
  Monitor monitor() const override;

  // Writes a copy of the file with the weights and buffers as they are now, which torch.export.load reads.
  // Atomic and durable. Throws CheckpointError where the model's dtypes have changed.
  using Module::save;
  void save(const std::filesystem::path& path) const;

 private:
  friend class CompiledPackage;  // which serves its weights
  struct Program;
  std::vector<at::Tensor> inputs_in(const Batch& batch) const;
  at::Tensor step(Stage stage, const Batch& batch);  // the loss, and the metrics
  bool is_loss_output() const { return options_.loss == "output"; }

  ExportedModuleOptions options_;
  std::unique_ptr<Program> program_;
};

}  // namespace kindling
