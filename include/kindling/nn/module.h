#pragma once

#include <torch/nn/module.h>

#include <array>
#include <concepts>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/base/thread_owner.h"
#include "kindling/data/stage.h"
#include "kindling/metrics/logged_values.h"
#include "kindling/metrics/metric.h"
#include "kindling/metrics/progress_board.h"
#include "kindling/nn/trainer_view.h"
#include "kindling/optim/optimizer.h"
#include "kindling/tensors/batch.h"

namespace kindling {

// The optimizers of a model, by name.
using NamedOptimizers = std::map<std::string, std::unique_ptr<Optimizer>, std::less<>>;

// A model and how it learns. Derive from it, write forward() and loss(), and override the steps that differ.
// Create models with std::make_shared. The steps run on the trainer's device, where all tensors of the batch
// already are. They must not read a tensor on the host (no item(), no printing of values), because that makes
// the host wait in every step.
class KINDLING_API Module : public torch::nn::Module {
 public:
  ~Module() override;

  // Computes the outputs of one input [batch, …]. The default throws Error: override this or
  // forward_inputs().
  virtual at::Tensor forward(const at::Tensor& input);
  // Computes the outputs of a batch. The default passes the first tensor of the batch to forward().
  virtual at::Tensor forward_inputs(const Batch& batch);
  // Returns the mean loss over the batch, a scalar. The default throws Error. A mean over something else than
  // the samples calls weighted() for what it returns.
  virtual at::Tensor loss(const at::Tensor& outputs, const at::Tensor& labels);
  // Returns loss() with its weight.
  WeightedLoss weighted_loss(const at::Tensor& outputs, const at::Tensor& labels);
  // Returns the loss and keeps its weight, for loss() and training_step(): return weighted({loss, weight}).
  // The logged means of losses are weighted by it, and so are the parts of a step. Of several calls in a step
  // the last one counts. Does nothing outside of a trainer's loops.
  at::Tensor weighted(const WeightedLoss& loss);
  // For trainers: returns the weight that has been kept since the last call, if there is one.
  at::Tensor take_loss_weight();

  // Returns the scalar to minimise for one batch; the trainer logs it as train_loss. The default returns
  // loss(forward_inputs(batch), labels) and updates the model's metrics.
  virtual at::Tensor training_step(const Batch& batch);
  // Evaluate and log one batch, without gradients and in evaluation mode. The defaults plot val_loss and log
  // test_loss, and update the model's metrics.
  virtual void validation_step(const Batch& batch);
  virtual void test_step(const Batch& batch);
  // Returns what predict() collects for one batch, [batch, …]. The default returns forward_inputs(batch).
  virtual at::Tensor predict_step(const Batch& batch);
  // Returns several outputs of one batch, for the predict() that takes a function. The default returns the
  // result of predict_step() alone.
  virtual Batch predict_outputs(const Batch& batch) { return Batch::leaf(predict_step(batch)); }

  // True if training_step() calls the same operators with the same host numbers in every step, independent
  // of the batch's values and of the progress. Such steps may be captured and replayed, and a replay does
  // not call training_step() (TrainerOptions::step_graph). Batches of other shapes are captured separately.
  // Call changed() after a change of what training_step() reads, if it is neither a parameter, a buffer, a
  // layer, nor an option of one of LibTorch's layers: a number in a member of your class, a function.
  virtual bool has_static_graph() const { return static_step(); }
  virtual bool static_step() const { return false; }  // deprecated: override has_static_graph()

  // Tells trainers that the next steps differ from the former ones: captured steps are captured again.
  void changed() noexcept { ++num_changes_; }
  std::int64_t num_changes() const noexcept { return num_changes_; }

  // Returns the optimizer to use if neither the trainer's options nor the config name one. The default
  // returns nullptr: Adam with lr 1e-3.
  virtual std::unique_ptr<Optimizer> configure_optimizers();
  // True for a model whose training_step() runs the updates of its own optimizers: see ManualModule, which
  // overrides both. The default has none.
  virtual bool updates_manually() const { return false; }
  virtual NamedOptimizers configure_named_optimizers() { return {}; }

  // True if loss() is now a weighted mean over the batch, such as one with class weights. If a step then adds
  // up several losses, fits refuse one without a weight, see weighted().
  virtual bool has_weighted_loss() const { return false; }

  // True if the outputs estimate the labels, numbers of the same shape: validation_report() then has
  // residuals.
  virtual bool is_regressor() const { return false; }
  // Of a regressor of fields: the dimensions of space of its outputs [batch, channels, …] or [batch, …]. The
  // report has maps of up to two.
  virtual std::int64_t space_dims() const { return 2; }

  // Logs a scalar of a step, on any device, without reading it. The trainer writes it to its log on the
  // device and reports the mean over the epoch, weighted by the number of samples unless a weight is given.
  // Does nothing outside of a trainer's loops. A name that is logged in both training and validation
  // appears as <name> and val_<name>.
  void log(std::string_view name, const at::Tensor& value, ValueOptions options = {}) const;
  void log(std::string_view name, double value, ValueOptions options = {}) const;
  // The same for a mean with the weight of a batch, both on any device, such as weighted_loss().
  void log(std::string_view name, const WeightedLoss& value) const;

  // Adds a metric that the default steps update, logged as train_<name>, val_<name> (also plotted) and
  // test_<name>. Replaces an earlier metric of that name.
  void add_metric(std::string name, std::shared_ptr<const Metric> metric);
  // Returns the metric whose values are logged under this name ("val_acc"), or nullptr.
  std::shared_ptr<const Metric> metric_of(std::string_view logged_name) const;
  using Stage = kindling::Stage;
  // Adds a batch to all metrics of the model, or to the one with the given name, for steps that replace the
  // default ones. `weights`: of the samples, [batch]. Throws ConfigError for an unknown name and for
  // Stage::predict.
  void measure(Stage stage, const at::Tensor& outputs, const at::Tensor& labels,
               const at::Tensor& weights = {});
  void measure(Stage stage, std::string_view metric, const at::Tensor& outputs, const at::Tensor& labels,
               const at::Tensor& weights = {});

  // The logged value that measures the model's quality: it is shown, and selects the best checkpoint.
  struct Monitor {
    std::string name = "val_loss";
    bool higher_is_better = false;
  };
  virtual Monitor monitor() const { return {}; }  // default: the validation loss

  // Logs a scalar of a training or validation step as train_<key> or val_<key>, and plots it on the board,
  // next to train_loss, which is always plotted. The points come from the log that the epoch copies to the
  // host anyway, so plotting adds no copy and no wait. x is in epochs: epoch + batch_index /
  // num_train_batches for a training batch, epoch + 1 for a validation. Sanity checks and evaluations
  // outside of fit are not plotted.
  void plot(std::string_view key, const at::Tensor& value, bool train);
  void plot(std::string_view key, const WeightedLoss& value, bool train);
  bool is_plotted(std::string_view name) const;
  // Points per epoch of each curve, each the mean over equally many batches; 0: none.
  std::int64_t plot_train_per_epoch = 2, plot_valid_per_epoch = 1;
  // The board of the plots. Trainer::prepare_model() clears it and sets xlim to {0, max_epochs}. Copies of a
  // model share it.
  ProgressBoard& board();

  // Creates the parameters of lazy layers by a forward of the inputs, a batch on the model's device, then
  // applies `init` to every layer.
  void apply_init(const Batch& inputs, const std::function<void(torch::nn::Module&)>& init = {});

  // Returns the names in registration order, including the parameters that lazy layers will create.
  std::vector<std::string> parameter_names();

  // Freezes a layer of the model until unfreeze(): its parameters get no gradients, and train() leaves it in
  // evaluation mode, so running statistics stay as they are. Lazy layers create their parameters frozen.
  // Throws Error if the layer does not belong to the model.
  void freeze(torch::nn::Module& layer);
  // Freezes all parameters whose names match one of the patterns (name_pattern.h), such as "net.0.*", and,
  // as a whole, each layer whose parameters all match. For layers without parameters, such as batch norm
  // without affine, the names of buffers count. Throws ConfigError for a pattern without a match; nothing
  // is frozen then.
  void freeze_by_name(const std::vector<std::string>& patterns);
  // Unfreezes a layer, also one inside a larger frozen layer.
  void unfreeze(torch::nn::Module& layer);
  // Undoes freeze_by_name(): unfreezes the parameters whose names match, and each layer whose parameters all
  // match. Throws ConfigError for a pattern without a match; nothing is unfrozen then.
  void unfreeze_by_name(const std::vector<std::string>& patterns);
  // The names of layers that are frozen as a whole. Checkpoints contain them.
  const std::set<std::string>& frozen_layers() const noexcept { return frozen_; }
  void train(bool on = true) override;

  // Gives a one-line compiler error where a model is passed to a trainer by value instead of as a pointer.
  template <std::same_as<Module> T>
  operator std::shared_ptr<T>() const {
    static_assert(sizeof(T) == 0, "pass the model as a pointer: auto model = std::make_shared<MyModel>()");
  }

  // The model's view of its trainer; set by Trainer::prepare_model().
  const TrainerView& trainer() const noexcept { return view_; }
  void set_trainer(TrainerView view) { view_ = std::move(view); }
  ThreadOwner& thread_owner() noexcept { return thread_owner_; }  // for trainers: one at a time uses a model

 protected:
  // Keeps how many class numbers are not ignored, for the metrics of the same labels in this step.
  void keep_num_labels(const at::Tensor& labels, const at::Tensor& number);
  // Says that a NaN among these outputs makes this loss NaN. If it is the loss of the default
  // training_step(), and the run checks losses, its metrics need not look for NaN.
  void keep_loss(const at::Tensor& outputs, const at::Tensor& loss);

 private:
  // Facts that the loss and the metrics of a step have found out; cleared at the end of the step.
  struct LossFacts {
    at::Tensor weight, labels, num_labels;
    at::Tensor loss{}, outputs_of_loss{};  // see keep_loss()
    bool shows_nan = false;                // the step has this loss
    at::Tensor counted_outputs{};          // those whose rows with NaN have been counted
  };
  struct NamedMetric {
    std::shared_ptr<const Metric> metric;
    std::string name;
    std::array<std::string, 3> logged_as;  // by stage
  };

  void measure(Stage stage, const NamedMetric& by, const at::Tensor& outputs, const at::Tensor& labels,
               const at::Tensor& weights);
  void count_nan_rows(Stage stage, const Metric& metric, const at::Tensor& outputs, const at::Tensor& labels);
  std::string plotted_name(std::string_view key, bool train);
  std::string name_of(const torch::nn::Module& layer) const;
  void set_frozen(const std::vector<std::string>& patterns, bool frozen, const char* caller);

  TrainerView view_;
  ThreadOwner thread_owner_;
  std::set<std::string> frozen_;
  LossFacts facts_;
  bool is_weighing_ = false;  // weighted_loss() is running
  std::int64_t num_changes_ = 0;
  std::vector<NamedMetric> metrics_;
  std::vector<std::string> plotted_{"train_loss"};
  std::shared_ptr<ProgressBoard> board_;
};

}  // namespace kindling
