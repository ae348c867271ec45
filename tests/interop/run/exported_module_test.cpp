#include "kindling/interop/exported_module.h"

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <array>
#include <map>

#include "interop/run/programs_of_python.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/base/log.h"
#include "kindling/data/data_loader.h"
#include "kindling/data/data_module.h"
#include "kindling/data/dataset.h"
#include "kindling/interop/export_program.h"
#include "kindling/optim/adam.h"
#include "kindling/optim/sgd.h"
#include "kindling/tensors/state_dict.h"
#include "kindling/training/trainer.h"
#include "nn/precision.h"
#include "support/pt2_bytes.h"
#include "support/scratch.h"

namespace kindling {
namespace {

struct TrainingScript {
  static constexpr const char* kFile = "train_programs.py";
};

using ExportedPrograms = ProgramsOfPython<TrainingScript>;

struct Case {
  const char* name;
  const char* loss;
};

class EachProgram : public ExportedPrograms, public ::testing::WithParamInterface<Case> {};

std::unique_ptr<Optimizer> optimizer_named(const std::string& name, Module& model) {
  if (name == "sgd")
    return std::make_unique<Sgd>(ParameterGroups(model), SgdOptions{.lr = 0.02, .momentum = 0.9});
  return std::make_unique<AdamW>(ParameterGroups(model), AdamWOptions{.lr = 1e-3});
}

// Relative to the compared values: the same operators in the same order are bit-identical on most machines; a
// matmul that is split differently changes the last bits.
constexpr double kTolerance = 1e-6;

at::Tensor in_double(const at::Tensor& tensor) {
  return tensor.detach().to(tensor.is_complex() ? at::kComplexDouble : at::kDouble);
}

double difference(const at::Tensor& ours, const at::Tensor& pythons) {
  const at::Tensor wanted = in_double(pythons);
  return (in_double(ours) - wanted).abs().max().item<double>() /
         std::max(1.0, wanted.abs().max().item<double>());
}

// As in train_programs.py: rows of dimensions and the factors of their sizes.
void make_smaller(std::vector<at::Tensor>& batch, const at::Tensor& smaller, std::int64_t step) {
  for (std::int64_t row = 0; row < smaller.size(0); ++row) {
    const auto place = smaller[row][0].item<std::int64_t>(), multiple = smaller[row][1].item<std::int64_t>();
    const std::int64_t size = batch[0].size(place) - multiple * (step % (3 + place));
    for (at::Tensor& each : batch)
      if (each.dim() > place) each = each.narrow(place, 0, size);
  }
}

TEST_P(EachProgram, TrainsAsPythonTrainsIt) {
  for (const std::string optimizer : {"sgd", "adamw"}) {
    const StateDict pythons = load_state_file(file(std::string(GetParam().name) + "." + optimizer + ".pt"));
    std::vector<at::Tensor> data;
    while (const at::Tensor* each = pythons.find("data." + std::to_string(data.size())))
      data.push_back(*each);
    ExportedModule model({.file = file(std::string(GetParam().name) + ".pt2"), .loss = GetParam().loss});
    const auto by = optimizer_named(optimizer, model);
    at::manual_seed(7);
    const at::Tensor losses = *pythons.find("losses");
    for (std::int64_t step = 0; step < losses.size(0); ++step) {
      std::vector<at::Tensor> batch;
      for (const at::Tensor& each : data) batch.push_back(each[step]);
      make_smaller(batch, *pythons.find("smaller"), step);
      by->zero_grad();
      const at::Tensor loss = model.training_step(Batch(batch));
      loss.backward();
      by->step();
      ASSERT_LE(difference(loss, losses[step]), kTolerance) << optimizer << ", step " << step;
    }
    std::size_t compared = 0;
    for (const auto& [name, tensor] : state_dict(model).tensors) {
      const at::Tensor* final = pythons.find("final." + name);
      ASSERT_NE(final, nullptr) << name;
      EXPECT_LE(difference(tensor, *final), kTolerance) << optimizer << ", " << name;
      ++compared;
    }
    for (const auto& [name, tensor] : pythons.tensors) compared -= name.starts_with("final.") ? 1 : 0;
    EXPECT_EQ(compared, 0u) << "Python has other weights";
  }
}

// The batches of Python's training as a data set.
class Batches : public DataModule {
 public:
  explicit Batches(const StateDict& saved) {
    std::vector<at::Tensor> tensors;
    while (const at::Tensor* each = saved.find("data." + std::to_string(tensors.size())))
      tensors.push_back(each->flatten(0, 1).narrow(0, 0, 93));  // the last batch is smaller
    data_ = std::make_shared<TensorDataset>(std::move(tensors));
  }
  std::shared_ptr<DataLoader> train_dataloader() override {
    return std::make_shared<DataLoader>(data_, DataLoaderOptions{.batch_size = 8});
  }

 private:
  std::shared_ptr<TensorDataset> data_;
};

TEST_P(EachProgram, TrainsIdenticallyWithAndWithoutStepCapture) {
  Batches data(load_state_file(file(std::string(GetParam().name) + ".sgd.pt")));
  std::vector<StateDict> trained;
  std::string said;
  set_log_observer(
      [&](LogLevel level, const std::string& line) { said += level >= LogLevel::warning ? line : ""; });
  for (const std::string step_graph : {"on", "off"}) {
    const auto model = std::make_shared<ExportedModule>(
        ExportedModuleOptions{.file = file(std::string(GetParam().name) + ".pt2"), .loss = GetParam().loss});
    at::manual_seed(4);
    Trainer({.max_epochs = 3, .step_graph = step_graph}).fit(model, data);
    trained.push_back(copy_to(state_dict(*model), cpu()));
  }
  set_log_observer({});
  const std::map<std::string, std::string> obstacles{
      {"experts", "the host reads the sizes of the groups of its experts"},
      {"selected", "it calls aten::nonzero"}};
  const auto obstacle = obstacles.find(GetParam().name);
  if (obstacle == obstacles.end()) {
    EXPECT_EQ(said, "") << "the steps have not been recorded";
  } else {
    EXPECT_NE(said.find("step_graph: steps are not captured: " + obstacle->second), std::string::npos)
        << said;
  }
  for (const auto& [name, tensor] : trained[0].tensors)
    EXPECT_TRUE(at::equal(tensor, *trained[1].find(name))) << name;
}

INSTANTIATE_TEST_SUITE_P(Python, EachProgram,
                         ::testing::Values(Case{"resnet18", "cross_entropy"}, Case{"gpt", "cross_entropy"},
                                           Case{"lstm", "cross_entropy"}, Case{"gru", "cross_entropy"},
                                           Case{"gpt_lengths", "cross_entropy"},

                                           Case{"unet_sizes", "cross_entropy"}, Case{"unet", "cross_entropy"},
                                           Case{"vit", "cross_entropy"}, Case{"tied_mlp", "cross_entropy"},
                                           Case{"mixed", "cross_entropy"}, Case{"two_inputs", "mse"},
                                           Case{"loss_inside", "output"}, Case{"sizes", "cross_entropy"},
                                           Case{"conv1d", "cross_entropy"}, Case{"spectral", "cross_entropy"},
                                           Case{"selected", "cross_entropy"},
                                           Case{"experts", "cross_entropy"},
                                           Case{"standardized", "cross_entropy"}),
                         [](const auto& info) { return std::string(info.param.name); });

// Its norms have no running statistics, so they are the same in both modes, as in Python.
TEST_F(ExportedPrograms, NormsWithoutStatisticsAreThoseOfTheBatchInEvaluation) {
  ExportedModule model({.file = file("standardized.pt2")});
  const at::Tensor x = (*load_state_file(file("standardized.sgd.pt")).find("data.0"))[0];
  model.train();
  const at::Tensor wanted = model.forward(x);
  model.eval();
  EXPECT_TRUE(at::equal(model.forward(x), wanted));
  const Batch outputs = model.predict_outputs(Batch({x}));
  EXPECT_EQ(outputs.structure()->names, (std::vector<std::string>{"logits", "hidden"}));
  export_program(model, Batch::leaf(x), {.path = file("standardized.eval.pt2")});
  ExportedModule again({.file = file("standardized.eval.pt2")});
  again.eval();
  EXPECT_LE(difference(again.forward(x), wanted), kTolerance);
  const Batch same = again.predict_outputs(Batch({x}));
  EXPECT_EQ(same.structure()->names, outputs.structure()->names);
  EXPECT_LE(difference(same["hidden"], outputs["hidden"]), kTolerance);
}

TEST_F(ExportedPrograms, PredictTheOutputsAfterTheLoss) {
  ExportedModule model({.file = file("loss_inside.pt2"), .loss = "output"});
  const StateDict python = load_state_file(file("loss_inside.sgd.pt"));
  const at::Tensor x = (*python.find("data.0"))[0], target = (*python.find("data.1"))[0];
  const std::vector<at::Tensor> outputs = model.run(std::array{x, target});
  const Batch batch({x, target});
  EXPECT_TRUE(at::equal(model.predict_step(batch), outputs[1]));
  EXPECT_EQ(model.predict_outputs(batch).tensors().size(), 1U);
  ExportedModule alone({.file = file("tied_mlp.pt2"), .loss = "output"});
  const std::string text = error_text<DataError>([&] { alone.predict_step(Batch({x})); });
  EXPECT_NE(text.find("the only output of the program is its loss"), std::string::npos) << text;
}

// Autocast is on around the program.
TEST_F(ExportedPrograms, PartsWithoutAutocastComputeInFloat32) {
  ExportedModule model({.file = file("standardized.pt2")});
  const at::Tensor x = (*load_state_file(file("standardized.sgd.pt")).find("data.0"))[0];
  const AutocastScope autocast(Precision::named("bf16-mixed"), at::kCPU);
  const std::vector<at::Tensor> outputs = model.run(std::array{x});
  EXPECT_EQ(outputs[0].scalar_type(), at::kBFloat16);
  EXPECT_EQ(outputs[1].scalar_type(), at::kFloat);  // a matmul, with autocast off
}

// --- the small program among the fixtures, which needs no Python ---

const std::filesystem::path kProgram = std::filesystem::path(KINDLING_FIXTURES) / "program.pt2";

ExportedModuleOptions small_program() { return {.file = kProgram}; }

// Rows of three numbers in two classes.
class Rows : public DataModule {
 public:
  explicit Rows(std::int64_t size) {
    const at::Tensor inputs = at::linspace(-1, 1, size * 3).view({size, 3}).sin();
    data_ = TensorDataset({inputs, (inputs.sum(1) > 0).to(at::kLong)});
  }
  std::shared_ptr<DataLoader> train_dataloader() override {
    return std::make_shared<DataLoader>(std::make_shared<TensorDataset>(data_),
                                        DataLoaderOptions{.batch_size = 8});
  }
  std::shared_ptr<DataLoader> val_dataloader() override { return train_dataloader(); }

 private:
  TensorDataset data_{{at::zeros({1, 1})}};
};

TEST(ExportedModule, HasPythonsNames) {
  const ExportedModule model(small_program());
  std::vector<std::string> names;
  for (const auto& item : model.named_parameters()) names.push_back(item.key());
  EXPECT_EQ(names, (std::vector<std::string>{"net.0.weight", "net.0.bias", "net.1.weight", "net.1.bias",
                                             "head.weight", "head.bias"}));
  names.clear();
  for (const auto& item : model.named_buffers()) names.push_back(item.key());
  EXPECT_EQ(names, (std::vector<std::string>{"net.1.running_mean", "net.1.running_var",
                                             "net.1.num_batches_tracked"}));
}

TEST(ExportedModule, SkipsDropoutAndStatisticsInEvaluation) {
  ExportedModule model(small_program());
  const at::Tensor inputs = at::linspace(-2, 2, 18).view({6, 3});
  const StateDict before = copy_to(state_dict(model), cpu());
  const at::Tensor random = at::globalContext().defaultGenerator(at::kCPU).get_state();
  model.eval();
  const at::Tensor first = model.forward(inputs);
  EXPECT_TRUE(at::equal(first, model.forward(inputs)));
  EXPECT_TRUE(at::equal(random, at::globalContext().defaultGenerator(at::kCPU).get_state()));
  for (const auto& [name, tensor] : before.tensors)
    EXPECT_TRUE(at::equal(tensor, *state_dict(model).find(name))) << name;
  model.train();
  EXPECT_FALSE(at::equal(first, model.forward(inputs)));
  EXPECT_EQ(state_dict(model).find("net.1.num_batches_tracked")->item<std::int64_t>(), 1);
}

TEST(ExportedModule, FrozenLayersKeepTheirStatistics) {
  const auto model = std::make_shared<ExportedModule>(small_program());
  model->freeze_by_name({"net.1.*"});
  model->train();
  model->forward(at::linspace(-2, 2, 18).view({6, 3}));
  EXPECT_EQ(state_dict(*model).find("net.1.num_batches_tracked")->item<std::int64_t>(), 0);
  EXPECT_TRUE(at::equal(*state_dict(*model).find("net.1.running_mean"), at::zeros({4})));
}

StateDict trained(const std::string& step_graph, std::int64_t epochs) {
  at::manual_seed(1);
  const auto model = std::make_shared<ExportedModule>(small_program());
  Rows data(44);  // the last batch has four rows
  Trainer trainer({.max_epochs = epochs, .gradient_clip_val = 0.5, .step_graph = step_graph});
  trainer.fit(model, data);
  return copy_to(state_dict(*model), cpu());
}

TEST(ExportedModule, TrainsIdenticallyWithAndWithoutStepCapture) {
  std::string said;  // a step that cannot be captured logs a warning
  set_log_observer(
      [&](LogLevel level, const std::string& line) { said += level >= LogLevel::warning ? line : ""; });
  const StateDict replayed = trained("on", 4), eager = trained("off", 4);
  set_log_observer({});
  EXPECT_EQ(said, "");
  for (const auto& [name, tensor] : eager.tensors)
    EXPECT_TRUE(at::equal(tensor, *replayed.find(name))) << name;
  EXPECT_FALSE(at::equal(*eager.find("head.weight"),
                         *state_dict(ExportedModule(small_program())).find("head.weight")));
}

TEST(ExportedModule, SavesWeightsIntoACopyOfTheFile) {
  const Scratch scratch;
  const auto model = std::make_shared<ExportedModule>(small_program());
  Rows data(40);
  Trainer({.max_epochs = 2}).fit(model, data);
  model->save(scratch / "trained.pt2");
  ExportedModule again({.file = scratch / "trained.pt2"});
  for (const auto& [name, tensor] : state_dict(*model).tensors)
    EXPECT_TRUE(at::equal(tensor, *state_dict(again).find(name))) << name;
  model->eval();
  again.eval();
  const at::Tensor inputs = at::linspace(-2, 2, 18).view({6, 3});
  EXPECT_TRUE(at::equal(model->forward(inputs), again.forward(inputs)));
  // The saved values are a copy: training continues without changing them.
  Trainer({.max_epochs = 1}).fit(model, data);
  EXPECT_FALSE(at::equal(*state_dict(*model).find("head.weight"), *state_dict(again).find("head.weight")));
}

TEST(ExportedModule, RefusesOtherInputs) {
  ExportedModule model(small_program());
  const auto text = [&](const at::Tensor& inputs) {
    return error_text<DataError>([&] { model.forward(inputs); });
  };
  EXPECT_NE(text(at::zeros({5, 4})).find("it is Float [5, 4]; expected: Float [s77, 3]"), std::string::npos);
  EXPECT_NE(text(at::zeros({5})).find("Float [5]"), std::string::npos);
  EXPECT_NE(text(at::zeros({5, 3}, at::kLong)).find("Long"), std::string::npos);
  EXPECT_NE(text(at::zeros({1, 3})).find("sizes from 2 to any"), std::string::npos);
  EXPECT_NE(error_text<DataError>([&] {
              model.forward_inputs(Batch({at::zeros({5, 3}), at::zeros({5}), at::zeros({5})}));
            }).find("the batch has 3 tensors"),
            std::string::npos);
  EXPECT_NE(error_text<DataError>([&] {
              model.loss(at::zeros({4, 2}), at::zeros({4}));
            }).find("labels"),
            std::string::npos);
}

TEST(ExportedModule, AsksWhichDimensionHasTheClasses) {
  ExportedModule model(small_program());
  const at::Tensor labels = at::zeros({2, 5}, at::kLong);
  // [batch, time, classes] and [batch, classes, time] give LibTorch's result for the latter.
  const at::Tensor by_time = at::randn({2, 5, 7});
  EXPECT_TRUE(
      at::allclose(model.loss(by_time, labels), at::cross_entropy_loss(by_time.transpose(1, 2), labels)));
  EXPECT_TRUE(at::allclose(model.loss(by_time.transpose(1, 2), labels), model.loss(by_time, labels)));
  EXPECT_NE(error_text<DataError>([&] {
              model.loss(at::zeros({2, 5, 5}), labels);
            }).find("may be in the second"),
            std::string::npos);
}

TEST(ExportedModule, HasTheOptionsOfItsLoss) {
  at::manual_seed(4);
  const at::Tensor outputs = at::randn({6, 2}), numbers = at::tensor({0, 1, 9, 1, 0, 9}, at::kLong),
                   weights = at::tensor({2., 0.5}, at::kDouble),
                   values = at::tensor({1.f, 9.f, 2.f, 3.f}).repeat(3).view({6, 2});
  const at::Tensor of_weights = weights.to(at::kFloat);
  ExportedModule classes(small_program());
  classes.set_loss_options({.label_smoothing = 0.1, .ignore_index = 9});
  classes.set_class_weights(weights);
  EXPECT_TRUE(
      at::allclose(classes.loss(outputs, numbers),
                   at::cross_entropy_loss(outputs, numbers, of_weights, at::Reduction::Mean, 9, 0.1)));
  const at::Tensor known = values.ne(9);
  for (const char* name : {"mse", "l1", "smooth_l1", "huber"}) {
    ExportedModule model({.file = kProgram, .loss = name});
    const at::Tensor whole =
        model.loss(outputs.masked_select(known).view({-1, 1}), values.masked_select(known).view({-1, 1}));
    model.set_loss_options({.ignore_index = 9});
    const WeightedLoss masked = model.weighted_loss(outputs, values);
    EXPECT_TRUE(at::allclose(masked.loss, whole)) << name;
    EXPECT_EQ(masked.weight.item<std::int64_t>(), 9) << name;
  }
  ExportedModule each({.file = kProgram, .loss = "bce_with_logits"});
  for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{6}, {6, 1}, {6, 2}}) {
    const at::Tensor logits = at::randn(shape), labels = at::rand(shape).round();
    const at::Tensor right = at::binary_cross_entropy_with_logits(logits, labels);
    EXPECT_TRUE(at::equal(each.loss(logits, labels), right)) << shape;
    EXPECT_TRUE(at::equal(each.loss(logits, labels.to(at::kLong)), right)) << shape;
  }
  each.set_loss_options({.pos_weight = {2, 3}});
  EXPECT_TRUE(at::allclose(
      each.loss(outputs, known.to(at::kFloat)),
      at::binary_cross_entropy_with_logits(outputs, known.to(at::kFloat), {}, at::tensor({2.f, 3.f}))));
  const auto error_of = [](const char* loss, const ClassLossOptions& options) {
    return error_text<ConfigError>(
        [&] { ExportedModule({.file = kProgram, .loss = loss}).set_loss_options(options); });
  };
  EXPECT_NE(error_of("mse", {.label_smoothing = 0.1}).find("label_smoothing: it is set, and the loss is mse"),
            std::string::npos);
  EXPECT_NE(error_of("cross_entropy", {.multi_label = true}).find("bce_with_logits"), std::string::npos);
  EXPECT_NE(error_of("output", {.ignore_index = 0}).find("ignore_index"), std::string::npos);
  EXPECT_NE(error_text<ConfigError>([&] { each.set_class_weights(weights); }).find("class_weights"),
            std::string::npos);
}

// A program with a changed text.
std::string program_refusal(const std::string& from, const std::string& to) {
  const Scratch scratch;
  const std::string whole = read_file(kProgram, 100'000);
  write_file_atomically(scratch / "x.pt2", pt2_bytes::replaced(whole, "model.json", from, to));
  return error_text<CheckpointError>([&] { ExportedModule({.file = scratch / "x.pt2"}); });
}

TEST(ExportedModule, RefusesOperatorsThatAreNotListed) {
  const auto target = [](const std::string& to) {
    return program_refusal("torch.ops.aten.relu.default", to);
  };
  EXPECT_NE(target("torch.ops.aten.from_file.default").find("programs from files may not call this operator"),
            std::string::npos);
  EXPECT_NE(target("torch.ops.aten.set_.source_Tensor").find("layer net.2, torch.ops.aten.set_"),
            std::string::npos);
  EXPECT_NE(target("torch.ops.mine.relu.default").find("not an ATen operator"), std::string::npos);
  EXPECT_NE(target("builtins.eval").find("not an ATen operator"), std::string::npos);
  EXPECT_NE(target("torch.ops.aten.relu.none").find("no such operator"), std::string::npos);
  EXPECT_NE(target("torch.ops.aten.item.default").find("depends on the values of its tensors"),
            std::string::npos);
  EXPECT_NE(
      target("torch.ops.aten._native_batch_norm_legit_functional.default").find("omit run_decompositions"),
      std::string::npos);
}

TEST(ExportedModule, RefusesProgramsThatDoNotFitTheirSchemas) {
  EXPECT_NE(
      program_refusal("\"name\": \"momentum\"", "\"name\": \"momentums\"").find("\"momentum\" is missing"),
      std::string::npos);
  EXPECT_NE(program_refusal("\"name\": \"eps\"", "\"name\": \"momentum\"").find("given twice"),
            std::string::npos);
  EXPECT_NE(
      program_refusal("{\"as_bool\": true}", "{\"as_string\": \"yes\"}").find("does not match the schema"),
      std::string::npos);
  EXPECT_NE(program_refusal("{\"as_tensor\": {\"name\": \"relu\"}}", "{\"as_tensor\": {\"name\": \"later\"}}")
                .find("(no error)"),
            std::string::npos)
      << "made and used under another name";
  EXPECT_NE(program_refusal("\"outputs\": [{\"as_tensor\": {\"name\": \"relu\"}}]",
                            "\"outputs\": [{\"as_tensor\": {\"name\": \"other\"}}]")
                .find("used before it is defined"),
            std::string::npos);
  EXPECT_NE(program_refusal("\"outputs\": [{\"as_tensor\": {\"name\": \"relu\"}}]",
                            "\"outputs\": [{\"as_tensor\": {\"name\": \"linear\"}}]")
                .find("two values have the name"),
            std::string::npos);
  EXPECT_NE(program_refusal("\"buffer_name\": \"net.1.running_var\"", "\"buffer_name\": \"net.0.weight\"")
                .find("their shape or dtype differs"),
            std::string::npos);
  EXPECT_NE(
      program_refusal("\"parameter_name\": \"head.bias\"", "\"parameter_name\": \"head.\"").find("no values"),
      std::string::npos);
  EXPECT_NE(
      program_refusal("{\"type\": \"cpu\", \"index\": null}", "{\"type\": \"nowhere\", \"index\": null}"),
      "");
}

// The weight and bias are every second value of a parameter. While the program is exported, all values are 1,
// so that also a LibTorch before 2.14, which ignores the strides, exports the right results.
struct StridedGroupNorm : Module {
  StridedGroupNorm() { weights = register_parameter("weights", at::ones({8})); }
  at::Tensor forward(const at::Tensor& x) override {
    const at::Tensor every_second = at::slice(weights, 0, 0, 8, 2);
    return std::get<0>(
        at::native_group_norm(x, every_second, every_second, x.size(0), 4, 9, /*group=*/2, /*eps=*/1e-5));
  }
  at::Tensor weights;
};

TEST(ExportedModule, HandsGroupNormContiguousWeights) {
  const Scratch scratch;
  StridedGroupNorm exported;
  at::manual_seed(1);
  const at::Tensor x = at::randn({5, 4, 3, 3}), values = at::arange(8, at::kFloat);
  export_program(exported, Batch{x}, {.path = scratch / "norm.pt2", .train = true});
  ExportedModule model({.file = scratch / "norm.pt2", .loss = "mse"});
  const at::Tensor weights = model.parameters()[0];
  {
    const at::NoGradGuard no_grad;
    weights.copy_(values);
  }
  const at::Tensor wanted_weights = values.clone().requires_grad_(),
                   every_second = at::slice(wanted_weights, 0, 0, 8, 2).contiguous();
  const at::Tensor wanted = at::group_norm(x, 2, every_second, every_second), found = model.forward(x);
  EXPECT_TRUE(at::equal(found, wanted));
  const at::Tensor slopes = at::randn_like(x);
  wanted.backward(slopes);
  found.backward(slopes);
  EXPECT_TRUE(at::equal(weights.grad(), wanted_weights.grad()));
}

TEST(ExportedModule, ReportsInvalidOptions) {
  EXPECT_NE(error_text<ConfigError>([] { ExportedModule({}); }).find("no file is given"), std::string::npos);
  EXPECT_NE(error_text<ConfigError>([] {
              ExportedModule({.file = kProgram, .loss = "crossentropy"});
            }).find("loss"),
            std::string::npos);
  EXPECT_NE(error_text<Error>([] { ExportedModule({.file = "nowhere.pt2"}); }).find("nowhere.pt2"),
            std::string::npos);
}

}  // namespace
}  // namespace kindling
