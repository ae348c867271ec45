#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "interop/run/in_python.h"
#include "interop/run/programs_of_python.h"
#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "kindling/data/data_loader.h"
#include "kindling/data/data_module.h"
#include "kindling/data/dataset.h"
#include "kindling/interop/exported_backbone.h"
#include "kindling/optim/sgd.h"
#include "kindling/tensors/state_dict.h"
#include "kindling/training/trainer.h"

namespace kindling {
namespace {

constexpr const char* kPrograms[] = {"counter", "average", "decomposed", "views", "codes", "spectral"};

// Relative to the compared values; a matmul that is split differently changes the last bits.
constexpr double kBufferTolerance = 1e-6;

double difference_from_python(const at::Tensor& ours, const at::Tensor& wanted) {
  return (ours.detach().to(at::kDouble) - wanted.to(at::kDouble)).abs().max().item<double>() /
         std::max(1.0, wanted.to(at::kDouble).abs().max().item<double>());
}

struct EvaluationScript {
  static constexpr const char* kFile = "evaluation_programs.py";
};

class EvaluatedPrograms : public ProgramsOfPython<EvaluationScript> {
 protected:
  static std::shared_ptr<ExportedModule> model(const std::string& name, const std::string& eval_file = "") {
    return std::make_shared<ExportedModule>(
        ExportedModuleOptions{.file = file(name + ".pt2"),
                              .eval_file = eval_file.empty() ? std::filesystem::path() : file(eval_file)});
  }
  static StateDict pythons(const std::string& name) { return load_state_file(file(name + ".pt")); }

  static void expect_final(const StateDict& python, const Module& model, const std::string& name) {
    for (const auto& [key, tensor] : state_dict(model).tensors)
      EXPECT_LE(difference_from_python(tensor, *python.find("final." + key)), kBufferTolerance)
          << name << ", " << key;
  }
};

// Their forward pass modifies buffers in training mode.
class ModifiedBuffers : public EvaluatedPrograms {};
class EvaluationFile : public EvaluatedPrograms {};

// The four batches of Python's training, and several batches of validation.
class BatchesOfPython : public DataModule {
 public:
  explicit BatchesOfPython(const StateDict& python)
      : data_(std::make_shared<TensorDataset>(
            std::vector<at::Tensor>{python.find("x")->flatten(0, 1), python.find("y")->flatten(0, 1)})) {}
  std::shared_ptr<DataLoader> train_dataloader() override {
    return std::make_shared<DataLoader>(data_, DataLoaderOptions{.batch_size = 8, .shuffle = false});
  }
  std::shared_ptr<DataLoader> val_dataloader() override {
    return std::make_shared<DataLoader>(data_, DataLoaderOptions{.batch_size = 5, .shuffle = false});
  }

 private:
  std::shared_ptr<TensorDataset> data_;
};

void train_on(const at::Tensor& inputs, const at::Tensor& labels, ExportedModule& model,
              Optimizer& optimizer) {
  model.train();
  optimizer.zero_grad();
  model.training_step(Batch({inputs, labels})).backward();
  optimizer.step();
}

TEST_F(ModifiedBuffers, AreTheSameAfterEveryEvaluation) {
  for (const std::string name : kPrograms) {
    const auto evaluated = model(name);
    const StateDict python = pythons(name);
    evaluated->train();
    evaluated->forward((*python.find("x"))[0]);
    const StateDict before = copy_to(state_dict(*evaluated), cpu());
    evaluated->eval();
    const at::Tensor first = evaluated->forward((*python.find("x"))[0]);
    EXPECT_TRUE(at::equal(first, evaluated->forward((*python.find("x"))[0]))) << name;
    BatchesOfPython data(python);
    Trainer trainer({.max_epochs = 1});
    trainer.validate(evaluated, data);
    trainer.test(evaluated, data);
    trainer.predict(evaluated, data);
    trainer.layer_summary(evaluated, data);
    for (const auto& [key, tensor] : before.tensors)
      EXPECT_TRUE(at::equal(tensor, *state_dict(*evaluated).find(key))) << name << ", " << key;
  }
}

TEST_F(ModifiedBuffers, AreThoseOfPythonAfterTrainingWithEvaluations) {
  for (const std::string name : kPrograms) {
    const auto trained = model(name);
    const StateDict python = pythons(name);
    Sgd optimizer(ParameterGroups(*trained), {.lr = 0.1});
    const at::Tensor x = *python.find("x"), y = *python.find("y");
    for (std::int64_t step = 0; step < x.size(0); ++step) {
      train_on(x[step], y[step], *trained, optimizer);
      const EvaluationGuard evaluation(*trained);
      const at::NoGradGuard no_grad;
      trained->forward(x[0]);
    }
    expect_final(python, *trained, name);
  }
}

// The sanity check, validations within the epoch and after it, the table of layers and a replay of the steps
// leave no traces.
TEST_F(ModifiedBuffers, AreThoseOfPythonAfterAFit) {
  for (const std::string name : kPrograms)
    for (const std::string step_graph : {"on", "off"}) {
      const auto trained = model(name);
      const StateDict python = pythons(name);
      BatchesOfPython data(python);
      Trainer trainer({.max_epochs = 1,
                       .step_graph = step_graph,
                       .val_check_interval = 2,
                       .optimizer = [](ParameterGroups parameters) {
                         return std::make_unique<Sgd>(std::move(parameters), SgdOptions{.lr = 0.1});
                       }});
      trainer.layer_summary(trained, data);
      trainer.fit(trained, data);
      expect_final(python, *trained, name + ", step_graph = " + step_graph);
    }
}

// A frozen layer is in evaluation mode, as in Python after eval() of it.
TEST_F(ModifiedBuffers, AreTheSameInFrozenLayers) {
  const auto frozen = model("views"), counter = model("counter");
  frozen->freeze_by_name({"inner.*"});
  counter->freeze_by_name({"net.*"});
  for (const auto& each : {frozen, counter}) {
    each->train();
    each->forward(at::ones({4, 3}));
  }
  EXPECT_TRUE(at::equal(*state_dict(*frozen).find("inner.history"), at::zeros({2, 4})));
  EXPECT_EQ(state_dict(*counter).find("calls")->item<std::int64_t>(), 1);
}

// Training and evaluation alternate as in Python, where the model is the same after eval().
TEST_F(EvaluationFile, EvaluatesAsPythonDoesAfterEval) {
  for (const std::string name : {"noise", "counter", "average", "decomposed", "views", "codes", "spectral"}) {
    const auto trained = model(name, name + ".eval.pt2");
    const StateDict python = pythons(name);
    Sgd optimizer(ParameterGroups(*trained), {.lr = 0.1});
    const at::Tensor x = *python.find("x"), y = *python.find("y");
    at::manual_seed(7);
    for (std::int64_t step = 0; step < x.size(0); ++step) {
      train_on(x[step], y[step], *trained, optimizer);
      const EvaluationGuard evaluation(*trained);
      const at::NoGradGuard no_grad;
      const at::Tensor outputs = trained->forward(x[0]);
      EXPECT_LE(difference_from_python(outputs, (*python.find("outputs"))[step]), kBufferTolerance)
          << name << ", step " << step;
    }
    expect_final(python, *trained, name);
  }
}

// kindling.export() in Python.
TEST(ExportOfPackage, WritesBothProgramsAndWarnsOfLostDerivatives) {
  if (python_with_torch().empty()) GTEST_SKIP() << "no Python with PyTorch is here to export models";
  const Scratch scratch;
  EXPECT_EQ(said_by_script(scratch, "export_of_package.py " + scratch.folder().string()), "");
}

TEST_F(EvaluationFile, IsNotNeededForAFileWithBothPrograms) {
  for (const std::string name : {"noise", "counter", "average", "views", "codes", "spectral"}) {
    const auto both = model(name + ".both"), expected = model(name, name + ".eval.pt2");
    const StateDict python = pythons(name);
    const at::Tensor x = (*python.find("x"))[0], y = (*python.find("y"))[0];
    for (const auto& each : {both, expected}) {
      Sgd optimizer(ParameterGroups(*each), {.lr = 0.1});
      at::manual_seed(7);
      train_on(x, y, *each, optimizer);
      each->eval();
    }
    EXPECT_TRUE(at::equal(both->forward(x), expected->forward(x))) << name;
    if (name == "views") continue;  // depends on a buffer that is not persistent, so that no file has it
    both->save(file("saved.both.pt2"));
    const auto again = model("saved.both");
    again->eval();
    EXPECT_TRUE(at::equal(again->forward(x), expected->forward(x))) << name;
    convert_to_onnx(file("saved.both.pt2"), file("both.onnx"));  // would refuse the training program
    EXPECT_GT(std::filesystem::file_size(file("both.onnx")), 0U);
  }
}

TEST_F(EvaluationFile, IsUsedInEveryEvaluationOfATrainer) {
  const auto noisy = model("noise"), quiet = model("noise", "noise.eval.pt2");
  BatchesOfPython data(pythons("noise"));
  Trainer trainer({.max_epochs = 1});
  const at::Tensor first = trainer.predict(quiet, data);
  EXPECT_TRUE(at::equal(first, trainer.predict(quiet, data)));
  EXPECT_FALSE(at::equal(first, trainer.predict(noisy, data)));
  EXPECT_EQ(trainer.validate(quiet, data).at("val_loss"), trainer.validate(quiet, data).at("val_loss"));
  EXPECT_EQ(trainer.test(quiet, data).at("test_loss"), trainer.test(quiet, data).at("test_loss"));
}

TEST_F(EvaluationFile, TrainsIdenticallyWithAndWithoutStepCapture) {
  std::vector<StateDict> trained;
  std::vector<double> losses;
  for (const std::string step_graph : {"on", "off"}) {
    const auto each = model("noise", "noise.eval.pt2");
    BatchesOfPython data(pythons("noise"));
    at::manual_seed(4);
    losses.push_back(
        Trainer({.max_epochs = 3, .step_graph = step_graph}).fit(each, data).metrics.at("val_loss"));
    trained.push_back(copy_to(state_dict(*each), cpu()));
  }
  EXPECT_EQ(losses[0], losses[1]);
  for (const auto& [name, tensor] : trained[0].tensors)
    EXPECT_TRUE(at::equal(tensor, *trained[1].find(name))) << name;
}

TEST_F(EvaluationFile, IsExportedAndTheTrainingProgramIsSaved) {
  const auto each = model("noise", "noise.eval.pt2");
  const at::Tensor x = (*pythons("noise").find("x"))[0];
  export_program(*each, Batch::leaf(x), {.path = file("exported.pt2")});
  each->save(file("saved.pt2"));
  each->eval();
  const at::Tensor wanted = each->forward(x);
  const auto exported = model("exported"), saved = model("saved", "noise.eval.pt2"), noisy = model("saved");
  for (const auto& again : {exported, saved, noisy}) again->eval();
  EXPECT_TRUE(at::allclose(exported->forward(x), wanted));
  EXPECT_TRUE(at::equal(saved->forward(x), wanted));
  EXPECT_FALSE(at::equal(noisy->forward(x), noisy->forward(x)));
}

TEST_F(EvaluationFile, IsUsedByBackbones) {
  const auto options = [](const std::string& eval_file) {
    return ExportedBackboneOptions{
        .program = file("noise.pt2"), .num_classes = 3, .eval_file = file(eval_file)};
  };
  const auto backbone = std::make_shared<ExportedBackbone>(options("noise.eval.pt2"));
  const at::Tensor x = (*pythons("noise").find("x"))[0];
  backbone->eval();
  EXPECT_TRUE(at::equal(backbone->forward(x), backbone->forward(x)));
  backbone->train();
  EXPECT_FALSE(at::equal(backbone->forward(x), backbone->forward(x)));
}

TEST_F(EvaluationFile, IsAskedForWhereAProgramDrawsRandomNumbers) {
  const auto said_by = [](const std::shared_ptr<ExportedModule>& each) {
    std::string said;
    set_log_observer([&](LogLevel, const std::string& line) { said += line; });
    for (const bool on : {true, false, true, false}) each->train(on);
    set_log_observer({});
    return said;
  };
  EXPECT_EQ(
      said_by(model("noise")),
      file("noise.pt2").string() +
          ": 2 operators draw random numbers in evaluation, too (in blocks.0, blocks.1): validation, test "
          "and predictions are random; to evaluate the model as in Python, write the file with "
          "kindling.export() of the Python package, or export the model a second time after "
          "model.eval() and give that file as eval_file");
  EXPECT_EQ(said_by(model("noise", "noise.eval.pt2")), "");
  EXPECT_EQ(said_by(model("counter")), "") << "dropout is off in evaluation";
}

TEST_F(EvaluationFile, MustBeOfTheSameModel) {
  const auto error_of = [&](const std::string& name, const std::string& eval_file) {
    return error_text<CheckpointError>([&] { model(name, eval_file); });
  };
  const std::string missing = error_of("average", "counter.eval.pt2");
  EXPECT_NE(missing.find(file("counter.eval.pt2").string() +
                         ", the program for evaluation: it has no parameter or buffer \"average\"; expected: "
                         "the parameters and buffers of " +
                         file("average.pt2").string()),
            std::string::npos)
      << missing;
  EXPECT_NE(missing.find("export the same model twice"), std::string::npos) << missing;
  const std::string shape = error_of("counter", "wide.eval.pt2");
  EXPECT_NE(shape.find("its \"net.4.bias\" is Float [5]; expected: Float [2], as in"), std::string::npos)
      << shape;
  const std::string mode = error_of("counter", "counter.pt2");
  EXPECT_NE(mode.find("it was exported in training mode"), std::string::npos) << mode;
  const std::string nowhere = error_text<Error>([&] { model("counter", "nowhere.pt2"); });
  EXPECT_NE(nowhere.find("nowhere.pt2"), std::string::npos) << nowhere;
}

}  // namespace
}  // namespace kindling
