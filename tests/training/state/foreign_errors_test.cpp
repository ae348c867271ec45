// Errors of other libraries: LibTorch's are translated at every entry point of the Trainer, a user's pass
// unchanged, and after either the Trainer and the model can be used again.
#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>

#include <functional>
#include <stdexcept>

#include "kindling/base/error.h"
#include "kindling/nn/classifier.h"
#include "support/device_under_test.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"
#include "training/loop/small_fit.h"

namespace kindling {
namespace {

struct OwnError : std::domain_error {
  OwnError() : std::domain_error("the user's own"), code(42) {}
  int code;
};

using Fault = std::function<void()>;
void libtorch_fault() { TORCH_CHECK(false, "planted"); }
void own_fault() { throw OwnError(); }

// Where a fault is planted, and whether it is still to happen.
struct Plant {
  std::string place;
  Fault fault;

  void reach(const char* here) const {
    if (fault && place == here) fault();
  }
};

class PlantedModel : public Slope {
 public:
  explicit PlantedModel(const Plant& plant) : plant_(plant) {}
  at::Tensor forward(const at::Tensor& x) override {
    plant_.reach("forward");
    return Slope::forward(x);
  }
  at::Tensor loss(const at::Tensor& y, const at::Tensor& labels) override {
    plant_.reach("loss");
    if (trainer()) log("logged", y.detach().mean());
    return Slope::loss(y, labels);
  }
  at::Tensor predict_step(const Batch& batch) override {
    plant_.reach("predict_step");
    return Slope::predict_step(batch);
  }
  std::unique_ptr<Optimizer> configure_optimizers() override {
    plant_.reach("configure_optimizers");
    return sgd(0.01)({weight});
  }

 private:
  const Plant& plant_;
};

class PlantedData : public TensorData {
 public:
  explicit PlantedData(const Plant& plant) : TensorData(ramp(6, 4, 2)), plant_(plant) {}
  void prepare_data() override { plant_.reach("prepare_data"); }
  std::shared_ptr<DataLoader> train_dataloader() override {
    plant_.reach("train_dataloader");
    return TensorData::train_dataloader();
  }
  std::shared_ptr<DataLoader> val_dataloader() override {
    plant_.reach("val_dataloader");
    return TensorData::val_dataloader();
  }
  Batch on_after_batch_transfer(Batch batch) override {
    plant_.reach("on_after_batch_transfer");
    return batch;
  }

 private:
  const Plant& plant_;
};

class PlantedCallback : public Callback, public Logger {
 public:
  explicit PlantedCallback(const Plant& plant) : plant_(plant) {}
  void on_fit_start(Trainer&, Module&) override { plant_.reach("on_fit_start"); }
  void on_train_epoch_start(Trainer&, Module&) override { plant_.reach("on_train_epoch_start"); }
  void on_train_batch_end(Trainer&, Module&) override { plant_.reach("on_train_batch_end"); }
  void on_epoch_end(Trainer&, Module&, const Record&) override { plant_.reach("on_epoch_end"); }
  void on_fit_end(Trainer&, Module&, const FitResult&) override { plant_.reach("on_fit_end"); }
  void write(const Record& record) override {
    plant_.reach("write");
    records.push_back(record);
  }
  void finish() override { plant_.reach("finish"); }

  std::vector<Record> records;

 private:
  const Plant& plant_;
};

// A trainer, a model and data with a fault planted somewhere.
struct Planted {
  Planted(std::string place, Fault fault, std::int64_t num_gpus)
      : plant{std::move(place), std::move(fault)},
        trainer({.max_epochs = 2,
                 .num_gpus = num_gpus,
                 .log_every_n_steps = 1,
                 .schedule =
                     [this](const SchedulePoint& at) {
                       plant.reach("schedule");
                       return at.base_lr;
                     },
                 .callbacks = {callback},
                 .loggers = {callback}}) {}

  FitResult fit() { return trainer.fit(model, data); }

  Plant plant;
  std::shared_ptr<PlantedModel> model = std::make_shared<PlantedModel>(plant);
  PlantedData data{plant};
  std::shared_ptr<PlantedCallback> callback = std::make_shared<PlantedCallback>(plant);
  Trainer trainer;
};

// The text of an error of Kindling with the planted one of LibTorch nested in it; says so when it is another.
std::string translated(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    try {
      std::rethrow_if_nested(error);
    } catch (const c10::Error& nested) {
      const bool is_ours = std::string(nested.what_without_backtrace()).find("planted") != std::string::npos;
      return is_ours ? error.what() : "another error is nested";
    }
    return "nothing is nested";
  }
  return "no error";
}

const char* const kPlacesOfAFit[] = {"forward",
                                     "loss",
                                     "configure_optimizers",
                                     "schedule",
                                     "prepare_data",
                                     "val_dataloader",
                                     "train_dataloader",
                                     "on_after_batch_transfer",
                                     "on_fit_start",
                                     "on_fit_end",
                                     "on_train_epoch_start",
                                     "on_train_batch_end",
                                     "on_epoch_end",
                                     "write",
                                     "finish"};

const std::string kOfBatch = " (with a batch of Float [2, 1], Float [2, 1])";

class ForeignErrors : public OnDevice {};

TEST_P(ForeignErrors, OfLibTorchAreTranslatedInAFit) {
  for (const char* place : kPlacesOfAFit) {
    Planted planted(place, libtorch_fault, num_gpus_wanted());
    const std::string text = translated([&] { planted.fit(); });
    const bool is_in_validation = place == std::string("forward") || place == std::string("loss");
    EXPECT_EQ(text, is_in_validation ? "Trainer::fit: planted" + kOfBatch : "Trainer::fit: planted") << place;
  }
}

TEST_P(ForeignErrors, OfUserDefinedTypesPassUnchanged) {
  for (const char* place : kPlacesOfAFit) {
    Planted planted(place, own_fault, num_gpus_wanted());
    try {
      planted.fit();
      ADD_FAILURE() << place << ": no error";
    } catch (const OwnError& error) {
      EXPECT_EQ(error.code, 42);
      EXPECT_STREQ(error.what(), "the user's own");
      EXPECT_EQ(dynamic_cast<const std::nested_exception*>(&error), nullptr);
    }
  }
}

TEST_P(ForeignErrors, AreTranslatedAtEveryOtherEntryPoint) {
  Planted planted("", libtorch_fault, num_gpus_wanted());
  const auto text = [&](const char* place, auto call) {
    planted.plant.place = place;
    return translated([&] { call(planted.trainer); });
  };
  const Batch batch{at::ones({2, 1}), at::ones({2, 1})};
  EXPECT_EQ(text("prepare_data", [&](Trainer& t) { t.test(planted.model, planted.data); }),
            "Trainer::test: planted");
  EXPECT_EQ(text("loss", [&](Trainer& t) { t.validate(planted.model, planted.data); }),
            "Trainer::validate: planted" + kOfBatch);
  EXPECT_EQ(text("predict_step", [&](Trainer& t) { t.predict(planted.model, planted.data); }),
            "Trainer::predict: planted" + kOfBatch);
  planted.trainer.prepare_model(planted.model);
  EXPECT_EQ(text("forward", [&](Trainer& t) { t.train_step(t.prepare_batch(batch)); }),
            "Trainer::train_step: planted");
  planted.plant.place = "";
  planted.trainer.train_step(planted.trainer.prepare_batch(batch));
  EXPECT_EQ(text("schedule", [&](Trainer& t) { t.train_step(t.prepare_batch(batch)); }),
            "Trainer::train_step: planted");
  EXPECT_EQ(text("write", [&](Trainer& t) { t.train_step(t.prepare_batch(batch)); }),
            "Trainer::train_step: planted");
  EXPECT_EQ(text("write", [](Trainer& t) { t.finish_epoch(); }),  // the record that has not been written yet
            "Trainer::finish_epoch: planted");
  EXPECT_EQ(text("val_dataloader", [&](Trainer& t) { t.prepare_data(planted.data); }),
            "Trainer::prepare_data: planted");
  planted.plant.place = "";
  planted.trainer.prepare_data(planted.data);
  planted.trainer.prepare_model(planted.model);
  EXPECT_EQ(text("on_epoch_end", [](Trainer& t) { t.fit_epoch(); }), "Trainer::fit_epoch: planted");
}

// Errors of a GPU before any user code runs.
TEST_P(ForeignErrors, OfAMoveAreTranslated) {
  if (device_.is_cpu()) GTEST_SKIP() << "without a GPU nothing is moved";
  class Heavy : public Slope {
   public:
    using torch::nn::Module::to;
    void to(at::Device, bool) override { libtorch_fault(); }
  };
  Trainer trainer({.max_epochs = 1, .num_gpus = 1});
  EXPECT_EQ(translated([&] { trainer.prepare_model(std::make_shared<Heavy>()); }),
            "Trainer::prepare_model: planted");
  EXPECT_NE(
      error_text<Error>([&] { trainer.prepare_batch(Batch{at::Tensor()}); }).find("Trainer::prepare_batch: "),
      std::string::npos);
}

// The model's and the log's numbers of a fit that nothing disturbed.
void expect_whole_fit(Planted& planted) {
  const std::size_t records_before = planted.callback->records.size();
  const FitResult result = planted.fit();
  EXPECT_EQ(result.status, FitStatus::finished);
  EXPECT_EQ(result.progress.global_step, 6);
  EXPECT_EQ(planted.callback->records.size() - records_before, 8);  // three steps and an epoch, twice
  // Epoch losses are the mean of |w - 2|·x; w grows by 0.01 of the mean x, 0.5, 2.5, 4.5, in each step.
  const auto& records = planted.callback->records;
  EXPECT_NEAR(value_of(records[records_before + 0], "train_loss_step"), 2 * 0.5, 1e-6);
  EXPECT_NEAR(value_of(records[records_before + 4], "train_loss_step"), (2 - 0.075) * 0.5, 1e-6);
  EXPECT_TRUE(close(planted.model->weight, at::full({1}, 0.15F), 1e-6));
}

TEST_P(ForeignErrors, LeaveTrainerAndModelUsable) {
  for (const char* place : kPlacesOfAFit) {
    SCOPED_TRACE(place);
    Planted planted(place, libtorch_fault, num_gpus_wanted());
    EXPECT_THROW(planted.fit(), Error);
    planted.plant.fault = nullptr;
    {
      const at::NoGradGuard no_grad;
      planted.model->weight.zero_();
    }
    expect_whole_fit(planted);
  }
}

TEST_P(ForeignErrors, LeaveNoStopRequest) {
  Planted planted("on_train_batch_end", nullptr, num_gpus_wanted());
  planted.plant.fault = [&] {
    planted.trainer.request_stop();
    own_fault();
  };
  EXPECT_THROW(planted.fit(), OwnError);
  planted.plant.fault = nullptr;
  EXPECT_EQ(planted.fit().status, FitStatus::finished);
}

TEST_P(ForeignErrors, LeaveNoLogHookOrMode) {
  for (const char* place : {"loss", "on_epoch_end", "on_after_batch_transfer"}) {
    SCOPED_TRACE(place);
    Planted planted(place, own_fault, num_gpus_wanted());
    EXPECT_THROW(planted.fit(), OwnError);
    const at::Tensor stray = at::ones({});
    planted.model->log("stray", stray);
    planted.trainer.log("stray", stray);
    EXPECT_EQ(stray.use_count(), 1);  // no log has taken it
    EXPECT_FALSE(at::hasThreadLocalCallbacks());
    EXPECT_TRUE(at::GradMode::is_enabled());
  }
}

// An error of batch norm, after the other batches of the epoch.
TEST_P(ForeignErrors, OfALastBatchOfOneSampleHaveAHint) {
  struct Normed : Slope {
    at::Tensor forward(const at::Tensor& x) override { return norm->forward((x * weight).view({-1, 1})); }
    torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(1));
  };
  TensorData data(ramp(5, 4, 2));
  try {
    Trainer({.max_epochs = 1, .num_gpus = num_gpus_wanted(), .optimizer = sgd(0.01)})
        .fit(std::make_shared<Normed>(), data);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(error.parts().remedy.find("drop_last"), std::string::npos) << error.what();
  }
}

KINDLING_RUN_ON_TRAINER_DEVICES(ForeignErrors);

// Four classes; sample 20 of 24 has the label 9. With a static graph the steps before it are captured.
class FourClasses : public Classifier {
 public:
  explicit FourClasses(bool is_static) : is_static_(is_static) { register_module("net", net_); }
  at::Tensor forward(const at::Tensor& x) override { return net_->forward(x); }
  bool has_static_graph() const override { return is_static_; }

 private:
  bool is_static_;
  torch::nn::Linear net_{2, 4};
};

TEST(LabelOutOfRange, IsNamedWithTheClassesAndTheKey) {
  at::Tensor labels = at::arange(24).remainder(4);
  labels[20] = 9;
  for (const bool is_static : {false, true}) {
    TensorData data({at::ones({24, 2}), labels}, {}, {.batch_size = 2, .shuffle = false});
    Trainer trainer({.max_epochs = 1, .num_gpus = 0});
    const std::string text =
        error_text<DataError>([&] { trainer.fit(std::make_shared<FourClasses>(is_static), data); });
    EXPECT_NE(
        text.find("FourClasses::loss: a label of the data is 9, and the outputs have 4 classes, Float [2, "
                  "4]; expected: labels from 0 to 3, or -100, which is ignored; set num_classes "
                  "(model.num_classes) to 10 or more, or correct the labels"),
        std::string::npos)
        << text;
  }
}

// A model that calls cross-entropy itself.
TEST(LabelOutOfRange, IsAnErrorOfTheDataInOtherModelsToo) {
  class Own : public FourClasses {
   public:
    Own() : FourClasses(false) {}
    at::Tensor loss(const at::Tensor& outputs, const at::Tensor& labels) override {
      return at::cross_entropy_loss(outputs, labels);
    }
  };
  TensorData data({at::ones({2, 2}), at::full({2}, 9)}, {}, {.batch_size = 2});
  Trainer trainer({.max_epochs = 1, .num_gpus = 0});
  EXPECT_EQ(
      error_text<DataError>([&] { trainer.fit(std::make_shared<Own>(), data); }),
      "Trainer::fit: a label of the data is 9, and the outputs have fewer classes; expected: labels from 0 "
      "to one less than there are classes, or -100, which is ignored; raise the model's num_classes "
      "(model.num_classes), or correct the labels");
}

}  // namespace
}  // namespace kindling
