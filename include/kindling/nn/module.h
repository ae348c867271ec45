#pragma once

#include <torch/nn/module.h>

#include <array>
#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/data/stage.h"
#include "kindling/metrics/metric.h"
#include "kindling/metrics/progress_board.h"
#include "kindling/nn/trainer_view.h"
#include "kindling/optim/optimizer.h"
#include "kindling/tensors/batch.h"

namespace kindling {

// A model and how it learns: derive, write forward() and loss(), and override the steps that differ. Make it
// with std::make_shared. The steps run on the device of the trainer, with every tensor of the batch already
// there, and must not read a tensor on the host (no item(), no printing of values): that would make the host
// wait in every step.
class KINDLING_API Module : public torch::nn::Module {
 public:
  ~Module() override;

  // One input [batch, …] → outputs. The default throws Error: a model overrides this or forward_inputs().
  virtual at::Tensor forward(const at::Tensor& input);
  // The inputs of a batch → outputs. The default gives the first tensor of the batch to forward().
  virtual at::Tensor forward_inputs(const Batch& batch);
  // Scalar loss, the mean over the batch. The default throws Error.
  virtual at::Tensor loss(const at::Tensor& outputs, const at::Tensor& labels);

  // One batch → the scalar to minimise; the trainer logs it as train_loss. Default:
  // loss(forward_inputs(batch), labels), and the model's metrics.
  virtual at::Tensor training_step(const Batch& batch);
  // One batch, without gradients, in evaluation mode; logs what is to be seen. Defaults: plot the loss as
  // val_loss; log test_loss; both with the model's metrics.
  virtual void validation_step(const Batch& batch);
  virtual void test_step(const Batch& batch);
  // One batch → what predict() collects, [batch, …]. Default: forward_inputs(batch).
  virtual at::Tensor predict_step(const Batch& batch);
  // One batch → several outputs, for predict() batch by batch. Default: what predict_step gives, alone.
  virtual Batch predict_outputs(const Batch& batch) { return Batch::leaf(predict_step(batch)); }

  // Whether training_step() calls the same operators with the same host numbers in every step, whatever the
  // batch contains and however far the run is. Then it may be captured and replayed, and a replay does not
  // call it (TrainerOptions::step_graph). Batches of other shapes are captured separately.
  virtual bool has_static_graph() const { return static_step(); }
  virtual bool static_step() const { return false; }  // deprecated: override has_static_graph()

  // Used when neither the trainer's options nor the config name an optimizer. The default, nullptr, means
  // Adam with lr 1e-3.
  virtual std::unique_ptr<Optimizer> configure_optimizers();

  // Logs one number of a step, on any device, without reading it: the trainer writes it into its log on the
  // device and reports the mean over the epoch, weighted by the samples of the batches unless a weight is
  // given. Outside of a trainer's loops nothing happens. A name that is logged in training and in validation
  // appears twice, the second time as val_<name>.
  void log(std::string_view name, const at::Tensor& value, ValueOptions options = {}) const;
  void log(std::string_view name, double value, ValueOptions options = {}) const;

  // Has the default steps measure a metric: as train_<name>, val_<name> (which is drawn) and test_<name>. A
  // second one of this name replaces the first.
  void add_metric(std::string name, std::shared_ptr<const Metric> metric);
  // The metric whose values are logged under this name ("val_acc"); nullptr: none.
  std::shared_ptr<const Metric> metric_of(std::string_view logged_name) const;
  // Adds a batch to the model's metrics, for steps of one's own: to all, or to the one of a name. Throws
  // ConfigError for a name that no metric has and for Stage::predict. Samples may have weights, [batch].
  using Stage = kindling::Stage;
  void measure(Stage stage, const at::Tensor& outputs, const at::Tensor& labels,
               const at::Tensor& weights = {});
  void measure(Stage stage, std::string_view metric, const at::Tensor& outputs, const at::Tensor& labels,
               const at::Tensor& weights = {});

  // The value that tells how good the model is, for screens, stopping and keeping the best. Default: the
  // validation loss.
  struct Monitor {
    std::string name = "val_loss";
    bool higher_is_better = false;
  };
  virtual Monitor monitor() const { return {}; }

  // Logs one number of a training or validation step as train_<key> or val_<key>, and has the trainer draw
  // that name on the board, where train_loss always is. Drawn is what the epoch's log brings to the host
  // anyway: a plot costs no copy and no wait. x counts epochs: epoch + batch_index / num_train_batches for a
  // training batch, epoch + 1 for a validation. Sanity checks and evaluations outside of fit are not drawn.
  void plot(std::string_view key, const at::Tensor& value, bool train);
  bool is_plotted(std::string_view name) const;
  // Points that an epoch gives to each curve, means over equally many batches; 0: none.
  std::int64_t plot_train_per_epoch = 2, plot_valid_per_epoch = 1;
  // Begun anew, with xlim from 0 to max_epochs, by Trainer::prepare_model. Copies of a model share it.
  ProgressBoard& board();

  // Gives lazy layers their parameters by a dry run of the inputs (on the model's device; a whole batch
  // serves as well), without gradients and in evaluation mode, then applies `init` to every layer.
  void apply_init(const Batch& inputs, const std::function<void(torch::nn::Module&)>& init = {});

  // As they are registered, with those that lazy layers are going to have.
  std::vector<std::string> parameter_names();

  // Makes a part of the model stay as it is: its parameters get no gradients, and it is in evaluation mode
  // (running statistics do not move) whenever the model is put into training mode, until unfreeze(). Lazy
  // layers without parameters make theirs frozen. Throws Error for what is not a part of the model.
  void freeze(torch::nn::Module& layer);
  // The same by names: parameters that fit one of the patterns (name_pattern.h), "net.0.*", get no gradients,
  // and a part all of whose parameters fit is frozen as a whole. A layer without parameters goes by its
  // buffers, as batch norm may. Throws ConfigError for a pattern that fits nothing; then nothing is frozen.
  void freeze_by_name(const std::vector<std::string>& patterns);
  // The part learns again; also of a larger part that was frozen.
  void unfreeze(torch::nn::Module& layer);
  // The names of the parts that are frozen, with all that is in them; a saved training knows them.
  const std::set<std::string>& frozen_layers() const noexcept { return frozen_; }
  void train(bool on = true) override;

  // For a message of one line where a model that is no shared_ptr is given to a trainer.
  template <std::same_as<Module> T>
  operator std::shared_ptr<T>() const {
    static_assert(sizeof(T) == 0, "a model is given as a pointer: auto model = std::make_shared<MyModel>()");
  }

  // What can be seen of the trainer; set by Trainer::prepare_model.
  const TrainerView& trainer() const noexcept { return view_; }
  void set_trainer(TrainerView view) { view_ = std::move(view); }

 private:
  struct NamedMetric {
    std::shared_ptr<const Metric> metric;
    std::string name;
    std::array<std::string, 3> logged_as;  // by stage
  };

  void measure(Stage stage, const NamedMetric& by, const at::Tensor& outputs, const at::Tensor& labels,
               const at::Tensor& weights);
  std::string name_of(const torch::nn::Module& layer) const;

  TrainerView view_;
  std::set<std::string> frozen_;
  std::vector<NamedMetric> metrics_;
  std::vector<std::string> plotted_{"train_loss"};
  std::shared_ptr<ProgressBoard> board_;
};

}  // namespace kindling
