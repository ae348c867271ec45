#include "kindling/data/input_transform.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>

#include <fstream>
#include <string>

#include "kindling/base/error.h"
#include "kindling/data/synthetic_regression.h"
#include "kindling/data/table_data.h"
#include "kindling/models/mlp_regressor.h"
#include "kindling/training/trainer.h"
#include "support/device_under_test.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

class FitOfATable : public OnDevice {
 protected:
  static std::string table(const char* category) {
    std::string text = "x,kind,y\n";
    for (int i = 0; i < 40; ++i)
      text += (i % 9 == 0 ? "" : std::to_string(i % 7)) + "," + (i % 3 == 0 ? category : "a") + "," +
              std::to_string(i % 7 + i % 3) + "\n";
    return text;
  }
  TableDataOptions options(const char* category = "b") {
    const std::string file = scratch_ / (std::string(category) + ".csv");
    std::ofstream(file) << table(category);
    return {.file = file, .target = {"y"}, .val_fraction = 0.25};
  }
  TrainerOptions trainer_options(const std::string& precision = "32-true") const {
    return {.max_epochs = 2, .num_gpus = num_gpus_wanted(), .precision = precision};
  }
  static std::shared_ptr<MlpRegressor> model() {
    return std::make_shared<MlpRegressor>(MlpRegressorOptions{.hidden = {4}});
  }

  const Scratch scratch_;
};

INSTANTIATE_TEST_SUITE_P(Devices, FitOfATable, testing::ValuesIn(trainer_devices_under_test()), DeviceName());

TEST_P(FitOfATable, RegistersTheTransformOfTheData) {
  TableData data(options(), {.batch_size = 8});
  Trainer trainer(trainer_options());
  const auto trained = model();
  trainer.fit(trained, data);
  ASSERT_NE(input_transform_of(*trained), nullptr);
  EXPECT_EQ(input_transform_of(*trained), data.input_transform());
  EXPECT_EQ(trained->buffers().front().device(), device_);
  const std::string file = scratch_ / "weights.safetensors";
  save_safetensors(state_dict_with_transform(*trained), file);

  TableData again(options(), {.batch_size = 8});
  again.restore_input_transform(load_safetensors(file).metadata.at("input_transform"));
  const auto loaded = model();
  set_input_transform(*loaded, again.input_transform());
  load_weights(*loaded, file);
  EXPECT_TRUE(same(trainer.predict(loaded, again), trainer.predict(trained, data)));
}

TEST_P(FitOfATable, KeepsTheTransformInFloat64) {
  TableData data(options(), {.batch_size = 8});
  Trainer trainer(trainer_options("bf16-true"));
  const auto trained = model();
  trainer.fit(trained, data);
  EXPECT_EQ(trained->parameters().front().scalar_type(), at::kBFloat16);
  EXPECT_EQ(state_dict(*trained).find("input_transform.mean")->scalar_type(), at::kDouble);
}

// The file of the data has other rows now, and a run of a former version has float32 statistics.
TEST_P(FitOfATable, ContinuesWithTheSavedStatistics) {
  const auto data_from = [&](double first) {
    const std::string file = scratch_ / "times.csv";
    std::ofstream out(file);
    out << "time,y\n";
    for (int i = 0; i < 40; ++i) out << std::to_string(first + i) << "," << i % 7 << "\n";
    out.close();
    return TableData({.file = file, .target = {"y"}}, {.batch_size = 8});
  };
  for (const bool is_former : {false, true}) {
    TableData data = data_from(1.7e9);
    data.prepare();
    if (is_former) {
      TableSchema former = data.schema();
      former.scales_in_double = false;
      former.features[0].offset.reset();
      ASSERT_TRUE(data.input_transform()->adopt(former.text()));
    }
    Trainer trainer(trainer_options());
    trainer.fit(model(), data);
    const StateDict state = trainer.state_dict();
    TableData later = data_from(1.8e9);
    trainer.prepare_data(later);
    const auto resumed = model();
    trainer.prepare_model(resumed);
    trainer.load_state_dict(state);
    EXPECT_EQ(later.schema().text(), data.schema().text());
    const at::Tensor mean = *state_dict(*resumed).find("input_transform.mean");
    EXPECT_EQ(mean.scalar_type(), is_former ? at::kFloat : at::kDouble);
    EXPECT_TRUE(same(mean.cpu(), state_dict(*data.input_transform()).find("mean")->cpu()));
  }
}

TEST_P(FitOfATable, HasASummaryOfTheModelsLayersOnly) {
  TableData data(options(), {.batch_size = 8});
  Trainer trainer(trainer_options());
  const auto trained = model();
  trainer.fit(trained, data);
  const auto rows = trainer.layer_summary(trained, data);
  for (const LayerRow& row : rows) EXPECT_EQ(row.name.find("input_transform"), std::string::npos);
  ASSERT_FALSE(rows.empty());
  EXPECT_EQ(rows.back().output_shape, (std::vector<std::int64_t>{8, 1}));
}

TEST_P(FitOfATable, ReplacesTheTransformOfOtherData) {
  TableData first(options(), {.batch_size = 8}), second(options("c"), {.batch_size = 8});
  Trainer trainer(trainer_options());
  const auto trained = model(), other = model();
  trainer.fit(trained, first);
  trainer.fit(other, second);
  EXPECT_EQ(input_transform_of(*trained), first.input_transform());
  trainer.fit(trained, second);
  EXPECT_EQ(input_transform_of(*trained), second.input_transform());
}

TEST_P(FitOfATable, RefusesDataWithOtherStatistics) {
  TableData data(options(), {.batch_size = 8}), other(options("c"), {.batch_size = 8});
  Trainer trainer(trainer_options());
  const auto trained = model();
  trainer.fit(trained, data);
  const auto message = [](const auto& call) {
    try {
      call();
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  const std::string text =
      ": the inputs are transformed in another way than those that the model was trained on; expected: the "
      "transform that was saved with the model; call restore_input_transform() before prepare(), then "
      "set_input_transform(), and load the weights";
  EXPECT_EQ(message([&] { trainer.validate(trained, other); }), "Trainer::validate" + text);
  EXPECT_EQ(message([&] { trainer.test(trained, other); }), "Trainer::test" + text);
  EXPECT_EQ(message([&] { trainer.predict(trained, other); }), "Trainer::predict" + text);
  TableData same_data(options(), {.batch_size = 8});  // fits the same statistics
  EXPECT_EQ(message([&] { trainer.test(trained, same_data); }), "no error");
  SyntheticRegression without;
  EXPECT_EQ(message([&] { trainer.fit(trained, without); }),
            "Trainer: the model has the input transform of other data, but these data have none; expected: a "
            "model without a transform; construct a new model, and load the weights into it");
}

// PointNet has such a submodule.
TEST(InputTransformName, IsKeptForASubmoduleOfTheModel) {
  struct Named : torch::nn::Module {
    Named() { layer = register_module("input_transform", torch::nn::BatchNorm1d(2)); }
    torch::nn::BatchNorm1d layer{nullptr};
  };
  struct Nothing : InputTransform {
    at::Tensor forward(const at::Tensor& raw) override { return raw; }
  };
  Named model;
  EXPECT_EQ(input_transform_of(model), nullptr);
  try {
    set_input_transform(model, std::make_shared<Nothing>());
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "input_transform: the model has a submodule of this name that is not an InputTransform; "
                 "expected: another name for the submodule, because the data have an input transform");
  }
  EXPECT_EQ(model.named_children()["input_transform"], model.layer.ptr());
}

TEST_P(FitOfATable, RefusesAStateOfOtherCategories) {
  TableData first(options(), {.batch_size = 8}), second(options("c"), {.batch_size = 8});
  Trainer trainer(trainer_options());
  trainer.fit(model(), first);
  const StateDict state = trainer.state_dict();
  trainer.prepare_data(second);
  trainer.prepare_model(model());
  try {
    trainer.load_state_dict(state);
    FAIL();
  } catch (const CheckpointError& error) {
    EXPECT_STREQ(
        error.what(),
        "the saved model: the training data have other columns, kinds or categories than when it was "
        "saved; expected: the same training data; restore the data and the keys of [data], or start a new "
        "run");
  }
}

}  // namespace
}  // namespace kindling
