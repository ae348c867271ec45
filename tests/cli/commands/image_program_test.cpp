// `kindling export --with-transforms`: uint8 images in, labels out.
#include <ATen/ops/cat.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands/program_run.h"
#include "kindling/data/dataset.h"
#include "kindling/data/digits.h"
#include "kindling/data/image_folder.h"
#include "kindling/formats/image.h"
#include "kindling/tensors/state_dict.h"
#include "support/image_files.h"
#include "support/scratch.h"

namespace kindling {
namespace {

std::vector<at::Tensor> tensors_in(const std::shared_ptr<DataLoader>& loader) {
  return dynamic_cast<const TensorDataset&>(loader->dataset()).tensors();
}

// Digits that are predicted for training samples too.
class AllDigits : public Digits {
 public:
  explicit AllDigits(DataOptions options) : Digits(std::move(options)) {}

  std::vector<at::Tensor> all() {
    const auto train = tensors_in(train_dataloader()), val = tensors_in(val_dataloader());
    return {at::cat({train[0], val[0]}), at::cat({train[1], val[1]})};
  }
  std::shared_ptr<DataLoader> predict_dataloader() override {
    if (!loader_) loader_ = get_tensorloader(all(), /*train=*/false);
    return loader_;
  }

 private:
  std::shared_ptr<DataLoader> loader_;
};

class ImageProgram : public testing::Test {
 protected:
  void SetUp() override {
    if (!KINDLING_HAS_INTEROP) GTEST_SKIP() << "built with KINDLING_INTEROP=OFF";
    register_builtin(registry_);
    registry_.data<AllDigits>("all_digits", "digits, all of which are predicted");
  }
  ProgramRun run(std::vector<std::string> words) { return run_program(std::move(words), registry_); }

  // Trains a few steps; returns the run.
  std::string fit(const std::string& name, const std::string& model, const std::string& data) {
    write_text(scratch_ / (name + ".toml"),
               "[model]\n" + model + "[data]\n" + data +
                   "[optimizer]\nname = \"adam\"\nlr = 0.01\n[trainer]\nmax_epochs = 2\nnum_threads = 1\n"
                   "num_gpus = 0\n");
    const ProgramRun fitted = run({"fit", scratch_ / (name + ".toml"), "--quiet", "--progress=none",
                                   "run.dir=" + (scratch_ / "runs").string()});
    EXPECT_EQ(fitted.exit_code, 0) << fitted.err;
    return (scratch_ / "runs" / name / "0001").string();
  }
  // Writes what image_programs.py compares.
  void write_case(const std::string& name, const std::string& run_folder, const at::Tensor& raw) {
    StateDict images;
    images.tensors.emplace_back("images", raw);
    save_torch(images, scratch_ / (name + ".images.pt"));
    const ProgramRun predicted = run(
        {"predict", run_folder, "--values=probabilities", "--out", scratch_ / (name + ".npz"), "--quiet"});
    EXPECT_EQ(predicted.exit_code, 0) << predicted.err;
    for (const std::string values : {"labels", "probabilities"})
      for (const std::string ending : {".pt2", ".onnx"})
        export_values(run_folder, values, scratch_ / (name + "." + values + ending));
  }
  void export_values(const std::string& run_folder, const std::string& values, const std::string& out) {
    const ProgramRun exported = run({"export", run_folder, out, "--with-transforms", "--values", values});
    EXPECT_EQ(exported.exit_code, 0) << exported.err;
  }
  void expect_refused(const std::vector<std::string>& words, const std::string& message) {
    const ProgramRun refused = run(words);
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_NE(refused.err.find(message), std::string::npos) << refused.err;
  }

  Registry registry_;
  Scratch scratch_;
};

constexpr const char* kMlp = "name = \"mlp\"\nhidden = [16]\nnum_classes = 10\n";
constexpr const char* kResizing =
    "[[data.train_transforms]]\nname = \"resize\"\nsize = [6, 5]\n"
    "[[data.train_transforms]]\nname = \"normalize\"\nmean = [0.3]\nstd = [0.3]\n"
    "[[data.val_transforms]]\nname = \"resize\"\nsize = [6, 5]\n"
    "[[data.val_transforms]]\nname = \"normalize\"\nmean = [0.3]\nstd = [0.3]\n";

// The raw images of the validation samples, in the order of the predictions.
at::Tensor validation_files(const std::filesystem::path& root) {
  ImageFolder folder({.root = root, .val_fraction = 0.2, .stratify = true}, {.num_workers = 0});
  folder.prepare();
  std::vector<at::Tensor> images;
  for (const Batch& batch : *folder.val_dataloader()) images.push_back(batch[0].clone());
  return at::cat(images);
}

TEST_F(ImageProgram, EqualsPredictionsForEveryImage) {
  if (!can_read_png()) GTEST_SKIP() << "built without libpng";
  const std::filesystem::path tests = std::filesystem::path(KINDLING_CONFIGS).parent_path() / "tests";
  const std::string script = KINDLING_VENV_PYTHON " " + (tests / "cli/commands/image_programs.py").string();
  if (std::system((script + " >/dev/null 2>&1").c_str()) != 0)
    GTEST_SKIP() << "Python cannot import torch, onnxruntime and numpy";
  const at::Tensor digits = AllDigits(DataOptions{}).all()[0];
  ASSERT_EQ(digits.size(0), 1797);
  write_case("digits", fit("digits", kMlp, "name = \"all_digits\"\n"), digits);
  write_case("resized", fit("resized", kMlp, "name = \"all_digits\"\n" + std::string(kResizing)), digits);
  write_day_and_night(scratch_ / "images", 20);
  const std::string files = fit("files", "name = \"mlp\"\nhidden = [8]\nnum_classes = 2\n",
                                "name = \"image_folder\"\nroot = \"images\"\nval_fraction = 0.2\n"
                                "stratify = true\nbatch_size = 5\nnormalize = [0.5, 0.25]\n");
  write_case("files", files, validation_files(scratch_ / "images"));
  EXPECT_EQ(std::system((script + " " + scratch_.folder().string()).c_str()), 0);
  // A .pt2 file that is converted keeps the names of the classes.
  ASSERT_EQ(run({"export", scratch_ / "files.labels.pt2", scratch_ / "converted.onnx"}).exit_code, 0);
  EXPECT_TRUE(text_of(scratch_ / "converted.onnx") == text_of(scratch_ / "files.labels.onnx"));
}

// A class that is added to the directories after the training moves the numbers of those after it.
TEST_F(ImageProgram, NamesOfClassesAreThoseOfTheTraining) {
  if (!can_read_png()) GTEST_SKIP() << "built without libpng";
  write_day_and_night(scratch_ / "images", 10);
  const std::string files = fit("files", "name = \"mlp\"\nhidden = [8]\nnum_classes = 2\n",
                                "name = \"image_folder\"\nroot = \"images\"\nval_fraction = 0.2\n"
                                "stratify = true\nbatch_size = 5\n");
  for (int i = 0; i < 5; ++i) write_png(scratch_ / "images" / "dawn" / (std::to_string(i) + ".png"), 8, 8);
  const std::string warning =
      "warning: data: the classes are not those of the training (class 0 was 'day' before and is 'dawn' now)";
  const ProgramRun predicted = run({"predict", files, "--quiet"}), validated = run({"validate", files});
  EXPECT_EQ(predicted.exit_code, 0);
  EXPECT_TRUE(predicted.err.starts_with(warning)) << predicted.err;
  EXPECT_EQ(predicted.out.find(",dawn,"), std::string::npos) << predicted.out;
  EXPECT_NE(predicted.out.find(",night,"), std::string::npos) << predicted.out;
  EXPECT_NE(validated.err.find(warning), std::string::npos) << validated.err;
  for (const char* name : {"a.pt2", "a.onnx"}) {
    export_values(files, "labels", scratch_ / name);
    EXPECT_EQ(text_of(scratch_ / name).find("dawn"), std::string::npos) << name;
    EXPECT_NE(text_of(scratch_ / name).find("[\"day\",\"night\"]"), std::string::npos) << name;
  }
}

TEST_F(ImageProgram, RefusesWhatHasNoTransformsOrLabels) {
  const std::string digits = fit("digits", kMlp, "name = \"digits\"\n");
  const std::string line = fit("line", "name = \"linear_regression\"\n", "name = \"synthetic_regression\"\n");
  expect_refused({"export", line, scratch_ / "a.pt2", "--with-transforms"},
                 "a.pt2 with the transforms of the data: the data have none: the model takes a batch as the "
                 "loader returns it; expected: data such as images, whose pixels are scaled, or an export "
                 "without the transforms");
  expect_refused(
      {"export", line, scratch_ / "a.onnx", "--values=labels"},
      "a.onnx: kindling::LinearRegression is not a classifier, so it has no probabilities or labels; "
      "expected: its outputs");
  expect_refused({"export", digits, scratch_ / "a.pt2", "--train", "--values=labels"},
                 "a.pt2: a program in training mode returns the outputs, which the loss takes");
  expect_refused({"export", digits, scratch_ / "a.pt", "--with-transforms"},
                 "--with-transforms: " + (scratch_ / "a.pt").string() + " is a weights file");
  expect_refused({"export", digits, scratch_ / "a.safetensors", "--values=labels"},
                 "--values: " + (scratch_ / "a.safetensors").string() + " is a weights file");
  export_values(digits, "outputs", scratch_ / "model.pt2");
  expect_refused({"export", scratch_ / "model.pt2", scratch_ / "a.onnx", "--with-transforms"},
                 "an exported program is converted unchanged");
  EXPECT_NE(run({"export", digits, scratch_ / "a.pt", "--optimizer", "--with-transforms"}).exit_code, 0);
  for (const char* name : {"a.pt2", "a.onnx", "a.pt", "a.safetensors"})
    EXPECT_FALSE(std::filesystem::exists(scratch_ / name)) << name;
}

}  // namespace
}  // namespace kindling
