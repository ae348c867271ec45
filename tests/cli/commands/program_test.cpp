#include "kindling/cli/program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>

#include "cli/commands/on_terminal.h"
#include "cli/commands/program_run.h"
#include "support/scratch.h"

namespace kindling {
namespace {

using Json = nlohmann::json;

const char* const kSmallRun = R"(
[model]
name = "mlp"
hidden = [16]
[data]
name = "digits"
batch_size = 100
[trainer]
max_epochs = 2
)";

std::vector<std::string> small_fit(const Scratch& scratch, std::vector<std::string> more = {}) {
  write_text(scratch / "small.toml", kSmallRun);
  std::vector<std::string> words{"fit", "-c", (scratch / "small.toml").string(), "--run.dir",
                                 (scratch / "runs").string()};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST(Program, WritesARunFolder) {
  const Scratch scratch;
  const ProgramRun run = run_program(small_fit(scratch, {"trainer.log_every_n_steps=10"}));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto folder = scratch / "runs/small/0001";
  for (const char* file : {"config.toml", "command.txt", "run.json", "log.txt", "metrics.jsonl",
                           "metrics.csv", "curves.svg", "model.csv", "report.html", "weights.safetensors"})
    EXPECT_TRUE(std::filesystem::exists(folder / file)) << file;
  int num_event_files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    num_event_files += entry.path().filename().string().starts_with("events.out.tfevents.");
  EXPECT_EQ(num_event_files, 1);
  const Json summary = Json::parse(text_of(folder / "run.json"));
  EXPECT_EQ(summary["status"], "finished");
  EXPECT_EQ(summary["global_step"], 30);  // 1,438 training samples in batches of 100, two epochs
  EXPECT_EQ(summary["best"]["name"], "val_acc");
  EXPECT_EQ(text_of(folder / "command.txt").substr(0, 15), "kindling fit -c");
}

TEST(Program, LogsTheTableOfEpochsOfTheScreen) {
  const Scratch scratch;
  const std::string log_file = scratch / "runs/small/0001/log.txt";
  const auto table_of = [](const std::string& text, std::size_t prefix) {
    std::string table;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);)
      if (line.size() > prefix &&
          (line.substr(prefix).starts_with("epoch  train loss") || line.substr(prefix).starts_with("    ")) &&
          line.find("kindling ") == std::string::npos)
        table += line.substr(prefix) + "\n";
    return table;
  };
  constexpr std::size_t kTime = std::string_view("2026-03-01 12:00:00.123 info: ").size();
  const ProgramRun first = run_program(small_fit(scratch, {"optimizer.lr=1e-12"}));  // no epoch is better
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const std::string table = table_of(first.out, 0);
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 3) << table;  // titles and two epochs
  EXPECT_TRUE(table.starts_with("epoch  train loss ")) << table;
  EXPECT_NE(table.find(" * best"), std::string::npos) << table;
  EXPECT_EQ(table_of(text_of(log_file), kTime), table);
  // A resumed run compares with the best value of the epochs before.
  const std::string folder = log_file.substr(0, log_file.rfind('/'));
  const ProgramRun more = run_program({"fit", "--resume", folder, "trainer.max_epochs=3"});
  ASSERT_EQ(more.exit_code, 0) << more.err;
  EXPECT_EQ(table_of(text_of(log_file), kTime), table + table_of(more.out, 0));
  EXPECT_EQ(table_of(more.out, 0).find('*'), std::string::npos) << more.out;
}

TEST(Program, RecordsTheProjectAndTheDataOfARun) {
  const Scratch scratch;
  std::filesystem::create_directory(scratch / ".git");
  write_text(scratch / ".git/HEAD", "ref: refs/heads/main\n");
  write_text(scratch / ".git/packed-refs", std::string(40, 'a') + " refs/heads/main\n");
  const auto folder = scratch / "runs/small/0001";
  const auto summary = [&] { return Json::parse(text_of(folder / "run.json")); };
  ASSERT_EQ(run_program(small_fit(scratch)).exit_code, 0);
  const Json first = summary();
  EXPECT_EQ(first["git"], (Json{{"commit", std::string(40, 'a')}, {"branch", "main"}}));
  EXPECT_EQ(first["data"]["name"], "digits");
  EXPECT_EQ(first["data"]["train"], 1438);
  EXPECT_EQ(first["data"]["val"], 359);
  EXPECT_EQ(first["data"]["checksum"].get<std::string>().size(), 16U);
  EXPECT_NE(text_of(folder / "report.html").find("<dt>git commit</dt><dd>aaaaaaaaaaaa (main)</dd>"),
            std::string::npos);
  write_text(scratch / ".git/HEAD", std::string(40, 'b') + "\n");
  ASSERT_EQ(run_program({"fit", "--resume", folder.string(), "trainer.max_epochs=3"}).exit_code, 0);
  EXPECT_EQ(summary()["git"], (Json{{"commit", std::string(40, 'b')}}));
  EXPECT_EQ(summary()["data"], first["data"]);
}

TEST(Program, WritesEveryKeyOfTheRecords) {
  const Scratch scratch;
  ASSERT_EQ(run_program(small_fit(scratch, {"trainer.log_every_n_steps=10", "trainer.gradient_clip_val=1"}))
                .exit_code,
            0);
  std::istringstream lines(text_of(scratch / "runs/small/0001/metrics.jsonl"));
  std::vector<Json> steps, epochs;
  for (std::string line; std::getline(lines, line);) {
    Json record = Json::parse(line);
    (record.contains("train_loss_step") ? steps : epochs).push_back(record);
  }
  ASSERT_EQ(steps.size(), 3u);
  ASSERT_EQ(epochs.size(), 2u);
  for (const char* key : {"global_step", "epoch", "train_loss_step", "lr", "grad_norm"})
    EXPECT_TRUE(steps[0].contains(key)) << key;
  for (const char* key : {"epoch", "global_step", "train_loss", "train_acc", "val_loss", "val_acc", "lr",
                          "epoch_time_s", "samples_per_s", "data_wait_share", "host_waits",
                          "device_to_host_copies", "device_to_host_bytes", "host_to_device_bytes"})
    EXPECT_TRUE(epochs[0].contains(key)) << key;
  EXPECT_EQ(steps[2]["global_step"], 30);
  EXPECT_EQ(epochs[1]["epoch"], 2);
}

TEST(Program, NumbersItsRuns) {
  const Scratch scratch;
  EXPECT_EQ(run_program(small_fit(scratch)).exit_code, 0);
  EXPECT_EQ(run_program(small_fit(scratch)).exit_code, 0);
  EXPECT_TRUE(std::filesystem::exists(scratch / "runs/small/0002/weights.safetensors"));
}

TEST(Program, ResolvedConfigReproducesTheRun) {
  const Scratch scratch;
  ASSERT_EQ(run_program(small_fit(scratch)).exit_code, 0);
  const auto resolved = scratch / "runs/small/0001/config.toml";
  ASSERT_EQ(run_program({"fit", "-c", resolved.string()}).exit_code, 0);
  const Json first = Json::parse(text_of(scratch / "runs/small/0001/run.json"));
  const Json second = Json::parse(text_of(scratch / "runs/small/0002/run.json"));
  EXPECT_EQ(first["metrics"]["train_loss"], second["metrics"]["train_loss"]);
  EXPECT_EQ(first["metrics"]["val_loss"], second["metrics"]["val_loss"]);
  EXPECT_EQ(text_of(resolved), text_of(scratch / "runs/small/0002/config.toml"));
}

TEST(Program, ValidatesAndPredictsFromARun) {
  const Scratch scratch;
  ASSERT_EQ(run_program(small_fit(scratch)).exit_code, 0);
  const auto folder = scratch / "runs/small/0001";
  const Json summary = Json::parse(text_of(folder / "run.json"));
  const std::vector<std::string> same{"-c", (folder / "config.toml").string(), "--weights", folder.string()};
  const auto with = [&](const std::string& command) {
    std::vector<std::string> words{command};
    words.insert(words.end(), same.begin(), same.end());
    return words;
  };
  const ProgramRun validated = run_program(with("validate"));
  EXPECT_EQ(validated.exit_code, 0) << validated.err;
  const std::string accuracy = summary["metrics"]["val_acc"].dump();
  EXPECT_NE(validated.out.find("val_acc " + accuracy), std::string::npos) << validated.out;
  EXPECT_NE(run_program(with("test")).out.find("test_acc " + accuracy), std::string::npos);

  const ProgramRun predicted = run_program(with("predict"));
  EXPECT_EQ(predicted.out.substr(0, 21), "sample,class,output_0");
  EXPECT_EQ(std::count(predicted.out.begin(), predicted.out.end(), '\n'), 360);  // the header and 359 samples
}

TEST(Program, RequiresWeightsToEvaluate) {
  const Scratch scratch;
  write_text(scratch / "small.toml", kSmallRun);
  const ProgramRun run = run_program({"validate", "-c", (scratch / "small.toml").string()});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_EQ(run.err,
            "validate: there are no weights; expected: a run, --weights RUN|FILE, or model.init_weights\n");
}

TEST(Program, RefusesWeightsThatDoNotFit) {
  const Scratch scratch;
  ASSERT_EQ(run_program(small_fit(scratch)).exit_code, 0);
  const ProgramRun run = run_program(small_fit(
      scratch, {"model.hidden=[8]",
                "model.init_weights=" + (scratch / "runs/small/0001/weights.safetensors").string()}));
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_NE(run.err.find("the values do not fit the model"), std::string::npos) << run.err;
  EXPECT_FALSE(std::filesystem::exists(scratch / "runs/small/0002"));
}

TEST(Program, ShowsEveryErrorOfAConfigAtOnce) {
  const Scratch scratch;
  write_text(scratch / "bad.toml",
             "[model]\nname = \"mpl\"\n[trainer]\nmax_epoch = 10\n[optimizer]\nlr = \"1e-3\"\n");
  const ProgramRun run = run_program({"fit", "-c", (scratch / "bad.toml").string()});
  EXPECT_EQ(run.exit_code, 2);
  for (const char* part :
       {"bad.toml:2:8: error: unknown name 'mpl' in 'model.name'", "did you mean 'mlp'?",
        "'data.name' is missing", "bad.toml:4:1: error: unknown key 'trainer.max_epoch'",
        "did you mean 'max_epochs'?", "expected a number, found the string \"1e-3\"", "nothing was run"})
    EXPECT_NE(run.err.find(part), std::string::npos) << part << "\n" << run.err;
}

TEST(Program, ComputesTheMetricsOfTheConfig) {
  const Scratch scratch;
  const std::vector<std::string> listed{
      R"(model.metrics=["top5", "f1_macro", "confusion_matrix", "without_three"])",
      "metrics.without_three.name=recall_per_class", "metrics.without_three.ignore_index=3"};
  const ProgramRun run = run_program(small_fit(scratch, listed));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const std::filesystem::path folder = scratch / "runs/small/0001";
  const auto values = nlohmann::json::parse(text_of(folder / "run.json"))["metrics"];
  EXPECT_EQ(values["val_without_three[3]"], 0);
  EXPECT_GT(values["val_top5"], values["val_acc"]);
  double right = 0, all = 0;
  for (int label = 0; label < 10; ++label)
    for (int answer = 0; answer < 10; ++answer) {
      const double cell =
          values["val_confusion_matrix[" + std::to_string(label) + "][" + std::to_string(answer) + "]"];
      all += cell;
      right += label == answer ? cell : 0;
    }
  EXPECT_EQ(right / all, values["val_acc"].get<double>());
  // The written config contains the same.
  const ProgramRun again = run_program({"fit", "-c", (folder / "config.toml").string()});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(nlohmann::json::parse(text_of(scratch / "runs/small/0002/run.json"))["metrics"]["val_f1_macro"],
            values["val_f1_macro"]);
}

TEST(Program, RefusesUnknownAndUnsuitableMetrics) {
  const Scratch scratch;
  const auto expect = [&](std::vector<std::string> words, int exit_code, const std::string& wanted) {
    const ProgramRun run = run_program(small_fit(scratch, std::move(words)));
    EXPECT_EQ(run.exit_code, exit_code) << run.err;
    EXPECT_NE(run.err.find(wanted), std::string::npos) << wanted << "\n" << run.err;
  };
  expect({R"(model.metrics=["f1_makro"])"}, 2,
         "unknown name 'f1_makro' in 'model.metrics'; did you mean 'f1_macro'?");
  expect({R"(model.metrics=["warmth"])"}, 2,
         "unknown name 'warmth' in 'model.metrics'; available: accuracy, auroc");
  expect({R"(model.metrics=["f1_macro", "f1_macro"])"}, 2, "'f1_macro' is listed twice");
  expect({R"(model.metrics=["a"])", "metrics.a.name=top6"}, 2,
         "unknown name 'top6' in 'metrics.a.name'; did you mean 'top5'?");
  expect({R"(model.metrics=["topk"])", "metrics.topk.k=0"}, 2, "'metrics.topk.k'");
  expect({"metrics.top5.k=3"}, 2, "unknown table 'metrics");
  expect({R"(model.metrics=["topk"])", "metrics.topk.k=11"}, 2,
         "'model.metrics[0]': 'topk': k is 11, but there are outputs for only 10 classes");
  expect(
      {R"(model.metrics=["f1"])"}, 2,
      "'model.metrics[0]': 'f1': the outputs have 10 classes; expected: two classes for the binary average");
  expect({R"(model.metrics=["mse"])"}, 2, "numbers of the same shape");
}

TEST(Program, RefusesANameThatIsAPath) {
  const Scratch scratch;
  const ProgramRun run = run_program(small_fit(scratch, {"name=../elsewhere"}));
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_NE(run.err.find("'name' becomes a directory"), std::string::npos) << run.err;
  write_text(scratch / "red.toml", "name = \"\\u001b[31mred\"\n");
  const ProgramRun red = run_program(small_fit(scratch, {"-c", (scratch / "red.toml").string()}));
  EXPECT_EQ(red.exit_code, 2);
  EXPECT_NE(red.err.find("without '/', '\\' and control characters"), std::string::npos) << red.err;
}

TEST(Program, RefusesARunDirectoryThatCannotBeCreated) {
  const Scratch scratch;
  write_text(scratch / "runs", "a file where the folder should be");
  const ProgramRun run = run_program(small_fit(scratch));
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_NE(run.err.find("error: 'run.dir': " + (scratch / "runs").string() +
                         " is a file; expected: a directory that exists or can be created"),
            std::string::npos)
      << run.err;
}

TEST(Program, ExplainsUsage) {
  EXPECT_EQ(run_program({"fitt"}).exit_code, 2);
  EXPECT_EQ(run_program({"--help"}).exit_code, 0);
  EXPECT_EQ(run_program({"list", "models"}).out.substr(0, 8), "backbone");
  EXPECT_NE(run_program({"devices"}).out.find("cpu"), std::string::npos);
  EXPECT_TRUE(Json::parse(run_program({"devices", "--json"}).out)["gpus"].is_array());
  const std::string facts = run_program({"doctor"}).out;
  EXPECT_NE(facts.find("libtorch"), std::string::npos) << facts;
  EXPECT_NE(facts.find("\nGPUs        "), std::string::npos) << facts;
}

TEST(Program, WritesNoEscapesIntoAPipe) {
  const Scratch scratch;
  const ProgramRun run = run_program(small_fit(scratch));
  ASSERT_EQ(run.exit_code, 0);
  EXPECT_EQ((run.out + run.err).find('\x1b'), std::string::npos);
  EXPECT_EQ((run.out + run.err).find('\r'), std::string::npos);
  EXPECT_NE(run.out.find("epoch  train loss"), std::string::npos);
  const std::size_t end = run.out.find("done in ");
  ASSERT_NE(end, std::string::npos);
  EXPECT_NE(run.out.find(" samples/s   ", end), std::string::npos) << run.out;
  // Nor does it repeat those of a user.
  write_text(scratch / "red.toml", "[model]\nname = \"mlp\\u001b[31m\"\n");
  for (const std::vector<std::string>& words : {std::vector<std::string>{"\x1b[31mfit"},
                                                {"fit", "\x1b[31m.toml"},
                                                {"help", "\x1b[31m"},
                                                {"help",
                                                 "\xc2\x9b"
                                                 "31m"},
                                                {"fit", (scratch / "red.toml").string()}}) {
    const ProgramRun refused = run_program(words);
    EXPECT_EQ(refused.exit_code, 2) << refused.err;
    EXPECT_EQ((refused.out + refused.err).find('\x1b'), std::string::npos) << refused.err;
    EXPECT_EQ((refused.out + refused.err).find("\xc2\x9b"), std::string::npos) << refused.err;  // U+009B
  }
}

TEST(Program, EndsAFitWithTheNextCommands) {
  const Scratch scratch;
  const std::string folder = (scratch / "runs/small/0001").string();
  const std::string out = run_program(small_fit(scratch)).out;
  const std::string next = "   " + folder + "\nnext     kindling plot " + folder +
                           "\n         kindling predict " + folder +
                           " --out predictions.csv\n         kindling export " + folder + " model.pt2\n";
  EXPECT_TRUE(out.ends_with(next)) << out;
  EXPECT_EQ(run_program({"predict", folder, "--out", (scratch / "predictions.csv").string()}).exit_code, 0);
  EXPECT_EQ(run_program({"plot", folder}).exit_code, 0);
  EXPECT_EQ(run_program({"export", folder, (scratch / "model.pt2").string()}).exit_code, 0);
  EXPECT_EQ(run_program(small_fit(scratch, {"--quiet"})).out.find("next "), std::string::npos);
}

TEST(Program, SummarizesParametersBytesAndMultiplyAdds) {
  const Scratch scratch;
  const std::string out = run_program(small_fit(scratch)).out;
  EXPECT_NE(out.find("\n   total 1,210 params (1,210 trainable), 4.73 KiB, 1,184 multiply-adds per sample\n"),
            std::string::npos)
      << out;
}

TEST(Program, RedrawsOneLineOnATerminal) {
  const Scratch scratch;
  const OnTerminal shown = run_on_terminal(small_fit(scratch, {"trainer.max_epochs=60"}));
  EXPECT_EQ(shown.exit_code, 0) << shown.screen;
  EXPECT_NE(shown.screen.find('\r'), std::string::npos);
  EXPECT_NE(shown.screen.find("it/s"), std::string::npos) << shown.screen;
  EXPECT_NE(shown.screen.find("epoch  train loss"), std::string::npos);
}

TEST(Program, SavesAndExitsOnASignal) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const Scratch scratch;
    const auto folder = scratch / "runs/small/0001";
    const OnTerminal shown =
        run_on_terminal(small_fit(scratch, {"trainer.max_epochs=1000000"}), {.act = [&](int, pid_t program) {
                          wait_for_text_in(folder / "metrics.jsonl");
                          kill(program, signal);
                        }});
    EXPECT_EQ(shown.exit_code, 128 + signal) << shown.screen;
    EXPECT_TRUE(std::filesystem::exists(folder / "weights.safetensors"));
    EXPECT_EQ(Json::parse(text_of(folder / "run.json"))["status"], "stopped");
    EXPECT_NE(shown.screen.find("stopped after"), std::string::npos);
  }
}

}  // namespace
}  // namespace kindling
