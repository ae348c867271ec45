#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/commands/process.h"
#include "cli/commands/program_run.h"
#include "support/scratch.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

std::string epoch_line(int epoch, const std::string& val_loss) {
  return "{\"epoch\": " + std::to_string(epoch) + ", \"global_step\": " + std::to_string(10 * epoch) +
         ", \"train_loss\": " + std::to_string(1.0 / epoch) + ", \"val_loss\": " + val_loss +
         ", \"val_acc\": 0.5, \"lr\": 0.1, \"epoch_time_s\": 0.25}\n";
}

// The files of a run that are drawn.
fs::path plotted_run(const fs::path& folder) {
  fs::create_directories(folder);
  write_text(folder / "metrics.jsonl", epoch_line(1, "0.75") + epoch_line(2, "null") + epoch_line(3, "0.5"));
  write_text(folder / "run.json",
             R"({"status": "running", "best": {"name": "val_acc", "value": 0.5, "epoch": 1}})");
  write_text(folder / "command.txt", "kindling fit -c '</pre><script>alert(1)</script>'\n");
  return folder;
}

void expect_parts(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
}

TEST(PlotCommand, DrawsTheLossesAndTheMonitoredMetric) {
  const Scratch scratch;
  const ProgramRun run = run_program({"plot", plotted_run(scratch / "runs/a/0001")});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  expect_parts(run.out, {"loss\n", " train_loss   ", " val_loss\n", "acc\n", " val_acc\n", "epoch\n"});
  EXPECT_EQ(run.out.find(" lr\n"), std::string::npos);
  EXPECT_EQ(run.out.find('\x1b'), std::string::npos);
}

TEST(PlotCommand, DrawsRequestedMetricsOfTheNewestRun) {
  const Scratch scratch;
  fs::create_directories(scratch / "runs/a/0001");
  plotted_run(scratch / "runs/a/0002");
  const ProgramRun run = run_program(
      {"plot", (scratch / "runs/a").string() + "/", "--metric", "lr", "--metric", "epoch_time_s"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  expect_parts(run.out, {" lr\n", " epoch_time_s\n"});
  EXPECT_EQ(run.out.find("val_loss"), std::string::npos);
}

TEST(PlotCommand, SkipsDirectoriesOfKilledStarts) {
  const Scratch scratch;
  plotted_run(scratch / "runs/a/0001");
  fs::create_directories(scratch / "runs/a/0002");
  const ProgramRun run = run_program({"plot", scratch / "runs/a"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  expect_parts(run.out, {" val_loss\n"});
}

TEST(PlotCommand, DrawsAllRunsOfASweep) {
  const Scratch scratch;
  fs::create_directories(scratch / "s");
  write_text(scratch / "s/sweep.json", "{}");
  const ProgramRun empty = run_program({"plot", scratch / "s"});
  EXPECT_EQ(empty.exit_code, 2);
  EXPECT_EQ(empty.err, (scratch / "s").string() +
                           ": no run of the sweep has a metrics.jsonl; expected: a run with records\n");
  for (const char* run : {"001/0001", "002/0001", "002/0002"}) plotted_run(scratch / "s" / run);
  fs::create_directories(scratch / "s/003");  // has not started
  const ProgramRun run = run_program({"plot", scratch / "s"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  expect_parts(run.out, {" val_loss\n", " 001/0001   ", " 002/0002\n"});
  EXPECT_EQ(run.out.find("002/0001"), std::string::npos);
}

TEST(PlotCommand, WritesFilesWithoutOutput) {
  const Scratch scratch;
  const fs::path run = plotted_run(scratch / "runs/a/0001");
  const ProgramRun drawn =
      run_program({"plot", run, "--svg", scratch / "x.svg", "--html", scratch / "x.html"});
  ASSERT_EQ(drawn.exit_code, 0) << drawn.err;
  EXPECT_EQ(drawn.out, "");
  expect_parts(text_of(scratch / "x.svg"), {"<svg ", ">loss</text>", ">lr</text>", "not finite"});
  const std::string page = text_of(scratch / "x.html");
  expect_parts(page, {"<h1>a/0001</h1>", "running", "val_acc 0.5000, epoch 1", "0.75,null,0.5",
                      "&lt;script&gt;alert(1)"});
  EXPECT_EQ(page.find("http-equiv=\"refresh\""), std::string::npos);
  EXPECT_EQ(page.find("<script>alert"), std::string::npos);
}

TEST(PlotCommand, OverlaysRuns) {
  const Scratch scratch;
  const fs::path a = plotted_run(scratch / "runs/a/0001"), b = plotted_run(scratch / "runs/b/0001");
  const ProgramRun run = run_program({"plot", a, b});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  expect_parts(run.out, {" val_loss\n", " a/0001   ", " b/0001\n"});
  EXPECT_EQ(run.out.find("train_loss"), std::string::npos) << "one loss is enough for several runs";
  ASSERT_EQ(run_program({"plot", a, b, "--html", scratch / "x.html"}).exit_code, 0);
  expect_parts(text_of(scratch / "x.html"),
               {"<h1>2 runs</h1>", "\"label\":\"a/0001\"", "\"label\":\"b/0001\""});
}

TEST(PlotCommand, TakesNamesWithAnEqualsSign) {
  const Scratch scratch;
  EXPECT_EQ(run_program({"plot", plotted_run(scratch / "runs/lr=0.1/0001")}).exit_code, 0);
}

TEST(PlotCommand, ColorsCurvesOnRequest) {
  const Scratch scratch;
  const ProgramRun run = run_program({"plot", plotted_run(scratch / "runs/a/0001"), "--color", "always"});
  expect_parts(run.out, {"\x1b[34m", "\x1b[33m", "\x1b[0m val_loss"});
}

TEST(PlotCommand, DrawsTornAndForeignRuns) {
  const Scratch scratch;
  const fs::path run = plotted_run(scratch / "runs/a/0001");
  write_text(run / "metrics.jsonl", epoch_line(1, "0.75") + "garbage\n" + epoch_line(2, "0.5").substr(0, 30));
  write_text(run / "run.json", "{");
  const ProgramRun torn = run_program({"plot", run});
  EXPECT_EQ(torn.exit_code, 0);
  expect_parts(torn.err, {"metrics.jsonl: skipped 1 line that is not a record"});
  write_text(run / "metrics.jsonl", "");
  EXPECT_EQ(run_program({"plot", run}).exit_code, 0);
  EXPECT_EQ(run_program({"plot", run, "--svg", scratch / "x.svg", "--html", scratch / "x.html"}).exit_code,
            0);
}

TEST(PlotCommand, RejectsWrongNames) {
  const Scratch scratch;
  const fs::path folder = plotted_run(scratch / "runs/a/0001");
  const ProgramRun metric = run_program({"plot", folder, "--metric", "val_los"});
  EXPECT_EQ(metric.exit_code, 2);
  expect_parts(metric.err, {"--metric val_los", "the run has no such metric", "did you mean 'val_loss'?"});
  const ProgramRun missing = run_program({"plot", scratch / "none"});
  EXPECT_EQ(missing.exit_code, 2);
  expect_parts(missing.err, {"no such file or directory", "runs/digits/0001"});
  const ProgramRun foreign = run_program({"plot", scratch.folder()});
  EXPECT_EQ(foreign.exit_code, 2);
  expect_parts(foreign.err, {"not a run directory"});
  fs::remove(folder / "metrics.jsonl");
  EXPECT_EQ(run_program({"plot", folder}).exit_code, 2);
}

// Every epoch of the run is in its report, whichever process trained it.
TEST(RunReportOfAFit, CoversAllStarts) {
  const Scratch scratch;
  const auto words = [&](const std::string& epochs) {
    return std::vector<std::string>{"fit",
                                    "-c",
                                    kConfigs / "digits.toml",
                                    "name=small",
                                    "trainer.num_threads=1",
                                    "trainer.max_epochs=" + epochs,
                                    "run.dir=" + (scratch / "runs").string(),
                                    "data.train=[0,200]",
                                    "data.val=[0,100]"};
  };
  ASSERT_EQ(run_program(words("2")).exit_code, 0);
  const fs::path folder = scratch / "runs/small/0001";
  expect_parts(text_of(folder / "report.html"), {"\"x\":[1,2]", "class=\"status good\">finished<", "Conv2d"});
  auto resumed = words("3");
  resumed.insert(resumed.begin() + 1, {"--resume", folder.string(), "--allow-config-change"});
  ASSERT_EQ(run_program(resumed).exit_code, 0);
  const std::string report = text_of(folder / "report.html");
  expect_parts(report, {"\"x\":[1,2,3]", "<dd>2 starts</dd>", "<td class=\"text\">start</td>"});
  EXPECT_EQ(report.find("http-equiv=\"refresh\""), std::string::npos);
  EXPECT_TRUE(text_of(folder / "curves.svg").starts_with("<svg "));
  EXPECT_TRUE(text_of(folder / "model.csv").starts_with("name,type,input,output,parameters\nnet.0,Conv2d,"));
}

TEST(RunReportOfAFit, IsOptional) {
  const Scratch scratch;
  ASSERT_EQ(run_program({"fit", "-c", kConfigs / "digits.toml", "name=small", "trainer.fast_dev_run=true",
                         "run.svg=false", "run.html=false", "run.dir=" + (scratch / "runs").string()})
                .exit_code,
            0);
  for (const char* const name : {"curves.svg", "report.html", "model.csv"})
    EXPECT_FALSE(fs::exists(scratch / "runs/small/0001" / name)) << name;
}

// Runs the program on a terminal of 100 columns and returns what it prints there.
std::string output_on_terminal(std::vector<std::string> words) {
  words.insert(words.begin(), KINDLING_PROGRAM);
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const winsize size{.ws_row = 40, .ws_col = 100, .ws_xpixel = 0, .ws_ypixel = 0};
  int terminal = -1;
  const pid_t child = forkpty(&terminal, nullptr, nullptr, &size);
  if (child == 0) {
    execv(argv[0], argv.data());
    _exit(127);
  }
  std::string output;
  char block[4096];
  for (ssize_t count = 0; (count = read(terminal, block, sizeof block)) > 0;)
    output.append(block, static_cast<std::size_t>(count));
  int status = 0;
  waitpid(child, &status, 0);
  ::close(terminal);
  EXPECT_EQ(status, 0);
  return output;
}

TEST(CurvesAtTheEnd, AppearOnATerminal) {
  const Scratch scratch;
  const std::vector<std::string> words{"fit",
                                       "-c",
                                       kConfigs / "digits.toml",
                                       "name=small",
                                       "trainer.max_epochs=3",
                                       "data.train=[0,200]",
                                       "data.val=[0,100]",
                                       "--progress=none",
                                       "run.dir=" + (scratch / "runs").string()};
  const std::string output = output_on_terminal(words);
  expect_parts(output, {"train_loss", "val_loss", "┤", "\r\ndone in "});
  EXPECT_LT(output.find("val_loss"), output.find("done in "));
  auto quiet = words;
  quiet.emplace_back("--quiet");
  EXPECT_EQ(output_on_terminal(quiet).find("val_loss"), std::string::npos);
  ASSERT_EQ(run_process(words, scratch / "output"), 0);
  EXPECT_EQ(text_of(scratch / "output").find("val_loss"), std::string::npos) << "of a pipe";
}

}  // namespace
}  // namespace kindling
