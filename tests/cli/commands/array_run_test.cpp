// A run on arrays, from the config to predictions of another file.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "cli/commands/program_run.h"
#include "cli/run/same_run.h"
#include "kindling/data/dataset.h"
#include "kindling/data/digits.h"
#include "kindling/formats/npz.h"
#include "support/scratch.h"

namespace kindling {
namespace {

class ArrayRun : public testing::Test {
 protected:
  void SetUp() override {
    Digits digits;
    const auto tensors = [](const std::shared_ptr<DataLoader>& loader) {
      return dynamic_cast<const TensorDataset&>(loader->dataset()).tensors();
    };
    const auto train = tensors(digits.train_dataloader()), val = tensors(digits.val_dataloader());
    write("digits.npz", {{"x", train[0]}, {"y", train[1]}, {"x_test", val[0]}, {"y_test", val[1]}});
    write("new.npz", {{"x", val[0].narrow(0, 0, 5).contiguous()}});
    write_text(
        scratch_ / "digits.toml",
        "[model]\nname = \"softmax_regression\"\n[data]\nname = \"arrays\"\nfile = \"digits.npz\"\n"
        "val_inputs = \"x_test\"\nval_labels = \"y_test\"\ndivisor = 16\n[optimizer]\nname = \"adam\"\n"
        "lr = 0.02\n[trainer]\nmax_epochs = 5\nnum_threads = 1\nnum_gpus = 0\n");
  }
  void write(const std::string& name, const std::vector<std::pair<std::string, at::Tensor>>& tensors) {
    std::vector<TensorToWrite> arrays;
    for (const auto& [key, tensor] : tensors)
      arrays.push_back({.name = key,
                        .type = TensorType::uint8,
                        .shape = tensor.sizes().vec(),
                        .data = tensor.const_data_ptr(),
                        .size_bytes = tensor.nbytes()});
    write_npz(scratch_ / name, arrays);
  }
  ProgramRun fit(std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"fit", scratch_ / "digits.toml", "--quiet", "--progress=none",
                               "run.dir=" + (scratch_ / "runs").string()});
    return run_program(more);
  }

  Scratch scratch_;
};

// A linear layer takes one size.
TEST_F(ArrayRun, NamesTheSizesThatAModelCannotTake) {
  const ProgramRun of_patches = fit({"data.patch=[4,4]"});
  EXPECT_EQ(of_patches.exit_code, 1);
  EXPECT_NE(of_patches.err.find("model 'softmax_regression', validation: "), std::string::npos)
      << of_patches.err;
  EXPECT_NE(of_patches.err.find("(with a batch of Float [64, 1, 8, 8], Long [64])"), std::string::npos)
      << of_patches.err;
  EXPECT_NE(of_patches.err.find("or remove data.patch"), std::string::npos) << of_patches.err;
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "runs/digits/0001"));
  ASSERT_EQ(fit().exit_code, 0);
  write("large.npz", {{"x", at::zeros({3, 1, 9, 12}, at::kByte)}});
  const ProgramRun predicted =
      run_program({"predict", scratch_ / "runs/digits/0001", scratch_ / "large.npz"});
  EXPECT_NE(predicted.exit_code, 0);
  EXPECT_NE(predicted.err.find("Trainer::predict: "), std::string::npos) << predicted.err;
  EXPECT_NE(predicted.err.find("with a batch of Float [3, 1, 9, 12]"), std::string::npos) << predicted.err;
}

TEST_F(ArrayRun, LearnsAndPredictsAnotherFile) {
  ASSERT_EQ(fit().exit_code, 0);
  const std::string run = scratch_ / "runs/digits/0001";
  EXPECT_GT(records_of(run).back()["val_acc"], 0.9);
  const ProgramRun predicted =
      run_program({"predict", run, scratch_ / "new.npz", "--values=labels", "--quiet"});
  EXPECT_EQ(predicted.exit_code, 0) << predicted.err;
  EXPECT_EQ(std::ranges::count(predicted.out, '\n'), 6) << predicted.out;  // a header and five samples
  const ProgramRun checked = run_program({"data", "check", scratch_ / "digits.toml"});
  EXPECT_EQ(checked.exit_code, 0) << checked.err;
  EXPECT_NE(checked.out.find("[1, 8, 8]"), std::string::npos) << checked.out;
  EXPECT_EQ(checked.out.find("test"), std::string::npos) << checked.out;  // the validation samples
}

// Two labels per digit: it is even, and it is above 4.
TEST_F(ArrayRun, LearnsSeveralLabelsPerSample) {
  Digits digits;
  const auto labelled = [](const std::shared_ptr<DataLoader>& loader) {
    const auto& tensors = dynamic_cast<const TensorDataset&>(loader->dataset()).tensors();
    const at::Tensor digit = tensors[1];
    return std::pair(tensors[0],
                     at::stack({digit.remainder(2).eq(0), digit.gt(4)}, 1).to(at::kByte).contiguous());
  };
  const auto [x, y] = labelled(digits.train_dataloader());
  const auto [x_test, y_test] = labelled(digits.val_dataloader());
  write("digits.npz", {{"x", x}, {"y", y}, {"x_test", x_test}, {"y_test", y_test}});
  write_text(scratch_ / "digits.toml",
             "[model]\nname = \"mlp\"\nhidden = [32]\nnum_classes = 2\nmulti_label = true\n"
             "metrics = [\"f1_macro\"]\n[data]\nname = \"arrays\"\nfile = \"digits.npz\"\n"
             "val_inputs = \"x_test\"\nval_labels = \"y_test\"\ndivisor = 16\n[optimizer]\nname = \"adam\"\n"
             "lr = 0.02\n[trainer]\nmax_epochs = 5\nnum_threads = 1\nnum_gpus = 0\n");
  const ProgramRun result = fit();
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto last = records_of(scratch_ / "runs/digits/0001").back();
  EXPECT_GT(last["val_acc"], 0.9);
  EXPECT_GT(last["val_f1_macro"], 0.9);
  const ProgramRun wrong = fit({"model.multi_label=false"});
  EXPECT_NE(wrong.exit_code, 0);
  EXPECT_NE(wrong.err.find("multi_label"), std::string::npos) << wrong.err;
}

TEST_F(ArrayRun, ExplainsSamplesThatDoNotFitTheModel) {
  const at::Tensor images = at::zeros({80, 8, 8}, at::kByte),
                   classes = at::arange(80, at::kByte).remainder(10);
  write("flat.npz", {{"x", images}, {"y", classes}, {"x_test", images}, {"y_test", classes}});
  const std::string file = "data.file=" + (scratch_ / "flat.npz").string();
  EXPECT_EQ(fit({file, "model.name=small_cnn"}).err,
            "model 'small_cnn': the samples are Float [8, 8], without channels; expected: images "
            "[channels, height, width]; add a dimension, in NumPy x[:, None]\n");
  const at::Tensor numbers = at::arange(80 * 4).view({80, 4});
  const TensorToWrite wide{.name = "x",
                           .type = TensorType::int64,
                           .shape = {80, 4},
                           .data = numbers.const_data_ptr(),
                           .size_bytes = numbers.nbytes()};
  TensorToWrite labels{.name = "y",
                       .type = TensorType::uint8,
                       .shape = {80},
                       .data = classes.const_data_ptr(),
                       .size_bytes = classes.nbytes()};
  write_npz(scratch_ / "wide.npz", std::vector<TensorToWrite>{wide, labels});
  const std::string wide_file = "data.file=" + (scratch_ / "wide.npz").string();
  EXPECT_EQ(fit({wide_file, "data.val_inputs=", "data.val_labels=", "data.divisor=1"}).err,
            "model 'softmax_regression': the samples are Long [4], and its layers take floating-point "
            "numbers; expected: float32; set data.divisor or data.normalize = [0.0, 1.0]\n");
}

TEST_F(ArrayRun, RefusesANegativeLabelBeforeTheRun) {
  const at::Tensor images = at::zeros({80, 64}, at::kByte);
  at::Tensor classes = at::arange(80).remainder(10);
  classes[79] = -1;
  const TensorToWrite x{.name = "x",
                        .type = TensorType::uint8,
                        .shape = {80, 64},
                        .data = images.const_data_ptr(),
                        .size_bytes = images.nbytes()},
      y{.name = "y",
        .type = TensorType::int64,
        .shape = {80},
        .data = classes.const_data_ptr(),
        .size_bytes = classes.nbytes()};
  write_npz(scratch_ / "negative.npz", std::vector<TensorToWrite>{x, y});
  const ProgramRun refused =
      fit({"data.file=" + (scratch_ / "negative.npz").string(), "data.val_inputs=", "data.val_labels="});
  EXPECT_EQ(refused.exit_code, 3);
  EXPECT_NE(refused.err.find("a label of the data is -1"), std::string::npos) << refused.err;
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "runs"));
}

TEST_F(ArrayRun, RefusesNamesThatTheFileLacks) {
  const ProgramRun refused = fit({"data.inputs=X"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.err.find("digits.npz has no array 'X'"), std::string::npos) << refused.err;
  EXPECT_NE(refused.err.find("did you mean 'x'?"), std::string::npos) << refused.err;
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "runs"));
}

}  // namespace
}  // namespace kindling
