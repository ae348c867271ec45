// validate, test and predict, of a run and of a config with weights.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "cli/commands/prediction_file.h"
#include "cli/commands/program_run.h"
#include "kindling/base/error.h"
#include "kindling/cli/registry.h"
#include "kindling/interop/export_program.h"
#include "kindling/nn/module.h"
#include "kindling/tensors/state_dict.h"
#include "nn/class_values.h"
#include "support/log_lines.h"
#include "support/scratch.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

class EvaluatedRun : public testing::Test {
 protected:
  static constexpr const char* kModelAndData =
      "[model]\nname = \"mlp\"\nhidden = [8]\n[data]\nname = \"digits\"\n";

  void SetUp() override { ASSERT_EQ(fit().exit_code, 0); }

  ProgramRun fit(std::vector<std::string> more = {}) {
    write_text(scratch_ / "model.toml", kModelAndData);
    std::vector<std::string> words{"fit",
                                   "-c",
                                   scratch_ / "model.toml",
                                   "name=small",
                                   "trainer.max_epochs=1",
                                   "trainer.num_threads=1",
                                   "run.dir=" + scratch_.folder().string(),
                                   "--quiet",
                                   "--progress=none"};
    words.insert(words.end(), more.begin(), more.end());
    return run_program(words);
  }
  std::string run() const { return scratch_ / "small/0001"; }
  ProgramRun predict(const std::string& out, std::vector<std::string> more = {}) {
    std::vector<std::string> words{"predict", run(), "--out", scratch_ / out};
    words.insert(words.end(), more.begin(), more.end());
    return run_program(words);
  }
  // False: that Python or a package is missing.
  static bool has_python(const std::string& packages) {
    const std::string python = KINDLING_VENV_PYTHON;
    return std::system((python + " -c 'import " + packages + "' >/dev/null 2>&1").c_str()) == 0;
  }
  int python(const std::string& script) {
    write_text(scratch_ / "check.py", script);
    return std::system(
        ("cd '" + scratch_.folder().string() + "' && " KINDLING_VENV_PYTHON " check.py").c_str());
  }

  Scratch scratch_;
};

TEST_F(EvaluatedRun, NeedsNothingButTheRun) {
  const ProgramRun before =
      run_program({"validate", "-c", run() + "/config.toml", "--weights", run(), "--quiet"});
  ASSERT_EQ(before.exit_code, 0) << before.err;
  ASSERT_NE(before.out.find("val_acc "), std::string::npos);
  const std::string weights = run() + "/weights.safetensors";
  const std::vector<std::vector<std::string>> same{{run()},
                                                   {run() + ":best"},
                                                   {run() + ":last"},
                                                   {scratch_ / "small"},
                                                   {(scratch_ / "small").string() + "/"},
                                                   {weights},
                                                   {"--weights", run()},
                                                   {"--weights", weights},
                                                   {run(), "--weights", weights}};
  for (std::vector<std::string> words : same) {
    words.insert(words.begin(), "validate");
    const ProgramRun validated = run_program(words);
    EXPECT_EQ(validated.out, before.out) << testing::PrintToString(words) << validated.err;
    EXPECT_EQ(validated.exit_code, 0);
  }
}

TEST_F(EvaluatedRun, OfADirectoryOfRunsIsTheNewest) {
  ASSERT_EQ(fit({"seed=7"}).exit_code, 0);
  const ProgramRun newest = run_program({"validate", scratch_ / "small"});
  EXPECT_NE(newest.err.find("small/0002"), std::string::npos) << newest.err;
  EXPECT_EQ(newest.out, run_program({"validate", scratch_ / "small/0002"}).out);
  EXPECT_NE(newest.out, run_program({"validate", run()}).out);
  EXPECT_EQ(newest.out, run_program({"validate", (scratch_ / "small").string() + ":last"}).out);
  const std::string out = scratch_ / "w.safetensors";
  EXPECT_EQ(run_program({"export", scratch_ / "small", out}).exit_code, 0);
  EXPECT_TRUE(at::equal(load_safetensors(out).tensors[0].second,
                        load_safetensors(scratch_ / "small/0002/weights.safetensors").tensors[0].second));
}

TEST_F(EvaluatedRun, AConfigWithoutAnEndEvaluatesButDoesNotTrain) {
  const std::string config = scratch_ / "model.toml";
  const ProgramRun validated =
      run_program({"validate", "-c", config, "--weights", run() + "/weights.safetensors"});
  EXPECT_EQ(validated.exit_code, 0) << validated.err;
  EXPECT_EQ(validated.out, run_program({"validate", run()}).out);
  EXPECT_NE(
      run_program({"fit", "-c", config}).err.find("'trainer.max_epochs' or 'trainer.max_steps' is missing"),
      std::string::npos);
}

TEST_F(EvaluatedRun, ReportsWhatIsNotARun) {
  const ProgramRun nothing = run_program({"validate"});
  EXPECT_EQ(nothing.exit_code, 2);
  EXPECT_NE(nothing.err.find("there is no run and no config; expected: kindling validate RUN"),
            std::string::npos)
      << nothing.err;
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"validate", "runs/nope"},
        {"validate", "-c", scratch_ / "model.toml", "--weights", "nope.safetensors"}}) {
    const ProgramRun missing = run_program(words);
    EXPECT_EQ(missing.exit_code, 1);
    EXPECT_NE(missing.err.find("no such file or directory"), std::string::npos) << missing.err;
  }
  const std::string alone = scratch_ / "alone.safetensors";
  fs::copy_file(run() + "/weights.safetensors", alone);
  const ProgramRun weights = run_program({"test", alone});
  EXPECT_EQ(weights.exit_code, 2);
  EXPECT_NE(weights.err.find("kindling test -c CONFIG --weights FILE"), std::string::npos) << weights.err;
}

TEST_F(EvaluatedRun, OfADirectoryIsTheNewestWithAConfig) {
  const fs::path runs = fs::path(run()).parent_path();
  fs::create_directories(runs / "0099");  // of a start that was killed
  const ProgramRun newest = run_program({"validate", runs});
  fs::remove(runs / "0099");
  EXPECT_EQ(newest.exit_code, 0) << newest.err;
}

TEST_F(EvaluatedRun, IsNotTheDirectoryOfASweep) {
  fs::create_directories(scratch_ / "sweep/001/0001");
  write_text(scratch_ / "sweep/sweep.json", "{}");
  const std::string sweep = scratch_ / "sweep";
  const ProgramRun test = run_program({"test", sweep});
  EXPECT_EQ(test.exit_code, 2);
  EXPECT_EQ(test.err, sweep + ": it is the directory of a sweep; expected: one of its runs; kindling runs " +
                          sweep + " lists them\n");
}

TEST_F(EvaluatedRun, TestWarnsWithoutTestData) {
  const ProgramRun tested = run_program({"test", run()});
  EXPECT_EQ(tested.exit_code, 0);
  EXPECT_NE(tested.err.find("warning: there are no test data: these are the results for the validation data"),
            std::string::npos)
      << tested.err;
  EXPECT_EQ(run_program({"validate", run()}).err.find("warning"), std::string::npos);
}

TEST_F(EvaluatedRun, PredictsTheSameIntoEveryFormat) {
  const std::string on_stdout = run_program({"predict", run()}).out;
  EXPECT_EQ(on_stdout.substr(0, 21), "sample,class,output_0");
  ASSERT_EQ(predict("p.csv").out,
            "predictions for 359 samples written to " + (scratch_ / "p.csv").string() + "\n");
  EXPECT_EQ(text_of(scratch_ / "p.csv"), on_stdout);
  ASSERT_EQ(predict("p.safetensors").exit_code, 0);
  const StateDict state = load_safetensors(scratch_ / "p.safetensors");
  ASSERT_EQ(state.tensors.size(), 3);
  const at::Tensor& outputs = *state.find("outputs");
  EXPECT_EQ(outputs.sizes(), (at::IntArrayRef{359, 10}));
  EXPECT_TRUE(at::equal(*state.find("class"), outputs.argmax(1)));
  EXPECT_TRUE(at::equal(*state.find("sample"), at::arange(359)));
  ASSERT_EQ(predict("p.jsonl").exit_code, 0);
  std::istringstream lines(text_of(scratch_ / "p.jsonl"));
  std::int64_t i = 0;
  for (std::string line; std::getline(lines, line); ++i) {
    const auto row = nlohmann::json::parse(line);
    ASSERT_EQ(row["sample"], i);
    ASSERT_EQ(row["class"], outputs[i].argmax().item<std::int64_t>());
    ASSERT_EQ(
        row["outputs"].get<std::vector<float>>(),
        std::vector<float>(outputs[i].const_data_ptr<float>(), outputs[i].const_data_ptr<float>() + 10));
  }
  EXPECT_EQ(i, 359);
}

TEST_F(EvaluatedRun, PredictsLabelsOrProbabilities) {
  ASSERT_EQ(predict("raw.safetensors").exit_code, 0);
  ASSERT_EQ(predict("p.safetensors", {"--values=probabilities"}).exit_code, 0);
  const at::Tensor outputs = *load_safetensors(scratch_ / "raw.safetensors").find("outputs");
  EXPECT_TRUE(
      at::equal(*load_safetensors(scratch_ / "p.safetensors").find("probabilities"), outputs.softmax(1)));
  ASSERT_EQ(predict("labels.csv", {"--values=labels"}).exit_code, 0);
  std::string expected = "sample,class\n";
  for (std::int64_t i = 0; i < 359; ++i)
    expected += std::to_string(i) + "," + std::to_string(outputs[i].argmax().item<std::int64_t>()) + "\n";
  EXPECT_EQ(text_of(scratch_ / "labels.csv"), expected);
}

// Batches of two samples: the output "past.0" has no row per sample.
TEST(Predictions, OfAProgramHaveAllOfItsOutputs) {
  if (!KINDLING_HAS_INTEROP) GTEST_SKIP() << "built with KINDLING_INTEROP=OFF";
  const Scratch scratch;
  torch::nn::Linear model(2, 3);
  const auto forward = [&](const Batch& batch) {
    const at::Tensor logits = model(batch[0]);
    const Batch past({logits.sum(0), logits * 2});
    return Batch::map(
        {{"logits", Batch::leaf(logits)}, {"past", past}, {"sample", Batch::leaf(logits.argmax(1))}});
  };
  const at::Tensor x = at::linspace(-2, 3, 12).view({6, 2}).sin();
  export_program(*model, forward, Batch{x}, {.path = scratch / "model.pt2"});
  save_safetensors({.tensors = {{"x", x}, {"y", at::zeros({6}, at::kLong)}}, .metadata = {}},
                   scratch / "data.safetensors");
  write_text(scratch / "c.toml",
             "[model]\nname = \"exported\"\nfile = \"model.pt2\"\n[data]\nname = \"arrays\"\nfile = "
             "\"data.safetensors\"\nbatch_size = 2\ntrain = [5, 6]\nval = [0, 5]\n");
  const std::string out = scratch / "p.safetensors";
  const ProgramRun run = run_program({"predict", "-c", scratch / "c.toml", "--out", out});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const StateDict found = load_safetensors(out);
  const at::NoGradGuard no_grad;
  const Batch wanted = forward(Batch{x.narrow(0, 0, 5)});
  EXPECT_TRUE(at::allclose(*found.find("outputs"), wanted["logits"]));
  EXPECT_TRUE(at::allclose(*found.find("past.1"), wanted["logits"] * 2));
  EXPECT_TRUE(at::equal(*found.find("output.sample"), wanted["sample"]));
  EXPECT_TRUE(at::equal(*found.find("sample"), at::arange(5, at::kLong)));
  EXPECT_EQ(found.tensors.size(), 4U);
  EXPECT_NE(run.err.find("the output 'past.0' is omitted, because it has no row per sample"),
            std::string::npos)
      << run.err;
}

TEST_F(EvaluatedRun, PythonReadsThePredictions) {
  if (!has_python("numpy, safetensors")) GTEST_SKIP() << "no numpy and safetensors in " KINDLING_VENV_PYTHON;
  ASSERT_EQ(predict("p.npz").exit_code, 0);
  ASSERT_EQ(predict("p.safetensors").exit_code, 0);
  ASSERT_EQ(predict("p.csv").exit_code, 0);
  EXPECT_EQ(python("import numpy as np\n"
                   "from safetensors.numpy import load_file\n"
                   "a, b = np.load('p.npz'), load_file('p.safetensors')\n"
                   "assert sorted(a.files) == sorted(b) == ['class', 'outputs', 'sample']\n"
                   "assert all(np.array_equal(a[k], b[k]) and a[k].dtype == b[k].dtype for k in b)\n"
                   "assert a['outputs'].shape == (359, 10) and a['outputs'].dtype == np.float32\n"
                   "c = np.loadtxt('p.csv', delimiter=',', skiprows=1)\n"
                   "assert np.array_equal(c[:, 0], a['sample']) and np.array_equal(c[:, 1], a['class'])\n"
                   "assert np.array_equal(c[:, 2:].astype(np.float32), a['outputs'])\n"),
            0);
}

TEST_F(EvaluatedRun, RefusesAFileBeforePredicting) {
  const ProgramRun extension = predict("p.mat");
  EXPECT_EQ(extension.exit_code, 2);
  EXPECT_NE(extension.err.find("unsupported extension '.mat'; expected: .csv, .jsonl, .npz, .npy, "
                               ".safetensors, HDF5 (.h5, .hdf5), or NetCDF (.nc, .nc4, .cdf); or"),
            std::string::npos)
      << extension.err;
  const ProgramRun folder = predict("nowhere/p.npz");
  EXPECT_EQ(folder.exit_code, 2);
  EXPECT_NE(folder.err.find("there is no directory"), std::string::npos) << folder.err;
  EXPECT_EQ(folder.err.find("weights  "), std::string::npos) << folder.err;
}

TEST_F(EvaluatedRun, ListsTheFirstFiveMismatchesOfWeights) {
  const auto validate = [&](const std::string& hidden) {
    return run_program({"validate", run(), "model.hidden=" + hidden, "--quiet"});
  };
  const ProgramRun many = validate("[4, 4, 4, 4]");
  EXPECT_EQ(many.exit_code, 1);
  const std::string head =
      "the values do not fit the model; expected: the names and shapes of the model; nothing was loaded; "
      "check "
      "the model's options\n  '";
  EXPECT_NE(many.err.find(head), std::string::npos) << many.err;
  EXPECT_EQ(std::count(many.err.begin(), many.err.end(), '\n'), 7) << many.err;
  EXPECT_TRUE(many.err.ends_with("\n  +2 more\n")) << many.err;  // of seven
  const ProgramRun few = validate("[]");
  EXPECT_NE(few.err.find(head), std::string::npos) << few.err;
  EXPECT_EQ(few.err.find(" more\n"), std::string::npos) << few.err;
}

// Outputs an image for each sample.
class ImageOutputs : public Module {
 public:
  ImageOutputs() : weight_(register_parameter("weight", at::ones({1}))) {}
  at::Tensor forward(const at::Tensor& x) override { return x.squeeze(1) * weight_; }
  at::Tensor loss(const at::Tensor& outputs, const at::Tensor&) override { return outputs.mean(); }

 private:
  at::Tensor weight_;
};

TEST(Prediction, OfSeveralDimensionsKeepsItsShapeExceptInCsv) {
  const Scratch scratch;
  Registry registry;
  register_builtin(registry);
  registry.model<ImageOutputs>("image_outputs");
  save_safetensors(state_dict(ImageOutputs()), scratch / "w.safetensors");
  const auto predict = [&](std::vector<std::string> more) {
    std::vector<std::string> words{"predict", "model.name=image_outputs", "data.name=digits", "--weights",
                                   scratch / "w.safetensors"};
    words.insert(words.end(), more.begin(), more.end());
    return run_program(words, registry);
  };
  for (const std::vector<std::string>& csv : {std::vector<std::string>{}, {"--out", scratch / "p.csv"}}) {
    const ProgramRun refused = predict(csv);
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_EQ(refused.out, "");
    EXPECT_NE(refused.err.find("the outputs of a sample have the shape [8, 8], which CSV cannot hold"),
              std::string::npos)
        << refused.err;
    EXPECT_NE(refused.err.find("--out predictions.npz"), std::string::npos) << refused.err;
  }
  EXPECT_FALSE(fs::exists(scratch / "p.csv"));
  ASSERT_EQ(predict({"--out", scratch / "p.safetensors"}).exit_code, 0);
  const at::Tensor images = *load_safetensors(scratch / "p.safetensors").find("outputs");
  EXPECT_EQ(images.sizes(), (at::IntArrayRef{359, 8, 8}));
  ASSERT_EQ(predict({"--out", scratch / "p.jsonl"}).exit_code, 0);
  const std::string lines = text_of(scratch / "p.jsonl");
  const auto first = nlohmann::json::parse(lines.substr(0, lines.find('\n')));
  EXPECT_EQ(first["outputs"].size(), 8);
  EXPECT_EQ(
      first["outputs"][2].get<std::vector<float>>(),
      std::vector<float>(images[0][2].const_data_ptr<float>(), images[0][2].const_data_ptr<float>() + 8));
  const ProgramRun labels = predict({"--values", "labels"});
  EXPECT_EQ(labels.exit_code, 2);
  EXPECT_NE(labels.err.find("is not a classifier; expected: --values outputs"), std::string::npos)
      << labels.err;
}

TEST(Prediction, OfComplexOrBfloat16ValuesIsNeverRounded) {
  const Scratch scratch;
  const at::Tensor values = at::tensor({1.5f, -2.0f, 0.25f, 3.0f}).view({2, 2});
  const Predictions complex{.name = "outputs", .values = at::view_as_complex(values)};
  EXPECT_THROW(csv_of(complex), ConfigError);
  EXPECT_THROW(write_predictions(complex, scratch / "p.jsonl"), ConfigError);
  write_predictions(complex, scratch / "p.safetensors");
  EXPECT_TRUE(at::equal(*load_safetensors(scratch / "p.safetensors").find("outputs"), complex.values));
  const Predictions half{.name = "outputs", .values = values.to(at::kBFloat16)};
  EXPECT_EQ(csv_of(half), "sample,output_0,output_1\n0,1.5,-2\n1,0.25,3\n");
  write_predictions(half, scratch / "p.npz");
  EXPECT_NE(text_of(scratch / "p.npz").find("'descr': '<f4', 'fortran_order': False, 'shape': (2, 2)"),
            std::string::npos);
}

TEST(Prediction, WritesAClassForEachPosition) {
  const Scratch scratch;
  const Predictions labels{.classes = at::tensor({1, 0, 2, 1}, at::kLong).view({2, 2})};
  write_predictions(labels, scratch / "p.jsonl");
  EXPECT_EQ(text_of(scratch / "p.jsonl"), "{\"sample\":0,\"class\":[1,0]}\n{\"sample\":1,\"class\":[2,1]}\n");
  EXPECT_THROW(csv_of(labels), ConfigError);
}

// argmax would take the first NaN for the largest output.
TEST(Prediction, HasNoClassForOutputsWithNaN) {
  const Scratch scratch;
  const at::Tensor outputs = at::tensor({2., 1., std::nan(""), 3., 0., 1.}, at::kDouble).view({3, 2});
  Predictions predictions{.classes = classes_without_nan(outputs)};
  EXPECT_TRUE(predictions.classes.equal(at::tensor({0, -1, 1}, at::kLong)));
  EXPECT_EQ(csv_of(predictions), "sample,class\n0,0\n1,\n2,1\n");
  predictions.class_names = {"a", "b"};
  EXPECT_EQ(csv_of(predictions), "sample,class\n0,a\n1,\n2,b\n");
  write_predictions(predictions, scratch / "p.jsonl");
  EXPECT_EQ(
      text_of(scratch / "p.jsonl"),
      "{\"sample\":0,\"class\":\"a\"}\n{\"sample\":1,\"class\":null}\n{\"sample\":2,\"class\":\"b\"}\n");
}

TEST(Prediction, WritesIntegerIdsAsNumbersAndOthersAsTexts) {
  const Scratch scratch;
  Predictions predictions{.name = "outputs",
                          .values = at::tensor({0.5f, 1.5f}),
                          .ids = {.name = "row", .values = {"-7", "9007199254740993"}}};
  write_predictions(predictions, scratch / "p.safetensors");
  const StateDict numbers = load_safetensors(scratch / "p.safetensors");
  ASSERT_NE(numbers.find("row"), nullptr);
  EXPECT_TRUE(
      at::equal(*numbers.find("row"), at::tensor({std::int64_t{-7}, std::int64_t{9007199254740993}})));
  write_predictions(predictions, scratch / "p.npz");
  EXPECT_NE(text_of(scratch / "p.npz").find("row.npy"), std::string::npos);
  EXPECT_EQ(text_of(scratch / "p.npz").find("'descr': '<U"), std::string::npos);

  for (const char* id : {"007", "1.0", "", "9223372036854775808", " 1"}) {
    predictions.ids.values[1] = id;
    write_predictions(predictions, scratch / "p.npz");
    EXPECT_NE(text_of(scratch / "p.npz").find("'descr': '<U"), std::string::npos) << id;
  }
  const LogLines log;
  write_predictions(predictions, scratch / "p.safetensors");
  EXPECT_EQ(load_safetensors(scratch / "p.safetensors").find("row"), nullptr);
  EXPECT_EQ(log.texts,
            std::vector<std::string>{(scratch / "p.safetensors").string() +
                                     " has no 'row', because safetensors files cannot hold texts; write "
                                     ".npz, .jsonl or .csv to keep it"});
}

TEST(Prediction, HasNullForWhatJsonCannotHold) {
  const Scratch scratch;
  const Predictions values{.name = "outputs", .values = at::tensor({std::nan(""), 0.5}, at::kDouble)};
  write_predictions(values, scratch / "p.jsonl");
  EXPECT_EQ(text_of(scratch / "p.jsonl"),
            "{\"sample\":0,\"outputs\":null}\n{\"sample\":1,\"outputs\":0.5}\n");
}

}  // namespace
}  // namespace kindling
