// A user's own callback can average weights and save a run as the shipped ones do, without the core knowing
// its class; checkpoints name callbacks by a stable name.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <optional>
#include <typeinfo>

#include "kindling/base/error.h"
#include "kindling/training/averaged_weights.h"
#include "kindling/training/early_stopping.h"
#include "kindling/training/exponential_moving_average.h"
#include "training/loop/small_fit.h"

namespace kindling {
namespace {

double number(const at::Tensor& tensor) { return tensor.detach().item<double>(); }

// Keeps the weights of the first step of a run; derives from nothing that is shipped.
class FirstWeights : public Callback, public WeightAveraging {
 public:
  WeightAveraging* averaging() noexcept override { return this; }
  std::string type_name() const override { return "FirstWeights"; }

  void after_step(Trainer&, Module& model) override {
    if (!first.defined()) first = model.parameters().at(0).detach().clone();
  }
  void after_epoch(Trainer&, Module&) override { ++num_epochs; }
  bool evaluates() const noexcept override { return true; }
  bool apply(Trainer& trainer) override {
    if (!first.defined() || own.defined()) return false;
    weight = trainer.model()->parameters().at(0);
    own = weight.detach().clone();
    weight.detach().copy_(first);
    return true;
  }
  void restore() override {
    weight.detach().copy_(own);
    own.reset();
  }
  bool is_applied() const noexcept override { return own.defined(); }
  void put_own_values(StateDict& model_state) const override {
    if (own.defined()) model_state.tensors.at(0).second = own;
  }
  std::string averages_prefix() const override { return first.defined() ? "first." : ""; }
  void save_state(StateDict& state) const override {
    if (first.defined()) state.tensors.emplace_back("first.weight", first);
  }

  at::Tensor first, own, weight;
  int num_epochs = 0;
};

// Takes the state of the run when it is asked to, and notes the order of calls.
class MemorySaver : public Callback, public TrainingSaver {
 public:
  explicit MemorySaver(std::vector<std::string>& order) : order_(order) {}
  TrainingSaver* saver() noexcept override { return this; }
  std::filesystem::path best() const override { return "memory"; }
  void on_train_batch_end(Trainer& trainer, Module&) override {
    order_.push_back("saver");
    saved = trainer.state_dict();
  }
  void on_validation_end(Trainer& trainer, Module& model) override {
    saved_in_validation = trainer.state_dict();
    weight_in_validation = number(model.parameters().at(0));
  }
  void on_fit_end(Trainer&, Module&, const FitResult&) override { order_.push_back("saver"); }

  std::optional<StateDict> saved, saved_in_validation;
  double weight_in_validation = 0;

 private:
  std::vector<std::string>& order_;
};

class OrderNote : public Callback {
 public:
  explicit OrderNote(std::vector<std::string>& order) : order_(order) {}
  void on_train_batch_end(Trainer&, Module&) override { order_.push_back("other"); }
  void on_fit_end(Trainer&, Module&, const FitResult&) override { order_.push_back("other"); }

 private:
  std::vector<std::string>& order_;
};

TrainerOptions slope_options(std::vector<std::shared_ptr<Callback>> callbacks) {
  return {
      .max_epochs = 1, .num_sanity_val_steps = 0, .optimizer = sgd(0.01), .callbacks = std::move(callbacks)};
}

TEST(CallbackRoles, LetUserDefinedAveragesBeValidatedAndSaved) {
  std::vector<std::string> order;
  const auto averages = std::make_shared<FirstWeights>();
  const auto saver = std::make_shared<MemorySaver>(order);
  const auto model = std::make_shared<Slope>();
  TensorData data = ramp(8, 2, 2);
  Trainer(slope_options({saver, averages})).fit(model, data);
  EXPECT_EQ(averages->num_epochs, 1);
  EXPECT_EQ(saver->weight_in_validation, number(averages->first));
  EXPECT_NE(number(model->weight), number(averages->first));
  ASSERT_TRUE(saver->saved_in_validation);  // the model's own weights, and where the averages are
  EXPECT_EQ(number(*saver->saved_in_validation->find("model.weight")), number(model->weight));
  EXPECT_EQ(saver->saved_in_validation->metadata.at("averages"), "callback.0.first.");
  EXPECT_EQ(number(*saver->saved_in_validation->find("callback.0.first.weight")), number(averages->first));
}

TEST(CallbackRoles, CallSaversAfterTheOthersAndFirstAtTheEnd) {
  std::vector<std::string> order;
  TensorData data = ramp(2, 0, 2);
  const auto saver = std::make_shared<MemorySaver>(order);
  const FitResult result = Trainer(slope_options({saver, std::make_shared<OrderNote>(order)}))
                               .fit(std::make_shared<Slope>(), data);
  EXPECT_EQ(order, (std::vector<std::string>{"other", "saver", "saver", "other"}));
  EXPECT_EQ(result.best_checkpoint, "memory");
  ASSERT_TRUE(saver->saved);
  EXPECT_FALSE(saver->saved->metadata.contains("callback_type.0"));  // a saver has no state of its own
}

// A shipped average and a user's cannot both be in the model.
TEST(CallbackRoles, RefuseASecondEvaluatedAverage) {
  TensorData data = ramp(2, 0, 2);
  Trainer trainer(slope_options({std::make_shared<FirstWeights>(), std::make_shared<ExponentialMovingAverage>(
                                                                       ExponentialMovingAverageOptions{})}));
  try {
    trainer.fit(std::make_shared<Slope>(), data);
    FAIL() << "two averages were accepted";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("also set for FirstWeights"), std::string::npos) << error.what();
  }
}

TEST(CallbackTypes, AreSavedByAStableNameAndLoadedByTheFormerOne) {
  const auto run = [](std::optional<std::string> saved_type) {
    const auto stopping =
        std::make_shared<EarlyStopping>(EarlyStoppingOptions{.monitor = "train_loss", .mode = "min"});
    TensorData data = ramp(8, 2, 2);
    Trainer trainer(slope_options({stopping}));
    trainer.prepare_data(data);
    trainer.prepare_model(std::make_shared<Slope>());
    trainer.fit_epoch();
    StateDict state = trainer.state_dict();
    EXPECT_EQ(state.metadata.at("callback_type.0"), "EarlyStopping");
    if (saved_type) state.metadata["callback_type.0"] = *saved_type;
    trainer.prepare_model(std::make_shared<Slope>());
    trainer.load_state_dict(state);
  };
  run(std::nullopt);
  run(typeid(EarlyStopping).name());  // what earlier versions have saved
  EXPECT_THROW(run("ExponentialMovingAverage"), CheckpointError);
}

}  // namespace
}  // namespace kindling
