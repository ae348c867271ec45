#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "formats/pt2/pt2_file.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/data/array_data.h"
#include "kindling/data/crop_transforms.h"
#include "kindling/data/digits.h"
#include "kindling/data/image_transforms.h"
#include "kindling/data/transformed_data.h"
#include "kindling/interop/export_program.h"
#include "kindling/interop/exported_module.h"
#include "kindling/models/mlp_regressor.h"
#include "kindling/models/softmax_regression.h"
#include "kindling/nn/evaluation_guard.h"
#include "kindling/tensors/state_dict.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

// Digits with names.
class NamedDigits : public Digits {
 public:
  std::vector<std::string> class_names() override { return names; }

  std::vector<std::string> names{"zero", "\"one\"", "2", "3", "4", "5", "6", "7", "8", "9"};
};

// Scales images by a number that the host reads.
struct HostScale : Transform {
  Batch apply(Batch batch, const at::Tensor&) const override {
    batch.tensors()[0] = batch[0] / batch[0].max().item<double>();
    return batch;
  }
};

std::shared_ptr<SoftmaxRegression> initialized_model(DataModule& data) {
  auto model = std::make_shared<SoftmaxRegression>();
  const Batch batch = *data.val_dataloader()->begin();
  model->apply_init(data.on_after_batch_transfer(batch, Stage::predict));
  return model;
}

TEST(ExportTransforms, TakesRawImagesAndReturnsTheValues) {
  const Scratch scratch;
  const auto resize = std::make_shared<Resize>(ResizeOptions{.size = {{5, 6}}});
  const auto scale = std::make_shared<Normalize>(NormalizeOptions{.mean = {0.3}, .std = {0.4}});
  const std::vector<std::shared_ptr<const Transform>> parts{resize, scale};
  TransformedData data(std::make_shared<NamedDigits>(), {.val = std::make_shared<Compose>(parts)});
  const auto model = initialized_model(data);
  const Batch raw = *data.val_dataloader()->begin();
  ASSERT_EQ(raw[0].scalar_type(), at::kByte);
  const EvaluationGuard evaluation(*model);
  const at::Tensor outputs =
      model->forward_inputs(data.on_after_batch_transfer(raw, Stage::predict)).detach();
  const std::map<ExportedValues, at::Tensor> expected{{ExportedValues::outputs, outputs},
                                                      {ExportedValues::probabilities, outputs.softmax(1)},
                                                      {ExportedValues::labels, outputs.argmax(1)}};
  for (const auto& [values, wanted] : expected) {
    export_program(*model, data, {.path = scratch / "a.pt2", .values = values});
    ExportedModule program({.file = scratch / "a.pt2"});
    program.eval();
    const at::Tensor found = program.forward(raw[0]).detach();
    EXPECT_EQ(found.scalar_type(), wanted.scalar_type());
    EXPECT_TRUE(found.equal(wanted)) << static_cast<int>(values);
    const at::Tensor first = program.forward(raw[0].narrow(0, 0, 1)).detach();
    EXPECT_TRUE(first.allclose(wanted.narrow(0, 0, 1), 0, 1e-6)) << static_cast<int>(values);
  }
}

TEST(ExportTransforms, GivesRowsWithNanNoClass) {
  const Scratch scratch;
  at::Tensor x = at::randn({6, 3});
  x[1][2] = x[4][0] = std::nan("");
  const Batch example({x, at::zeros({6}, at::kLong)});
  for (const bool is_multi_label : {false, true}) {
    SoftmaxRegression model({.num_classes = 4});
    if (is_multi_label) model.set_loss_options({.multi_label = true});
    model.apply_init(example);
    export_program(model, example, {.path = scratch / "a.pt2", .values = ExportedValues::labels});
    ExportedModule program({.file = scratch / "a.pt2"});
    program.eval();
    const at::Tensor labels = program.forward(x).view({6, -1});
    const at::Tensor has_none = at::tensor({0, 1, 0, 0, 1, 0}).to(at::kBool).unsqueeze(1).expand_as(labels);
    EXPECT_TRUE(labels.eq(-1).equal(has_none)) << labels;
  }
}

// Arrays of float64 keep the digits of inputs such as Unix time; others become float32 as before.
TEST(ExportTransforms, TakesFloat64OnlyIfFloat32LacksDigits) {
  const Scratch scratch;
  const at::Tensor steps = at::arange(600, at::kDouble).unsqueeze(1);
  for (const double first : {0.0, 1.7e9}) {
    save_safetensors({.tensors = {{"x", steps + first}, {"y", steps}}, .metadata = {}},
                     scratch / "a.safetensors");
    ArrayData data({.file = scratch / "a.safetensors", .normalize = {{first + 299.5, 173.2}}},
                   {.shuffle = false});
    data.prepare();
    MlpRegressor model({.hidden = {4}});
    const Batch raw = *data.train_dataloader()->begin();
    ASSERT_EQ(raw[0].scalar_type(), at::kDouble);
    const Batch batch = data.on_after_batch_transfer(raw, Stage::predict);
    model.apply_init(batch);
    export_program(model, data, {.path = scratch / "a.pt2"});
    ExportedModule program({.file = scratch / "a.pt2"});
    const bool is_coarse = first > 0;
    const at::Tensor rounded = raw[0].to(at::kFloat);
    const at::Tensor found = program.forward(is_coarse ? raw[0] : rounded);
    // float32 holds the steps exactly; outputs are around 1.
    EXPECT_TRUE(close(found, model.forward_inputs(batch), 1e-6));
    if (!is_coarse) continue;
    const std::string text = error_text<DataError>([&] { program.forward(rounded); });
    EXPECT_NE(text.find("of the exported program: it is Float [64, 1]; expected: Double ["),
              std::string::npos)
        << text;
  }
}

TEST(ExportTransforms, StoresTextsAndClassNames) {
  const Scratch scratch;
  NamedDigits data;
  const auto model = initialized_model(data);
  export_program(*model, data, {.path = scratch / "a.pt2", .metadata = {{"version", "7 \u00fc"}}});
  const std::map<std::string, std::string> expected{
      {"class_names", R"(["zero","\"one\"","2","3","4","5","6","7","8","9"])"}, {"version", "7 \u00fc"}};
  EXPECT_EQ(Pt2File(scratch / "a.pt2").extra_files(), expected);
  // A copy with other weights keeps them.
  ExportedModule({.file = scratch / "a.pt2"}).save(scratch / "b.pt2");
  EXPECT_EQ(Pt2File(scratch / "b.pt2").extra_files(), expected);
  export_program(*model, data, {.path = scratch / "c.pt2", .metadata = {{"class_names", "mine"}}});
  EXPECT_EQ(Pt2File(scratch / "c.pt2").extra_files().at("class_names"), "mine");
  Digits unnamed;
  export_program(*model, unnamed, {.path = scratch / "d.pt2"});
  EXPECT_TRUE(Pt2File(scratch / "d.pt2").extra_files().empty());
}

TEST(ExportTransforms, RefusesNamesOfOtherClasses) {
  const Scratch scratch;
  NamedDigits data;
  const auto model = initialized_model(data);
  data.names.emplace_back("10");
  const std::string text =
      error_text<ConfigError>([&] { export_program(*model, data, {.path = scratch / "a.pt2"}); });
  EXPECT_NE(text.find("the data has the names of 11 classes, and the model has 10 outputs"),
            std::string::npos)
      << text;
  EXPECT_FALSE(std::filesystem::exists(scratch / "a.pt2"));
}

TEST(ExportTransforms, DataWithoutABatchGiveNoExample) {
  struct NoLoaders : DataModule {
    std::shared_ptr<DataLoader> train_dataloader() override { return nullptr; }
  };
  const Scratch scratch;
  NamedDigits digits;
  NoLoaders data;
  const auto model = initialized_model(digits);
  EXPECT_THROW(export_program(*model, data, {.path = scratch / "a.pt2"}), DataError);
}

TEST(ExportTransforms, RefusesRandomAndUnexportableTransforms) {
  const Scratch scratch;
  const auto with = [](std::shared_ptr<const Transform> transform) {
    return TransformedData(std::make_shared<Digits>(), {.val = std::move(transform)});
  };
  Digits plain;
  const auto model = initialized_model(plain);
  const auto refusal = [&](DataModule& data) {
    const std::string text =
        error_text<Error>([&] { export_program(*model, data, {.path = scratch / "a.pt2"}); });
    EXPECT_FALSE(std::filesystem::exists(scratch / "a.pt2"));
    return text;
  };
  TransformedData random = with(std::make_shared<RandomHorizontalFlip>());
  EXPECT_NE(refusal(random).find("a.pt2 with the transforms of the data: they are random; expected: "
                                 "deterministic transforms for validation and prediction"),
            std::string::npos)
      << refusal(random);
  TransformedData on_host = with(std::make_shared<HostScale>());
  EXPECT_NE(refusal(on_host).find("operator aten::item"), std::string::npos) << refusal(on_host);
  EXPECT_NE(refusal(on_host).find("the host reads a value"), std::string::npos);
}

TEST(ExportTransforms, FunctionsReturnTheirOwnValues) {
  const Scratch scratch;
  SoftmaxRegression model;
  const auto forward = [](const Batch& batch) { return batch; };
  const std::string text = error_text<ConfigError>([&] {
    export_program(model, forward, Batch{at::ones({4, 4})},
                   {.path = scratch / "a.pt2", .values = ExportedValues::labels});
  });
  EXPECT_NE(text.find("`values` is set for a function that runs the model"), std::string::npos) << text;
}

}  // namespace
}  // namespace kindling
