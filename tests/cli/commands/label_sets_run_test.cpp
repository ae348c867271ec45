// Runs on tables whose cells have several labels, from a config alone.
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "cli/commands/program_run.h"
#include "cli/run/same_run.h"
#include "kindling/formats/image.h"
#include "support/image_files.h"
#include "support/scratch.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

class LabelSetRun : public testing::Test {
 protected:
  // A row has the label a if x > 0, b if y > 0, and c if both differ.
  void SetUp() override {
    std::string text = "row,x,y,tags\n";
    for (int i = 0; i < 96; ++i) {
      const int x = i * 7 % 12 * 2 - 11, y = i * 5 % 16 * 2 - 15;
      std::string tags = x > 0 ? "a" : "";
      if (y > 0) tags += tags.empty() ? "b" : ";b";
      if ((x > 0) != (y > 0)) tags += ";c";
      text += "r" + std::to_string(i) + "," + std::to_string(x) + "," + std::to_string(y) + "," + tags + "\n";
    }
    write_text(scratch_ / "tags.csv", text);
    write_text(
        scratch_ / "tags.toml",
        "[model]\nname = \"mlp\"\nhidden = [16]\nnum_classes = 3\nmulti_label = true\nmetrics = "
        "[\"f1_macro\", \"f1_per_class\"]\n[data]\nname = \"csv\"\nfile = \"tags.csv\"\nlabel = \"tags\"\n"
        "label_separator = \";\"\nid = \"row\"\nval_fraction = 0.25\nstratify = true\nbatch_size = 8\n"
        "[optimizer]\nname = \"adam\"\nlr = 0.02\n[trainer]\nmax_epochs = 12\nnum_threads = 1\n"
        "num_gpus = 0\n");
  }
  ProgramRun fit(const std::string& runs, std::vector<std::string> more = {}) {
    std::vector<std::string> words{"fit", scratch_ / "tags.toml", "--quiet", "--progress=none",
                                   "run.dir=" + (scratch_ / runs).string()};
    words.insert(words.end(), more.begin(), more.end());
    return run_program(words);
  }
  fs::path run(const std::string& runs = "runs") const { return scratch_ / runs / "tags/0001"; }
  static std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
  }

  Scratch scratch_;
};

TEST_F(LabelSetRun, PredictsTheNamesOfAllClasses) {
  const ProgramRun fitted = fit("runs");
  ASSERT_EQ(fitted.exit_code, 0) << fitted.err;
  EXPECT_GT(records_of(run()).back()["val_f1_macro"], 0.8);
  EXPECT_NE(text_of(run() / "log.txt").find("24 of 96 rows have no label, which is 0 for every class"),
            std::string::npos);

  const auto predict = [&](const std::string& name, const std::string& values) {
    const ProgramRun predicted = run_program(
        {"predict", run().string(), "--quiet", "--values", values, "--out", (scratch_ / name).string()});
    EXPECT_EQ(predicted.exit_code, 0) << predicted.err;
    return lines_of(text_of(scratch_ / name));
  };
  const std::vector<std::string> rows = predict("p.csv", "probabilities"),
                                 objects = predict("p.jsonl", "labels");
  ASSERT_EQ(rows.size(), 25U);
  ASSERT_EQ(objects.size(), 24U);
  EXPECT_EQ(rows[0], "sample,row,classes,probability_0,probability_1,probability_2");
  for (std::size_t i = 0; i < 24; ++i) {
    std::istringstream cells(rows[i + 1]);
    std::vector<std::string> row;
    for (std::string cell; std::getline(cells, cell, ',');) row.push_back(cell);
    ASSERT_EQ(row.size(), 6U) << rows[i + 1];
    std::string expected;
    nlohmann::json names = nlohmann::json::array(), labels = nlohmann::json::array();
    for (std::size_t c = 0; c < 3; ++c) {
      const bool is_above = std::stod(row[3 + c]) > 0.5;
      labels.push_back(is_above ? 1 : 0);
      if (!is_above) continue;
      expected += (expected.empty() ? "" : "|") + std::string(1, static_cast<char>('a' + c));
      names.push_back(std::string(1, static_cast<char>('a' + c)));
    }
    EXPECT_EQ(row[2], expected);
    const auto object = nlohmann::json::parse(objects[i]);
    EXPECT_EQ(object["row"], row[1]);
    EXPECT_EQ(object["classes"], names);
    EXPECT_EQ(object["labels"], labels);
  }
}

TEST_F(LabelSetRun, ReportsTheScoresOfEachClass) {
  ASSERT_EQ(fit("runs").exit_code, 0);
  const std::vector<std::string> scores = lines_of(text_of(run() / "class_scores.csv"));
  ASSERT_EQ(scores.size(), 4U);
  EXPECT_EQ(scores[0], "class,labels,predicted,both,precision,recall,f1");
  const auto record = records_of(run()).back();
  double sum = 0;
  for (std::size_t c = 0; c < 3; ++c) {
    EXPECT_TRUE(scores[c + 1].starts_with(std::string(1, static_cast<char>('a' + c)) + ",12,"))
        << scores[c + 1];
    sum += std::stod(scores[c + 1].substr(scores[c + 1].rfind(',') + 1));
  }
  const ProgramRun validated = run_program({"validate", run().string()});
  const std::size_t at = validated.out.find("val_f1_macro ");
  ASSERT_NE(at, std::string::npos) << validated.out;
  EXPECT_NEAR(sum / 3, std::stod(validated.out.substr(at + 13)), 1e-6);
  EXPECT_FALSE(fs::exists(run() / "confusion_matrix.csv"));
  EXPECT_NE(text_of(run() / "report.html").find("<h2>Classes of the validation samples</h2>"),
            std::string::npos);
  EXPECT_NE(run_program({"plot", run().string()}).out.find("Classes of the validation samples"),
            std::string::npos);
}

TEST_F(LabelSetRun, ResumesBitIdenticallyInAnEpoch) {
  ASSERT_EQ(fit("straight", {"trainer.max_epochs=3"}).exit_code, 0);
  ASSERT_EQ(fit("stopped", {"trainer.max_epochs=3", "checkpoint.every_n_steps=4", "checkpoint.keep_last=20"})
                .exit_code,
            0);
  const fs::path middle = run("stopped") / "checkpoints/step-00000012.safetensors";  // of an epoch of 9 steps
  fs::remove(run("stopped") / "weights.safetensors");
  const ProgramRun resumed = run_program({"fit", "--resume", middle.string(), "--progress=none"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_TRUE(text_of(run("stopped") / "weights.safetensors") ==
              text_of(run("straight") / "weights.safetensors"));
}

TEST_F(LabelSetRun, TrainsAsPyTorch) {
  const fs::path script = fs::path(KINDLING_CONFIGS).parent_path() / "tests/cli/commands/label_sets_twin.py";
  const std::string python = KINDLING_VENV_PYTHON " " + script.string();
  if (std::system((python + " >/dev/null 2>&1").c_str()) != 0)
    GTEST_SKIP() << "needs torch and safetensors in Python";
  fs::create_directories(scratch_ / "twin");
  EXPECT_EQ(std::system((python + " " KINDLING_PROGRAM " " + (scratch_ / "twin").string()).c_str()), 0);
}

TEST_F(LabelSetRun, ChoosesTheModelOfAColumn) {
  const ProgramRun fitted =
      run_program({"fit", "--progress=none", "data.file=" + (scratch_ / "tags.csv").string(),
                   "data.label=tags", "data.label_separator=;", "data.id=row",
                   "run.dir=" + (scratch_ / "runs").string(), "trainer.num_gpus=0", "trainer.max_epochs=1"});
  ASSERT_EQ(fitted.exit_code, 0) << fitted.err;
  for (const char* const line : {"model.num_classes = 3", "model.multi_label = true"})
    EXPECT_NE(fitted.out.find(line), std::string::npos) << fitted.out;
}

TEST_F(LabelSetRun, RefusesModelsThatDoNotFit) {
  const auto refusal = [&](const std::vector<std::string>& more) {
    const ProgramRun refused = fit("refused", more);
    EXPECT_NE(refused.exit_code, 0);
    return refused.err;
  };
  EXPECT_NE(
      refusal({"model.multi_label=false"})
          .find("'model.multi_label': it is false, and a sample has several labels (data.label_separator); "
                "expected: multi_label = true"),
      std::string::npos);
  EXPECT_NE(
      refusal({"model.num_classes=5"})
          .find("'model.num_classes': the data has 3 classes (a, b, c), but num_classes = 5; expected: 3, a "
                "yes or no of each"),
      std::string::npos);
  EXPECT_NE(refusal({"data.label_separator="}).find("multi_label"), std::string::npos);
  EXPECT_NE(refusal({"model.class_weights=\"balanced\""}).find("pos_weight"), std::string::npos);
}

TEST_F(LabelSetRun, CountsTheSamplesOfEachClass) {
  const ProgramRun checked = run_program({"data", "check", (scratch_ / "tags.toml").string()});
  ASSERT_EQ(checked.exit_code, 0) << checked.err;
  EXPECT_NE(checked.out.find("a       36 (50.0%)   12 (50.0%)"), std::string::npos) << checked.out;
}

// Bright upper halves are days, bright lower ones nights, and both may be.
TEST_F(LabelSetRun, LearnsFromImagesInATable) {
  if (!can_read_png()) GTEST_SKIP() << "built without libpng";
  write_day_and_night(scratch_ / "images", 20);
  std::string list = "path,tags\n";
  for (int i = 0; i < 20; ++i)
    for (const char* const name : {"day", "night"})
      list += std::string("images/") + name + "/" + std::to_string(100 + i) + ".png," + name + "|sky\n";
  write_text(scratch_ / "files.csv", list);
  write_text(
      scratch_ / "tags.toml",
      "[model]\nname = \"mlp\"\nhidden = [8]\nnum_classes = 3\nmulti_label = true\n[data]\nname = "
      "\"image_folder\"\nlist = \"files.csv\"\nimage = \"path\"\nlabel = \"tags\"\nlabel_separator = \"|\"\n"
      "val_fraction = 0.2\nstratify = true\nbatch_size = 5\n[[data.train_transforms]]\nname = \"mix_up\"\n"
      "num_classes = 3\nalpha = 0.1\n[optimizer]\nname = \"adam\"\nlr = 0.02\n[trainer]\nmax_epochs = 10\n"
      "num_threads = 1\nnum_gpus = 0\n");
  const ProgramRun fitted = fit("runs");
  ASSERT_EQ(fitted.exit_code, 0) << fitted.err;
  EXPECT_EQ(records_of(run()).back()["val_acc"], 1.0);
  const ProgramRun predicted = run_program({"predict", run().string(), "--quiet"});
  const std::vector<std::string> rows = lines_of(predicted.out);
  ASSERT_EQ(rows.size(), 9U);
  EXPECT_TRUE(rows[0].starts_with("sample,file,classes,output_0")) << rows[0];
  for (std::size_t i = 1; i < rows.size(); ++i)
    EXPECT_NE(rows[i].find(rows[i].find("/day/") != std::string::npos ? ",day|sky," : ",night|sky,"),
              std::string::npos)
        << rows[i];
}

}  // namespace
}  // namespace kindling
