#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <typeinfo>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/config/options.h"
#include "kindling/nn/class_loss.h"
#include "kindling/nn/module.h"

namespace kindling {

struct ExportedModuleOptions {
  std::filesystem::path file{};        // written by torch.export.save
  std::string loss = "cross_entropy";  // "output": the program's first output is the loss
  std::filesystem::path eval_file{};  // the same model exported after model.eval(); empty: see ExportedModule
  bool ignore_missing = false;        // for losses of numbers: labels that are NaN do not count

  static constexpr auto fields = kindling::fields(
      kindling::field(
          "file", &ExportedModuleOptions::file,
          {.doc = "a .pt2 file written by torch.export.save in Python", .example = "\"model.pt2\""}),
      kindling::field("eval_file", &ExportedModuleOptions::eval_file,
                      {.doc = "the same model exported after model.eval(), for validation, test, predict and "
                              "export; empty: the second program of file if kindling.export() wrote it, else "
                              "file",
                       .example = "\"eval.pt2\""}),
      kindling::field("loss", &ExportedModuleOptions::loss,
                      {.doc = "loss of the first output and the labels; output: the first output is the loss",
                       .choices = "cross_entropy|nll|mse|l1|smooth_l1|huber|bce_with_logits|output"}),
      kindling::field("ignore_missing", &ExportedModuleOptions::ignore_missing,
                      {.doc = "targets that are NaN, missing values, do not count in the losses mse, l1, "
                              "smooth_l1 and huber, and in metrics"}));
};

// The batch sizes that a program takes.
struct BatchSizes {
  std::int64_t min = 1;
  std::optional<std::int64_t> max{};
  std::int64_t multiple_of = 1;

  bool are_any() const noexcept { return min == 1 && !max && multiple_of == 1; }
};

// A model exported from Python (torch.export.save, PyTorch 2.7 to 2.15), with its weights under Python's
// names. It is trained, validated, saved and resumed like a model written in C++. It calls the same operators
// in the same order, so losses and weights match Python's. Only operators on a list of dense ATen operators
// are executed; pickled objects in the file are not read.
//
// Layers such as dropout and batch norm keep the behaviour they were exported with: export a program for
// training in training mode (model.train()). In evaluation mode they do not drop and use their running
// statistics, as layers of Python do after model.eval(). A program exported in evaluation mode behaves
// that way in training too, and logs a warning. Programs have no other modes: to evaluate a model whose code
// depends on the mode in another way, such as stochastic depth, write the file with kindling.export() of the
// Python package, which adds a program for evaluation, or export the model a second time after model.eval()
// and give that file as eval_file. Tensors that the program itself modifies, such as counters and averages,
// keep their values in evaluation mode.
class KINDLING_API ExportedModule : public Module, public ClassLossModel {
 public:
  // Throws CheckpointError for a file that is damaged, was not written by torch.export.save, or has a program
  // that cannot be trained: control flow, unlisted operators, programs decomposed in training mode. Throws it
  // also for an eval_file whose parameters, buffers or number of inputs differ.
  explicit ExportedModule(ExportedModuleOptions options);
  ~ExportedModule() override;

  // Returns the program's tensor outputs in order. The inputs are on the model's device and have the shapes
  // and dtypes of the export; throws DataError for others, and for dynamic sizes out of their range. In
  // evaluation, a program with a fixed batch size takes batches of other sizes in parts, and rows of the
  // batch fill the last one. Throws DataError if its outputs are not one row per sample, or if rows that fill
  // a part change outputs of others: a part that is filled runs twice, and waits for the device.
  std::vector<at::Tensor> run(std::span<const at::Tensor> inputs);
  // Returns the number of inputs of the program, without labels; with the loss "output", with them.
  std::size_t num_inputs() const;
  // True for the loss "output": the program computes the loss itself, and labels are among its inputs.
  bool is_loss_output() const { return options_.loss == "output"; }
  // Returns the batch size that the program for training or for evaluation was exported for; none if it takes
  // several.
  std::optional<std::int64_t> fixed_batch_size(bool train) const;
  // Returns the batch sizes that this program takes; none if it takes one, or if they are unknown.
  std::optional<BatchSizes> batch_sizes(bool train) const;
  // Returns the first output of a program with one input.
  at::Tensor forward(const at::Tensor& input) override;
  // Returns the first output. The inputs are the batch's tensors in order, without the last one if there is
  // one too many (the labels); of a map, the entries that are named like forward's arguments.
  at::Tensor forward_inputs(const Batch& batch) override;
  // Returns the loss chosen by the options, the mean over the labels that count. Throws DataError for labels
  // that do not fit.
  at::Tensor loss(const at::Tensor& outputs, const at::Tensor& labels) override;
  // The losses cross_entropy and nll have label_smoothing, focal_gamma and class weights, bce_with_logits has
  // focal_gamma and pos_weight, and all losses but "output" have ignore_index. Others throw ConfigError.
  void set_loss_options(const ClassLossOptions& options) override;
  void set_class_weights(const at::Tensor& weights) override;
  bool has_weighted_loss() const override { return class_weights().defined(); }

  // With the loss "output", all tensors of the batch are inputs.
  at::Tensor training_step(const Batch& batch) override;
  void validation_step(const Batch& batch) override;
  void test_step(const Batch& batch) override;
  // Returns the first output; with the loss "output" the second one, because the first is the loss. Throws
  // DataError if there is none.
  at::Tensor predict_step(const Batch& batch) override;
  // Returns all outputs without the loss, nested as in Python: a map if the program returns a dictionary.
  Batch predict_outputs(const Batch& batch) override;
  // Returns the outputs that export_program() writes: all, nested as in Python. With the loss "output", the
  // loss is omitted in evaluation mode if there are others.
  Batch export_outputs(const Batch& batch);

  // Warns once if the program was exported in evaluation mode, and if it draws random numbers in evaluation.
  void train(bool on = true) override;
  // True except for derived classes: the operators and their host numbers are the same in every step.
  bool static_step() const override { return typeid(*this) == typeid(ExportedModule); }
  // True for the losses mse, l1, smooth_l1 and huber.
  bool is_regressor() const override {
    return options_.loss == "mse" || options_.loss == "l1" || options_.loss == "smooth_l1" ||
           options_.loss == "huber";
  }
  // True for the losses cross_entropy and nll, whose outputs have a value for each class.
  bool has_class_outputs() const { return options_.loss == "cross_entropy" || options_.loss == "nll"; }
  // Returns the accuracy for classification losses, else the loss.
  Monitor monitor() const override;

  // Writes a copy of the file with the current weights and buffers, which torch.export.load reads; a program
  // for evaluation in the file is in the copy, too. Atomic and
  // durable. Throws CheckpointError if the model's dtypes have changed.
  using Module::save;
  void save(const std::filesystem::path& path) const;

 private:
  friend class CompiledPackage;  // runs with its weights
  struct Program;
  std::vector<at::Tensor> inputs_in(const Batch& batch) const;
  std::vector<at::Tensor> outputs_without_loss(const Batch& batch);
  at::Tensor step(Stage stage, const Batch& batch);  // returns the loss and updates the metrics
  Batch nested(std::vector<at::Tensor> outputs, bool drops_first) const;
  bool uses_evaluation_program() const;
  std::vector<at::Tensor> run_program(std::span<const at::Tensor> inputs);
  std::vector<at::Tensor> run_by_rows(std::span<const at::Tensor> inputs, std::int64_t fixed);
  void check_filled(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& others,
                    std::int64_t samples);

  ExportedModuleOptions options_;
  std::unique_ptr<Program> program_;
};

}  // namespace kindling
