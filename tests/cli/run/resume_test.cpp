// What a resumed run keeps, accepts and refuses.
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <fstream>

#include "cli/commands/process.h"
#include "cli/run/same_run.h"
#include "kindling/device/device.h"
#include "support/scratch.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

class ResumedRun : public testing::Test {
 protected:
  ProgramRun fit(const std::string& runs, std::vector<std::string> more = {},
                 const std::string& checkpoint = "every_n_steps = 10") {
    write_small_cnn(scratch_ / "small.toml", checkpoint);
    std::vector<std::string> words{"fit", "-c", (scratch_ / "small.toml").string(),
                                   "run.dir=" + runs_of(runs)};
    words.insert(words.end(), more.begin(), more.end());
    return run_program(words);
  }
  ProgramRun resume(const fs::path& run, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"fit", "--resume", run.string()});
    return run_program(more);
  }
  std::string runs_of(const std::string& runs) const { return (scratch_ / runs).string(); }
  fs::path run(const std::string& runs) const { return scratch_ / runs / "small/0001"; }
  fs::path newest(const std::string& runs) const {
    return newest_valid_checkpoint(run(runs) / "checkpoints").value().path;
  }
  nlohmann::json summary(const std::string& runs) const {
    return nlohmann::json::parse(text_of(run(runs) / "run.json"));
  }

  const Scratch scratch_;
};

// Everything about the files of a folder: names, bytes, times.
std::map<std::string, std::pair<std::string, fs::file_time_type>> everything_in(const fs::path& folder) {
  std::map<std::string, std::pair<std::string, fs::file_time_type>> all;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    all[entry.path().string()] = {entry.is_regular_file() ? text_of(entry.path()) : "",
                                  entry.last_write_time()};
  return all;
}

void break_file(const fs::path& file) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekp(-1, std::ios::end);
  stream.put('\x55');
}

TEST_F(ResumedRun, LeavesAFinishedRunUnchanged) {
  ASSERT_EQ(fit("runs").exit_code, 0);
  const auto before = everything_in(run("runs"));
  for (const std::string& more :
       {std::string(), std::string("checkpoint.keep_last=5"), std::string("trainer.max_epochs=2")}) {
    const ProgramRun again = more.empty() ? resume(run("runs")) : resume(run("runs"), {more});
    EXPECT_EQ(again.exit_code, 0) << again.err;
    EXPECT_EQ(again.out, run("runs").string() +
                             " is finished: step 138, 6 epochs; to continue it, increase " +
                             "trainer.max_epochs or max_steps\n");
    EXPECT_EQ(everything_in(run("runs")), before);
  }
}

// What the check finds is reported before the files of the run are opened.
TEST_F(ResumedRun, IsUnchangedIfItIsRefused) {
  ASSERT_EQ(fit("runs").exit_code, 0);
  const auto before = everything_in(run("runs"));
  const struct {
    std::string change;
    int exit_code;
    std::string message;
  } changes[] = {{"data.train=[0,99999]", 2, "the range [0, 99999]"},
                 {"model.freeze=[\"nothing\"]", 2, "'nothing' matches no name"},
                 {"early_stopping.monitor=val_los", 2, "the model logs no value 'val_los'"},
                 {"model.hidden=17", 1, "'net.8.bias' has the shape [16], the model's is [17]"},
                 {"optimizer.amsgrad=true", 1, "optimizer: the state does not fit"},
                 {"trainer.precision=bf16-true", 1, "is Float, the model's is BFloat16"},
                 {"trainer.gradient_shards=2", 1, "'gradient_shards.0.0': it is missing"}};
  for (const auto& [change, exit_code, message] : changes) {
    const std::vector<std::string> more{"trainer.max_epochs=9", "--allow-config-change", change};
    const ProgramRun refused = resume(run("runs"), more);
    EXPECT_EQ(refused.exit_code, exit_code) << refused.err;
    EXPECT_NE(refused.err.find(message), std::string::npos) << refused.err;
    EXPECT_EQ(everything_in(run("runs")), before) << change;
    std::vector<std::string> check = more;
    check.push_back("--check");
    EXPECT_EQ(resume(run("runs"), check).err, refused.err);
  }
}

TEST_F(ResumedRun, IsUnchangedWithoutTheAveragesOfItsCheckpoint) {
  ASSERT_EQ(fit("runs", {"ema.decay=0.9"}).exit_code, 0);
  std::string config = text_of(run("runs") / "config.toml");
  const std::size_t table = config.find("[ema]");
  ASSERT_NE(table, std::string::npos);
  config.erase(table, config.find("\n[", table) - table);
  write_text(run("runs") / "config.toml", config);
  const auto before = everything_in(run("runs"));
  const ProgramRun refused = resume(run("runs"), {"trainer.max_epochs=9", "--allow-config-change"});
  EXPECT_EQ(refused.exit_code, 1) << refused.err;
  EXPECT_NE(refused.err.find("the saved state is that of a ExponentialMovingAverage"), std::string::npos)
      << refused.err;
  EXPECT_EQ(everything_in(run("runs")), before);
}

// Compiler-generated names would make checkpoints depend on the names of private classes.
TEST_F(ResumedRun, HasCheckpointsWithStableNamesOfCallbacks) {
  ASSERT_EQ(fit("runs").exit_code, 0);
  std::vector<std::string> types;
  for (const auto& [name, text] : load_checkpoint(newest("runs")).metadata)
    if (name.starts_with("callback_type.")) types.push_back(text);
  EXPECT_EQ(types, std::vector<std::string>{"Screen"});
}

TEST_F(ResumedRun, ContinuesWithMoreEpochs) {
  const std::vector<std::string> constant{"schedule.name=constant", "trainer.max_epochs=5"};
  ASSERT_EQ(fit("alone", constant).exit_code, 0);
  ASSERT_EQ(fit("runs", {constant[0], "trainer.max_epochs=2"}).exit_code, 0);
  const ProgramRun more = resume(run("runs"), {"trainer.max_epochs=5"});
  ASSERT_EQ(more.exit_code, 0) << more.err;
  EXPECT_NE(more.out.find("resume   after step 46, 2 epochs   step-00000046.safetensors   changed "
                          "trainer.max_epochs 2 -> 5\n"),
            std::string::npos)
      << more.out;
  expect_same_run(run("runs"), run("alone"));
  EXPECT_EQ(summary("runs")["resumed_from_step"], 46);
  EXPECT_FALSE(fs::exists(run("runs").parent_path() / "0002"));
  EXPECT_NE(text_of(run("runs") / "config.toml").find("max_epochs = 5"), std::string::npos);
  const std::string commands = text_of(run("runs") / "command.txt");
  EXPECT_EQ(std::count(commands.begin(), commands.end(), '\n'), 2) << commands;
  const std::string log = text_of(run("runs") / "log.txt");
  EXPECT_LT(log.find("finished after epoch 2, step 46"), log.find("resume: after step 46")) << log;
}

TEST_F(ResumedRun, ClosesTheEpochOfItsLastStep) {
  const std::vector<std::string> constant{"schedule.name=constant", "trainer.max_steps=30"};
  ASSERT_EQ(fit("alone", constant).exit_code, 0);
  ASSERT_EQ(fit("runs", {constant[0], "trainer.max_steps=31"}).exit_code, 0);
  const fs::path saved = run("runs") / "checkpoints/step-00000030.safetensors";  // in the middle of an epoch
  std::string was_killed = text_of(run("runs") / "run.json");
  was_killed.replace(was_killed.find("finished"), 8, "running");
  write_text(run("runs") / "run.json", was_killed);
  const ProgramRun again = resume(saved, {"trainer.max_steps=30"});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  expect_same_run(run("runs"), run("alone"));
}

TEST_F(ResumedRun, RefusesAnotherConfigKeyByKey) {
  ASSERT_EQ(fit("runs", {"trainer.max_epochs=2"}).exit_code, 0);
  const auto before = everything_in(run("runs"));
  const std::vector<std::string> changes{"trainer.max_epochs=3", "trainer.step_kernels=off",
                                         "optimizer.lr=0.5", "data.batch_size=7", "data.val=[0, 9]"};
  const ProgramRun refused = resume(run("runs"), changes);
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_EQ(refused.err, run("runs").string() +
                             ": the config differs from the one that the run was started with:\n"
                             "  data.batch_size: was 64, now 7\n"
                             "  data.val: was not set, now [0, 9]\n"
                             "  optimizer.lr: was 0.001, now 0.5\n"
                             "nothing was run; undo these changes, or resume with --allow-config-change\n");
  EXPECT_EQ(everything_in(run("runs")), before);

  const ProgramRun allowed =
      resume(run("runs"), {"trainer.max_epochs=3", "optimizer.lr=0.5", "--allow-config-change"});
  ASSERT_EQ(allowed.exit_code, 0) << allowed.err;
  EXPECT_NE(allowed.out.find("changed optimizer.lr 0.001 -> 0.5, trainer.max_epochs 2 -> 3\n"),
            std::string::npos)
      << allowed.out;
  EXPECT_EQ(records_of(run("runs")).back()["epoch"], 3);
}

TEST_F(ResumedRun, AcceptsChangesWithoutEffectOnTheSteps) {
  ASSERT_EQ(fit("runs", {"trainer.max_epochs=2"}).exit_code, 0);
  const ProgramRun more =
      resume(run("runs"), {"trainer.max_epochs=3", "trainer.step_graph=off", "trainer.limit_test_batches=2",
                           "trainer.min_epochs=1", "trainer.log_every_n_steps=5", "data.resident=off",
                           "trainer.max_time=01:00:00:00", "distributed.timeout_s=60",
                           "checkpoint.keep_last=2", "early_stopping.patience=9", "run.csv=false"});
  EXPECT_EQ(more.exit_code, 0) << more.err;
  EXPECT_EQ(records_of(run("runs")).back()["epoch"], 3);
}

TEST_F(ResumedRun, RefusesChangesThatAffectTheSteps) {
  ASSERT_EQ(fit("runs", {"trainer.max_epochs=2"}).exit_code, 0);
  const std::vector<std::string> changes{"trainer.accumulate_grad_batches=2",
                                         "trainer.channels_last=on",
                                         "trainer.check_val_every_n_epoch=2",
                                         "trainer.gradient_clip_val=0.5",
                                         "trainer.limit_train_batches=9",
                                         "trainer.limit_val_batches=9",
                                         "trainer.on_nonfinite=skip",
                                         "trainer.precision=bf16-mixed",
                                         "trainer.track_grad_norm=2",
                                         "data.shuffle=false",
                                         "seed=99"};
  const ProgramRun refused = resume(run("runs"), changes);
  EXPECT_EQ(refused.exit_code, 2);
  for (const std::string& change : changes)
    EXPECT_NE(refused.err.find("  " + change.substr(0, change.find('=')) + ": was "), std::string::npos)
        << change << ": " << refused.err;
}

// A config that does not fit the model must not break the next start of the run.
TEST_F(ResumedRun, KeepsItsConfigIfTheNewOneDoesNotFit) {
  ASSERT_EQ(fit("runs", {"trainer.max_epochs=2"}).exit_code, 0);
  const std::string config = text_of(run("runs") / "config.toml");
  const ProgramRun failed =
      resume(run("runs"), {"trainer.max_epochs=3", "model.hidden=8", "--allow-config-change"});
  EXPECT_EQ(failed.exit_code, 1) << failed.err;
  EXPECT_EQ(text_of(run("runs") / "config.toml"), config);
  EXPECT_EQ(resume(run("runs"), {"trainer.max_epochs=3"}).exit_code, 0);
}

TEST_F(ResumedRun, FallsBackFromABrokenCheckpoint) {
  ASSERT_EQ(fit("alone").exit_code, 0);
  ASSERT_EQ(fit("runs").exit_code, 0);
  const fs::path broken = newest("runs");
  break_file(broken);
  const ProgramRun again = resume(run("runs"));
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_NE(again.err.find(broken.filename().string()), std::string::npos) << again.err;
  EXPECT_NE(again.err.find("warning"), std::string::npos) << again.err;
  expect_same_run(run("runs"), run("alone"));
}

TEST_F(ResumedRun, NeedsACheckpoint) {
  ASSERT_EQ(fit("runs").exit_code, 0);
  for (const auto& entry : fs::directory_iterator(run("runs") / "checkpoints"))
    if (entry.path().extension() == ".safetensors") break_file(entry.path());
  const ProgramRun broken = resume(run("runs"));
  EXPECT_EQ(broken.exit_code, 1);
  EXPECT_NE(
      broken.err.find("files is usable; expected: an intact checkpoint; start a new run: kindling fit -c "),
      std::string::npos)
      << broken.err;
  fs::remove_all(run("runs") / "checkpoints");
  const ProgramRun none = resume(run("runs"));
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_NE(none.err.find("checkpoints: there is no checkpoint; expected"), std::string::npos) << none.err;
}

TEST_F(ResumedRun, RefusesAPathThatIsNotARun) {
  ASSERT_EQ(fit("runs", {"trainer.max_epochs=1"}).exit_code, 0);
  for (const fs::path& path : {scratch_ / "runs/small", run("runs") / "config.toml"}) {
    const ProgramRun refused = resume(path);
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_NE(refused.err.find("neither a run directory nor a checkpoint of a run"), std::string::npos)
        << refused.err;
  }
  EXPECT_NE(resume(scratch_ / "nowhere").err.find("no such file or directory"), std::string::npos);
}

TEST_F(ResumedRun, ResumesFromAnEarlierCheckpoint) {
  ASSERT_EQ(fit("alone").exit_code, 0);
  ASSERT_EQ(fit("runs", {"checkpoint.keep_last=100"}).exit_code, 0);
  const ProgramRun again =
      resume(run("runs") / "checkpoints/step-00000070.safetensors", {"checkpoint.keep_last=2"});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(summary("runs")["resumed_from_step"], 70);
  expect_same_run(run("runs"), run("alone"));
}

TEST_F(ResumedRun, ResumesByName) {
  const ProgramRun first = fit("runs", {"trainer.max_epochs=1", "checkpoint.resume=last"});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_NE(first.out.find("resume   nothing to resume in " + (scratch_ / "runs/small").string() +
                           "; starting a new run\n"),
            std::string::npos)
      << first.out;
  ASSERT_EQ(fit("runs", {"trainer.max_epochs=1"}).exit_code, 0);
  ASSERT_EQ(fit("runs", {"trainer.max_epochs=2", "checkpoint.resume=last"}).exit_code, 0);
  EXPECT_EQ(records_of(scratch_ / "runs/small/0002").back()["epoch"], 2);
  EXPECT_EQ(records_of(run("runs")).back()["epoch"], 1);
  EXPECT_FALSE(fs::exists(scratch_ / "runs/small/0003"));
  EXPECT_NE(text_of(scratch_ / "runs/small/0002/config.toml").find("resume = \"\""), std::string::npos);
  ASSERT_EQ(fit("runs", {"trainer.max_epochs=3", "checkpoint.resume=" + run("runs").string()}).exit_code, 0);
  EXPECT_EQ(records_of(run("runs")).back()["epoch"], 3);
}

TEST_F(ResumedRun, ResumesFromTheBestCheckpoint) {
  // Later epochs with such a rate are worse.
  const std::vector<std::string> rising{"optimizer.lr=0.01", "trainer.max_epochs=6",
                                        "checkpoint.keep_best=1"};
  ASSERT_EQ(fit("runs", rising, "").exit_code, 0);
  const auto best = summary("runs")["best"];
  const std::string file = summary("runs")["checkpoint"]["best"];
  const auto info = best_valid_checkpoint(run("runs") / "checkpoints", /*higher_is_better=*/true).value();
  EXPECT_EQ(file, "checkpoints/" + info.path.filename().string());
  EXPECT_EQ(best["value"], info.monitored_value.value());
  EXPECT_EQ(best["epoch"], info.epoch);
  std::vector<std::string> more = rising;
  more.insert(more.end(), {"checkpoint.resume=best", "trainer.max_epochs=7"});
  ASSERT_EQ(fit("runs", more, "").exit_code, 0);
  EXPECT_EQ(summary("runs")["resumed_from_step"], info.global_step);
}

TEST_F(ResumedRun, ResumesFromAnotherDirectory) {
  write_small_cnn(scratch_ / "small.toml", "every_n_steps = 10");
  fs::create_directories(scratch_ / "elsewhere");
  const fs::path output = scratch_ / "output.txt";
  ASSERT_EQ(run_process({"fit", "-c", "small.toml", "trainer.max_epochs=1"}, output, scratch_.folder()), 0);
  const fs::path weights = scratch_ / "runs/small/0001/weights.safetensors";
  fs::copy_file(weights, scratch_ / "init.safetensors");
  ASSERT_EQ(
      run_process({"fit", "-c", "small.toml", "trainer.max_epochs=1", "model.init_weights=init.safetensors"},
                  output, scratch_.folder()),
      0);
  fs::remove(scratch_ / "init.safetensors");  // its values are in the checkpoint
  ASSERT_EQ(run_process({"fit", "--resume", "../runs/small/0002", "trainer.max_epochs=2"}, output,
                        scratch_ / "elsewhere"),
            0)
      << text_of(output);
  EXPECT_EQ(records_of(scratch_ / "runs/small/0002").size(), 48U);  // 2 epochs of 23 steps
  EXPECT_TRUE(fs::is_empty(scratch_ / "elsewhere"));
}

TEST_F(ResumedRun, RefusesASecondProcess) {
  write_small_cnn(scratch_ / "small.toml");
  const fs::path output = scratch_ / "output.txt";
  Process process({"fit", "-c", (scratch_ / "small.toml").string(), "run.dir=" + runs_of("runs"),
                   "trainer.max_epochs=1000000"},
                  output);
  process.wait_until([&] { return records_of(run("runs")).size() > 30; });
  const std::string summary = text_of(run("runs") / "run.json"),
                    command = text_of(run("runs") / "command.txt");
  const ProgramRun second = resume(run("runs"));
  EXPECT_EQ(second.exit_code, 1);
  EXPECT_EQ(text_of(run("runs") / "run.json"), summary) << "it is the first one's";
  EXPECT_EQ(text_of(run("runs") / "command.txt"), command);
  EXPECT_NE(second.err.find(run("runs").string()), std::string::npos) << second.err;
  process.send(SIGKILL);
  EXPECT_EQ(process.wait(), 128 + SIGKILL);
  // The lock of a killed process does not remain.
  const ProgramRun third = resume(run("runs"), {"trainer.max_steps=40"});
  EXPECT_EQ(third.exit_code, 0) << third.err;
}

// The checkpoints of a run that another process continues may change while they are read.
TEST_F(ResumedRun, ChecksTheLockBeforeItReadsCheckpoints) {
  ASSERT_EQ(fit("runs", {"trainer.max_steps=2"}).exit_code, 0);
  for (const auto& entry : fs::directory_iterator(run("runs") / "checkpoints"))
    if (entry.path().extension() == ".safetensors") write_text(entry.path(), "half");
  const std::vector<std::string> by_name{"checkpoint.resume=last", "trainer.max_steps=4"};
  {
    const FolderLock lock(run("runs"));
    for (const ProgramRun& second : {fit("runs", by_name), resume(run("runs"), {"trainer.max_steps=4"})}) {
      EXPECT_EQ(second.exit_code, 1);
      EXPECT_NE(second.err.find(" is using this folder"), std::string::npos) << second.err;
    }
  }
  EXPECT_NE(fit("runs", by_name).err.find("none of the"), std::string::npos);
}

TEST_F(ResumedRun, BeginsANewRunBesideOneWithoutACheckpoint) {
  ASSERT_EQ(fit("runs", {"trainer.max_steps=2"}).exit_code, 0);
  fs::remove_all(run("runs") / "checkpoints");
  const FolderLock lock(run("runs"));  // it is at work
  const ProgramRun second = fit("runs", {"checkpoint.resume=last", "trainer.max_steps=2"});
  EXPECT_EQ(second.exit_code, 0) << second.err;
  EXPECT_TRUE(fs::exists(run("runs").parent_path() / "0002/run.json"));
}

TEST_F(ResumedRun, ReportsAnotherLibTorch) {
  ASSERT_EQ(fit("runs", {"trainer.max_steps=2"}).exit_code, 0);
  auto summary = nlohmann::json::parse(text_of(run("runs") / "run.json"));
  const std::string now = summary["libtorch"];
  const auto num_warnings = [&] {
    const std::string log = text_of(run("runs") / "log.txt"),
                      text = "LibTorch: the run was trained with version ";
    const std::size_t first = log.find(text);
    return first == std::string::npos ? 0 : log.find(text, first + 1) == std::string::npos ? 1 : 2;
  };
  ASSERT_EQ(resume(run("runs"), {"trainer.max_steps=4"}).exit_code, 0);
  EXPECT_EQ(num_warnings(), 0);
  summary["libtorch"] = "2.3.1";
  write_text(run("runs") / "run.json", summary.dump());
  ASSERT_EQ(resume(run("runs"), {"trainer.max_steps=6"}).exit_code, 0);
  EXPECT_EQ(num_warnings(), 1);
  EXPECT_NE(text_of(run("runs") / "log.txt")
                .find("version 2.3.1 and now continues with " + now + "; from here on, results may differ"),
            std::string::npos);
  ASSERT_EQ(resume(run("runs"), {"trainer.max_steps=8"}).exit_code, 0);
  EXPECT_EQ(num_warnings(), 1);  // run.json has the new version
}

// Proves that the other tests can fail: without the random state, dropout draws other numbers.
TEST_F(ResumedRun, NeedsTheRandomState) {
  ASSERT_EQ(fit("alone").exit_code, 0);
  for (const bool is_changed : {false, true}) {
    const std::string runs = is_changed ? "changed" : "same";
    ASSERT_EQ(fit(runs, {"checkpoint.keep_last=100"}).exit_code, 0);
    const fs::path file = run(runs) / "checkpoints/step-00000070.safetensors";
    StateDict state = load_checkpoint(file);
    if (is_changed) {
      const StateDict other = load_checkpoint(run(runs) / "checkpoints/step-00000020.safetensors");
      for (auto& [name, tensor] : state.tensors)
        if (name.starts_with("random.")) tensor = *other.find(name);
    }
    save_checkpoint(state, file);
    ASSERT_EQ(resume(file, {"checkpoint.keep_last=2"}).exit_code, 0);
    EXPECT_EQ(text_of(run(runs) / "weights.safetensors") == text_of(run("alone") / "weights.safetensors"),
              !is_changed);
  }
}

TEST_F(ResumedRun, ProvidesWeightsBeforeItsEnd) {
  ASSERT_EQ(fit("runs").exit_code, 0);
  const auto validate = [&](const std::string& weights) {
    const ProgramRun run_of =
        run_program({"validate", "-c", (run("runs") / "config.toml").string(), "--weights", weights});
    EXPECT_EQ(run_of.exit_code, 0) << run_of.err;
    return run_of.out;
  };
  const std::string last = run("runs").string() + ":last", expected = validate(last);
  EXPECT_EQ(validate(newest("runs").string()), expected);
  fs::remove(run("runs") / "weights.safetensors");  // as after a kill
  EXPECT_EQ(validate(last), expected);
  // The weights of a run that was resumed afterwards and killed.
  for (const auto& entry : fs::directory_iterator(run("runs") / "checkpoints"))
    if (entry.path().extension() == ".safetensors" && entry.path() != newest("runs"))
      fs::copy_file(entry.path(), run("runs") / "weights.safetensors", fs::copy_options::overwrite_existing);
  fs::remove(run("runs") / "run.json");
  EXPECT_EQ(validate(last), expected);
  fs::remove(run("runs") / "weights.safetensors");
  fs::remove_all(run("runs") / "checkpoints");
  const ProgramRun none = run_program(
      {"validate", "-c", (run("runs") / "config.toml").string(), "--weights", run("runs").string()});
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_NE(none.err.find("neither weights.safetensors nor an intact checkpoint"), std::string::npos)
      << none.err;
}

// A run means its best saved checkpoint, which need not be the last one; the words after a colon choose
// another.
TEST_F(ResumedRun, ProvidesItsBestWeightsByDefault) {
  ASSERT_EQ(fit("runs", {"checkpoint.keep_last=100", "checkpoint.monitor=val_loss", "checkpoint.mode=max"})
                .exit_code,
            0);
  const fs::path folder = run("runs") / "checkpoints";
  const auto best = best_valid_checkpoint(folder);
  ASSERT_TRUE(best);
  ASSERT_NE(best->path, newest("runs"));  // the loss falls, so that the largest is that of the first epoch
  const auto validate = [&](const std::string& weights) {
    return run_program({"validate", "-c", (run("runs") / "config.toml").string(), "--weights", weights});
  };
  const auto expect_same = [&](const std::string& words, const fs::path& file, const std::string& reason) {
    const ProgramRun found = validate(words);
    EXPECT_EQ(found.exit_code, 0) << found.err;
    EXPECT_EQ(found.out, validate(file.string()).out) << words;
    EXPECT_NE(found.err.find(reason), std::string::npos) << found.err;
  };
  const std::string step = std::to_string(best->global_step), words = run("runs").string();
  expect_same(words, best->path, "step " + step + ", best val_loss ");
  expect_same(words + ":best", best->path, "step " + step + ", best val_loss ");
  expect_same(words + ":last", newest("runs"), "the weights at the end of the run");
  expect_same(words + ":20", folder / "step-00000020.safetensors", "step 20");
  EXPECT_EQ(validate(best->path.string()).err, "");
  EXPECT_EQ(summary("runs")["checkpoint"]["best_step"], best->global_step);
  EXPECT_EQ(summary("runs")["checkpoint"]["best_value"], best->monitored_value.value());

  const ProgramRun missing = validate(words + ":21"), misspelt = validate(words + ":bset");
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_NE(missing.err.find("no checkpoint of step 21; expected: one of steps 138, "), std::string::npos)
      << missing.err;
  EXPECT_EQ(misspelt.exit_code, 2);
  EXPECT_NE(misspelt.err.find("best, last or the number of a step"), std::string::npos) << misspelt.err;

  const ProgramRun started = fit("started", {"trainer.max_epochs=1", "model.init_weights=" + words});
  EXPECT_EQ(started.exit_code, 0) << started.err;
  EXPECT_NE(started.err.find("step " + step + ", best val_loss "), std::string::npos) << started.err;

  // Weights and the optimizer's state are exported from the same step.
  const auto exported = [&](const std::string& of, std::vector<std::string> more) {
    more.insert(more.begin(), {"export", of, (scratch_ / "out.pt").string()});
    EXPECT_EQ(run_program(more).exit_code, 0) << of;
    return text_of(scratch_ / "out.pt");
  };
  for (const std::vector<std::string>& more : {std::vector<std::string>(), {"--optimizer"}}) {
    EXPECT_TRUE(exported(words, more) == exported(best->path.string(), more));
    EXPECT_FALSE(exported(words, more) == exported(newest("runs").string(), more));
  }
}

TEST_F(ResumedRun, ReportsAFullDisk) {
  const fs::path disk = scratch_ / "disk";
  fs::create_directories(disk);
  if (::mount("none", disk.c_str(), "tmpfs", 0, "size=88k") != 0)
    GTEST_SKIP() << "a tmpfs cannot be mounted here";
  struct Mounted {
    const fs::path& disk;
    ~Mounted() { ::umount2(disk.c_str(), MNT_DETACH); }
  } mounted{disk};
  // 15 KB of weights and the small files of the run fit, the optimizer state does not.
  const std::vector<std::string> large{"model.hidden=48", "trainer.log_every_n_steps=0"};
  const ProgramRun stopped = fit("disk", large);
  EXPECT_EQ(stopped.exit_code, 1);
  EXPECT_NE(stopped.err.find("No space left on device (needed "), std::string::npos) << stopped.err;
  fs::remove_all(disk / "small");
  std::vector<std::string> more = large;
  more.push_back("checkpoint.on_error=continue");
  const ProgramRun going_on = fit("disk", more);
  EXPECT_EQ(going_on.exit_code, 0) << going_on.err;
  EXPECT_NE(going_on.err.find("No space left on device (needed "), std::string::npos) << going_on.err;
  EXPECT_EQ(summary("disk")["status"], "finished");
  fs::remove_all(disk / "small");
  more.push_back("--quiet");
  const ProgramRun quiet = fit("disk", more);
  EXPECT_NE(quiet.err.find("No space left on device (needed "), std::string::npos) << quiet.err;
}

// A layer so wide that a step needs hundreds of MB, which the second start cannot allocate.
TEST_F(ResumedRun, ResumesAfterRunningOutOfMemory) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the address sanitizer needs memory without a limit";
#endif
  if (has_cuda_libraries()) GTEST_SKIP() << "CUDA's libraries alone take gigabytes of addresses";
  write_text(scratch_ / "small.toml",
             "[model]\nname = \"mlp\"\nhidden = [20000]\n[data]\nname = \"digits\"\nbatch_size = 1438\n"
             "[trainer]\nmax_epochs = 1\n");
  const fs::path output = scratch_ / "output.txt";
  ASSERT_EQ(run_process({"fit", "-c", "small.toml", "run.dir=runs"}, output, scratch_.folder()), 0);
  const std::vector<std::string> words{"fit", "--resume", run("runs").string(), "trainer.max_epochs=2"};
  EXPECT_EQ(Process(words, output, ".", rlim_t{600} << 20).wait(), 1);
  const std::string text = text_of(output);
  EXPECT_NE(text.find("115040000 bytes"), std::string::npos) << text;
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 24);
  EXPECT_EQ(summary("runs")["status"], "failed");
  EXPECT_EQ(run_process(words, output), 0) << text_of(output);
  EXPECT_EQ(records_of(run("runs")).size(), 2U);
}

// In a separate process without the permissions of root.
int resume_as_nobody(std::vector<std::string> words, const fs::path& output) {
  const pid_t child = fork();
  if (child == 0) {
    const int file = open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    dup2(file, STDERR_FILENO);
    if (geteuid() == 0 && setuid(65534) != 0) _exit(99);
    Registry registry;
    register_builtin(registry);
    words.insert(words.begin(), "kindling");
    std::vector<char*> argv;
    for (auto& word : words) argv.push_back(word.data());
    _exit(run_program(static_cast<int>(argv.size()), argv.data(), registry));
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WEXITSTATUS(status);
}

TEST_F(ResumedRun, RefusesAReadOnlyDirectory) {
  if (num_gpus() > 0) GTEST_SKIP() << "it forks, and CUDA does not outlive that";
  ASSERT_EQ(fit("runs", {"trainer.max_epochs=1"}).exit_code, 0);
  fs::permissions(run("runs"), fs::perms::owner_read | fs::perms::owner_exec | fs::perms::others_read |
                                   fs::perms::others_exec);
  const auto before = everything_in(run("runs"));
  const auto expect_refused = [&](const std::vector<std::string>& words, int code, const char* reason) {
    const fs::path output = scratch_ / "output.txt";
    EXPECT_EQ(resume_as_nobody(words, output), code);
    EXPECT_NE(text_of(output).find(reason), std::string::npos) << text_of(output);
    EXPECT_EQ(text_of(output).find("epoch"), std::string::npos) << "nothing was trained";
  };
  expect_refused({"fit", "--resume", run("runs").string(), "trainer.max_epochs=2"}, 1, "Permission denied");
  expect_refused(
      {"fit", "-c", (scratch_ / "small.toml").string(), "run.dir=" + (run("runs") / "deeper").string()}, 2,
      "is not writable");
  EXPECT_EQ(everything_in(run("runs")), before);
  fs::permissions(run("runs"), fs::perms::owner_all);
}

}  // namespace
}  // namespace kindling
