// `kindling replay` and `kindling blame` on runs of `kindling fit`. KINDLING_SOAK_REPLAYS in the environment:
// how many steps of each run are replayed.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>

#include "cli/commands/process.h"
#include "cli/commands/program_run.h"
#include "kindling/base/file.h"
#include "kindling/formats/image.h"
#include "kindling/formats/npz.h"
#include "kindling/tensors/state_dict.h"
#include "support/scratch.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

int num_replayed_steps() {
  const char* set = std::getenv("KINDLING_SOAK_REPLAYS");
  return set == nullptr ? 2 : std::max(std::atoi(set) / 5, 1);
}

void write_lines(const fs::path& file, const std::string& text) { std::ofstream(file) << text; }

// 90 rows in three classes, which the first number decides.
void write_plants(const fs::path& file) {
  std::string text = "name,size,age,kind\n";
  for (int i = 0; i < 90; ++i)
    text += "p" + std::to_string(i) + "," + std::to_string(i * 37 % 90) + "," + std::to_string(i % 7) + "," +
            (i * 37 % 90 < 30   ? "small"
             : i * 37 % 90 < 60 ? "medium"
                                : "large") +
            "\n";
  write_lines(file, text);
}

struct TrainedRun {
  const char* name;
  const char* config;
  std::int64_t num_steps;
  bool is_killed = false;
};

class ReplayedRun : public testing::TestWithParam<TrainedRun> {
 protected:
  // Kills the fit twice while it trains, and resumes it.
  void fit(const std::vector<std::string>& more = {}) {
    write_plants(scratch_ / "plants.csv");
    write_lines(scratch_ / "plants.toml",
                std::string(GetParam().config) + "\n[run]\ndir = \"" + (scratch_ / "runs").string() + "\"\n");
    std::vector<std::string> words{"fit",
                                   "-c",
                                   (scratch_ / "plants.toml").string(),
                                   "checkpoint.resume=last",
                                   "--quiet",
                                   "trainer.num_gpus=0"};
    words.insert(words.end(), more.begin(), more.end());
    for (int i = 0; GetParam().is_killed && i < 2; ++i) {
      Process process(words, scratch_ / "output.txt");
      const fs::path checkpoints = run() / "checkpoints";
      process.wait_until([&] { return fs::exists(checkpoints) && num_files(checkpoints) >= 3 + 4 * i; });
      process.send(SIGKILL);
      process.wait();
    }
    const ProgramRun fitted = run(words);
    ASSERT_EQ(fitted.exit_code, 0) << fitted.err;
  }
  static int num_files(const fs::path& folder) {
    return static_cast<int>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
  }
  // Ranks are processes of the program.
  ProgramRun run(const std::vector<std::string>& words) const {
    if (std::string(GetParam().name) != "ranks") return run_program(words);
    ProgramRun program{.exit_code = Process(words, scratch_ / "output.txt").wait(), .out = {}, .err = {}};
    program.out = program.err = read_file(scratch_ / "output.txt", std::size_t{1} << 24);
    return program;
  }
  fs::path run() const { return scratch_ / "runs/plants/0001"; }
  nlohmann::json json_of(std::vector<std::string> words) const {
    words.insert(words.begin() + 1, {run().string(), "--json"});
    const ProgramRun program = run(words);
    EXPECT_EQ(program.exit_code, 0) << program.err;
    return nlohmann::json::parse(program.out, nullptr, /*allow_exceptions=*/false);
  }

  const Scratch scratch_{memory_folder()};
};

TEST_P(ReplayedRun, IsConfirmedAtRandomSteps) {
  fit();
  std::mt19937 random(GetParam().num_steps);
  for (int i = 0; i < num_replayed_steps() && !HasFailure(); ++i) {
    const auto step =
        1 + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(GetParam().num_steps));
    const std::string text = std::to_string(step);
    nlohmann::json replayed = json_of({"replay", "--step", text});
    ASSERT_TRUE(replayed.is_object());
    EXPECT_LT(replayed["start_step"].get<std::int64_t>(), step);
    EXPECT_EQ(replayed["doubts"], nlohmann::json::array());
    // With the next record or checkpoint, if the step itself has none.
    if (replayed["confirmed_step"] < step) {
      ASSERT_TRUE(replayed.contains("next_check")) << replayed;
      const std::string until = std::to_string(replayed["next_check"].get<std::int64_t>());
      replayed = json_of({"replay", "--step", text, "--until", until});
    }
    EXPECT_GE(replayed["confirmed_step"].get<std::int64_t>(), step);
    EXPECT_EQ(replayed["steps"][0]["global_step"], step);
  }
}

// A run that begins at a step of another one, with the same config, ends with the same weights and records.
TEST_P(ReplayedRun, IsBranched) {
  fit();
  const std::int64_t step = GetParam().num_steps * 2 / 3;
  const nlohmann::json replayed = json_of({"replay", "--step", std::to_string(step), "--branch", "other"});
  const fs::path branch = scratch_ / "runs/other/0001";
  EXPECT_EQ(replayed["branch"], branch.string());
  const auto summary = [&] { return nlohmann::json::parse(std::ifstream(branch / "run.json")); };
  const nlohmann::json parent{{"run", run().string()}, {"step", step}};
  EXPECT_EQ(summary()["status"], "stopped");
  EXPECT_EQ(summary()["parent"], parent);
  const ProgramRun resumed = ReplayedRun::run({"fit", "--resume", branch.string(), "--quiet"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(summary()["status"], "finished");
  EXPECT_EQ(summary()["parent"], parent);
  const auto records = [](const fs::path& of) {
    std::vector<std::vector<double>> numbers;
    std::ifstream file(of / "metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
      const auto record = nlohmann::json::parse(line);
      numbers.push_back({record["global_step"], record.value("train_loss", 0.), record.value("val_loss", 0.),
                         record.value("train_loss_step", 0.)});
    }
    return numbers;
  };
  EXPECT_EQ(records(branch), records(run()));
  const ProgramRun same = run_program(
      {"diff", (run() / "weights.safetensors").string(), (branch / "weights.safetensors").string()});
  EXPECT_EQ(same.exit_code, 0) << same.out;
}

constexpr const char* kDigitsRun = R"(
name = "plants"
[model]
name = "small_cnn"
channels = [4, 4]
hidden = 16
[data]
name = "digits"
batch_size = 64
[optimizer]
name = "adamw"
)";

// The steps are 23 per epoch of digits, 12 with two ranks, and 5 of the table.
const std::string kCaptured = std::string(kDigitsRun) + R"(
[schedule]
name = "one_cycle"
max_lr = 0.01
[trainer]
max_epochs = 3
log_every_n_steps = 1
step_graph = "on"
[checkpoint]
every_n_steps = 10
keep_every_n_steps = 20
[ema]
decay = 0.99
)";
const std::string kEager = std::string(kDigitsRun) + R"(
[trainer]
max_epochs = 4
step_graph = "off"
accumulate_grad_batches = 3
gradient_clip_val = 1.0
val_check_interval = 0.5
[checkpoint]
every_n_steps = 7
)";
const std::string kKilled = std::string(kDigitsRun) + R"(
[[data.train_transforms]]
name = "random_crop"
size = [8, 8]
padding = 1
[trainer]
max_epochs = 6
[checkpoint]
every_n_steps = 5
keep_last = 100
)";
const std::string kRanks = std::string(kDigitsRun) + R"(
[[data.train_transforms]]
name = "random_crop"
size = [8, 8]
padding = 1
[trainer]
num_processes = 2
max_epochs = 5
[checkpoint]
every_n_steps = 5
keep_last = 3
)";
const std::string kTableRun = R"(
name = "plants"
[model]
name = "mlp"
hidden = [8]
num_classes = 3
[data]
name = "csv"
file = "plants.csv"
label = "kind"
id = "name"
val_fraction = 0.2
batch_size = 16
[optimizer]
name = "sgd"
lr = 0.1
momentum = 0.9
[trainer]
max_epochs = 8
)";

INSTANTIATE_TEST_SUITE_P(All, ReplayedRun,
                         testing::Values(TrainedRun{"captured", kCaptured.c_str(), 69},
                                         TrainedRun{"eager", kEager.c_str(), 32},
                                         TrainedRun{"killed", kKilled.c_str(), 138, true},
                                         TrainedRun{"ranks", kRanks.c_str(), 60},
                                         TrainedRun{"table", kTableRun.c_str(), 40}),
                         [](const auto& info) { return info.param.name; });

class ReplayedTable : public ReplayedRun {};

TEST_P(ReplayedTable, ShowsAndBlamesItsRows) {
  fit();
  const ProgramRun replayed = run_program(
      {"replay", run().string(), "--step", "7", "--until", "10", "--save", (scratch_ / "out").string()});
  EXPECT_EQ(replayed.exit_code, 0) << replayed.err;
  EXPECT_NE(replayed.err.find("start   the seed, because there is no earlier checkpoint, 7 steps to step 7"),
            std::string::npos)
      << replayed.err;
  for (const char* text :
       {"step 7   epoch 2, batch 1 (from 0)   loss ", "\nname   p", "inputs   [16, 2]   Float",
        "labels   [16]", "layer   gradient norm", "\nstep 10   epoch 2, batch 4",
        "confirmed up to step 10 by 2 records, 2 log digests\n"})
    EXPECT_NE(replayed.out.find(text), std::string::npos) << text << "\n" << replayed.out;
  const StateDict saved = load_safetensors(scratch_ / "out/step-00000007.safetensors");
  EXPECT_EQ(saved.find("batch.0")->sizes(), (std::vector<std::int64_t>{16, 2}));
  ASSERT_NE(saved.find("losses"), nullptr);

  const nlohmann::json blamed = json_of({"blame", "--step", "7"});
  ASSERT_EQ(blamed["samples"].size(), 16);
  const double largest = saved.find("losses")->max().item<double>();
  EXPECT_EQ(blamed["samples"][0]["loss"], largest);
  EXPECT_TRUE(blamed["samples"][0]["name"].get<std::string>().starts_with("p"));
  double sum = 0;
  for (const auto& sample : blamed["samples"]) sum += sample["loss"].get<double>();
  EXPECT_NEAR(sum / 16, blamed["step"]["loss"].get<double>(), 1e-5);

  const ProgramRun written = run_program(
      {"blame", run().string(), "--step", "7", "--html", (scratch_ / "page.html").string(), "--quiet"});
  EXPECT_EQ(written.exit_code, 0) << written.err;
  EXPECT_EQ(written.out, "");
  const std::string page = text_of(scratch_ / "page.html");
  for (const auto& sample : blamed["samples"])
    EXPECT_NE(page.find("<td class=\"text\">" + sample["name"].get<std::string>() + "</td>"),
              std::string::npos)
        << page;
  EXPECT_NE(page.find("<th class=\"text\">label</th>"), std::string::npos);
  EXPECT_NE(page.find("<td class=\"text\">medium</td>"), std::string::npos);
  EXPECT_EQ(page.find("<img"), std::string::npos);
}

// 72 samples in batches of 16, 16, 16, 16 and 8: each has the same share of the step.
TEST_P(ReplayedTable, BlamesTheSamplesOfAllBatchesOfAStep) {
  fit({"trainer.accumulate_grad_batches=5"});
  const nlohmann::json blamed = json_of({"blame", "--step", "3"});
  ASSERT_EQ(blamed["samples"].size(), 72U);
  double sum = 0, parts = 0;
  for (const auto& sample : blamed["samples"]) sum += sample["loss"].get<double>();
  for (const auto& sample : blamed["samples"]) {
    EXPECT_NEAR(sample["part"].get<double>(), sample["loss"].get<double>() / sum, 1e-9);
    parts += sample["part"].get<double>();
  }
  EXPECT_NEAR(parts, 1, 1e-9);
  EXPECT_NEAR(sum / 72, blamed["step"]["loss"].get<double>(), 1e-5);
}

// Every third label does not count.
TEST(BlamedArrays, HaveNoLabelWhereItIsIgnored) {
  const Scratch scratch{memory_folder()};
  std::vector<float> inputs;
  std::vector<std::int64_t> labels;
  for (int i = 0; i < 12; ++i) {
    inputs.push_back(static_cast<float>(i));
    labels.push_back(i % 3 == 2 ? -100 : i % 2);
  }
  write_npz(scratch / "ramp.npz",
            std::vector<TensorToWrite>{{.name = "x",
                                        .type = TensorType::float32,
                                        .shape = {12, 1},
                                        .data = inputs.data(),
                                        .size_bytes = inputs.size() * sizeof(float)},
                                       {.name = "y",
                                        .type = TensorType::int64,
                                        .shape = {12},
                                        .data = labels.data(),
                                        .size_bytes = labels.size() * sizeof(std::int64_t)}});
  write_lines(
      scratch / "ramp.toml",
      "[model]\nname = \"softmax_regression\"\n[data]\nname = \"arrays\"\nfile = \"ramp.npz\"\n"
      "val_inputs = \"x\"\nval_labels = \"y\"\nbatch_size = 12\n[trainer]\nmax_epochs = 1\n[run]\ndir = \"" +
          (scratch / "runs").string() + "\"\n");
  const ProgramRun fitted =
      run_program({"fit", "-c", (scratch / "ramp.toml").string(), "trainer.num_gpus=0", "--quiet"});
  ASSERT_EQ(fitted.exit_code, 0) << fitted.err;
  const ProgramRun written = run_program({"blame", (scratch / "runs/ramp/0001").string(), "--step", "1",
                                          "--html", (scratch / "page.html").string()});
  ASSERT_EQ(written.exit_code, 0) << written.err;
  const std::string page = text_of(scratch / "page.html");
  const auto count = [&](const std::string& cells) {
    int found = 0;
    for (std::size_t at = page.find(cells); at != std::string::npos; at = page.find(cells, at + 1)) ++found;
    return found;
  };
  const std::string next = "</td><td class=\"text\">";
  EXPECT_EQ(count(next + "0</td>"), 4) << page;
  EXPECT_EQ(count(next + "1</td>"), 4) << page;
  EXPECT_EQ(count(next + "</td>"), 4) << page;
}

TEST(BlamedImages, AreOnThePage) {
  const Scratch scratch{memory_folder()};
  write_lines(scratch / "digits.toml",
              "[model]\nname = \"softmax_regression\"\n[data]\nname = \"digits\"\nbatch_size = 32\n"
              "[trainer]\nmax_epochs = 1\n[run]\ndir = \"" +
                  (scratch / "runs").string() + "\"\n");
  const ProgramRun fitted =
      run_program({"fit", "-c", (scratch / "digits.toml").string(), "trainer.num_gpus=0", "--quiet"});
  ASSERT_EQ(fitted.exit_code, 0) << fitted.err;
  const ProgramRun written = run_program({"blame", (scratch / "runs/digits/0001").string(), "--step", "3",
                                          "--html", (scratch / "page.html").string()});
  EXPECT_EQ(written.exit_code, 0) << written.err;
  const std::string page = text_of(scratch / "page.html");
  if (!can_read_png()) GTEST_SKIP() << "built without libpng";
  std::size_t count = 0;
  for (std::size_t at = page.find("<img alt=\"Image of sample "); at != std::string::npos;
       at = page.find("<img alt=\"Image of sample ", at + 1))
    ++count;
  EXPECT_EQ(count, 20U);
  EXPECT_NE(page.find(": label "), std::string::npos) << page;
}

TEST_P(ReplayedTable, RefusesAStepOfAChangedRun) {
  fit();
  write_lines(scratch_ / "plants.csv", "name,size,age,kind\n");
  std::string text = text_of(scratch_ / "plants.csv");
  for (int i = 0; i < 90; ++i)
    text += "p" + std::to_string(i) + "," + std::to_string(i) + ",1," +
            (i < 30   ? "small"
             : i < 60 ? "medium"
                      : "large") +
            "\n";
  write_lines(scratch_ / "plants.csv", text);
  const ProgramRun replayed = run_program({"replay", run().string(), "--step", "5"});
  EXPECT_EQ(replayed.exit_code, 1);
  EXPECT_NE(replayed.err.find("the replay may differ from the run: the data have changed"), std::string::npos)
      << replayed.err;
  EXPECT_NE(replayed.err.find("step 5: the replay differs from the run: "), std::string::npos)
      << replayed.err;
}

INSTANTIATE_TEST_SUITE_P(All, ReplayedTable, testing::Values(TrainedRun{"table", kTableRun.c_str(), 40}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace kindling
