// Files of a run that are damaged, edited or removed, while it is stopped or while it runs.
#include <gtest/gtest.h>

#include <cctype>
#include <fstream>
#include <random>
#include <stdexcept>

#include "checkpoint/checkpoint_file.h"
#include "cli/run/loaded_config.h"
#include "cli/run/resume_plan.h"
#include "cli/run/same_run.h"
#include "kindling/cli/registry.h"
#include "kindling/training/trainer.h"
#include "support/scratch.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

// Removes files of the run, given by the environment of the test, at the end of the first epoch.
std::vector<fs::path> files_to_remove;
class RemoveFiles : public Callback {
 public:
  void on_epoch_end(Trainer&, Module&, const Record& record) override {
    if (record.epoch == 1)
      for (const fs::path& file : files_to_remove) fs::remove(file);
  }
};

class FailInEpoch2 : public Callback {
 public:
  void on_train_batch_end(Trainer& trainer, Module&) override {
    if (trainer.progress().global_step == 30) throw std::runtime_error("no more");
  }
};

class DamagedRun : public testing::Test {
 protected:
  DamagedRun() {
    register_builtin(registry_);
    registry_.callback<RemoveFiles>("remove_files");
    registry_.callback<FailInEpoch2>("fail_in_epoch_2");
  }
  // 2 epochs of 23 steps.
  ProgramRun fit(std::vector<std::string> more = {}) {
    write_small_cnn(scratch_ / "small.toml");
    more.insert(more.begin(), {"fit", "-c", (scratch_ / "small.toml").string(),
                               "run.dir=" + (scratch_ / "runs").string(), "trainer.max_epochs=2"});
    return run_program(more, registry_);
  }
  ProgramRun resume(std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"fit", "--resume", run_.string()});
    return run_program(more, registry_);
  }
  std::string log() const { return text_of(run_ / "log.txt"); }
  nlohmann::json summary() const { return nlohmann::json::parse(text_of(run_ / "run.json")); }
  void replace(const fs::path& file, const std::string& from, const std::string& to) {
    std::string text = text_of(file);
    ASSERT_NE(text.find(from), std::string::npos) << from;
    write_text(file, text.replace(text.find(from), from.size(), to));
  }

  const Scratch scratch_;
  const fs::path run_ = scratch_ / "runs/small/0001";
  Registry registry_;
};

void flip_bit(std::string& bytes, std::size_t bit) {
  bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ 1 << (bit % 8));
}

TEST_F(DamagedRun, NoticesEveryFlippedBitOfItsWeights) {
  ASSERT_EQ(fit({"trainer.max_epochs=1"}).exit_code, 0);
  const fs::path weights = run_ / "weights.safetensors", exported = scratch_ / "exported.safetensors";
  ASSERT_EQ(run_program({"export", run_.string(), exported.string()}).exit_code, 0);
  std::mt19937 random(1);
  for (const fs::path& file : {weights, exported}) {
    const std::string whole = text_of(file);
    for (int i = 0; i < 200; ++i) {
      std::string bytes = whole;
      // Half of them in the header, which is a small part of the file.
      flip_bit(bytes, random() % (8 * (i % 2 == 0 ? bytes.size() : 500)));
      write_text(file, bytes);
      EXPECT_THROW(load_state_file(file), CheckpointError) << file << ", flip " << i;
    }
    const ProgramRun validated =
        run_program({"validate", "-c", (run_ / "config.toml").string(), "--weights", file.string()});
    EXPECT_EQ(validated.exit_code, 1);
    write_text(file, whole);
  }
}

TEST_F(DamagedRun, LoadsWeightsWithoutChecksums) {
  ASSERT_EQ(fit({"trainer.max_epochs=1"}).exit_code, 0);
  const fs::path weights = run_ / "weights.safetensors";
  const std::vector<std::string> words{"validate", "-c", (run_ / "config.toml").string(), "--weights",
                                       weights.string()};
  const std::string expected = run_program(words).out;
  const StateDict state = load_safetensors(weights);
  std::vector<TensorToWrite> tensors;
  for (const auto& [name, tensor] : state.tensors)
    tensors.push_back({name, tensor.scalar_type() == at::kLong ? TensorType::int64 : TensorType::float32,
                       tensor.sizes().vec(), tensor.const_data_ptr(), tensor.nbytes()});
  write_safetensors(weights, tensors, {});
  EXPECT_EQ(run_program(words).out, expected);
}

TEST_F(DamagedRun, RefusesAnEditedConfigKeyByKey) {
  ASSERT_EQ(fit().exit_code, 0);
  const fs::path config = run_ / "config.toml";
  replace(config, "\nlr = 0.001", "\nlr = 0.007");
  replace(config, "seed = 0", "seed = 1");
  replace(config, "max_epochs = 2", "max_epochs = 3");
  const std::string edited = text_of(config);
  const ProgramRun refused = resume({"trainer.gradient_clip_val=0.5"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_EQ(refused.err, run_.string() +
                             ": the config differs from the one that the run was started with:\n"
                             "  optimizer.lr: was 0.001, now 0.007 (in its config.toml)\n"
                             "  seed: was 0, now 1 (in its config.toml)\n"
                             "  trainer.gradient_clip_val: was 1.0, now 0.5\n"
                             "nothing was run; undo these changes, or resume with --allow-config-change\n");
  EXPECT_EQ(text_of(config), edited);
  const ProgramRun allowed = resume({"--allow-config-change"});
  EXPECT_EQ(allowed.exit_code, 0) << allowed.err;
  EXPECT_NE(allowed.out.find("changed optimizer.lr 0.001 -> 0.007, seed 0 -> 1, trainer.max_epochs 2 -> 3\n"),
            std::string::npos)
      << allowed.out;
  EXPECT_EQ(resume({"trainer.max_epochs=4"}).exit_code, 0);  // now this is the run's config
}

// Checkpoints of earlier versions do not carry the config.
TEST_F(DamagedRun, ComparesWithTheFileWhereTheCheckpointHasNoConfig) {
  ASSERT_EQ(fit().exit_code, 0);
  for (const auto& entry : fs::directory_iterator(run_ / "checkpoints"))
    if (entry.path().extension() == ".safetensors") {
      StateDict state = load_checkpoint(entry.path());
      EXPECT_EQ(state.metadata.erase(saved_keys::kProgramConfig), 1u);
      save_checkpoint(state, entry.path());
    }
  replace(run_ / "config.toml", "\nlr = 0.001", "\nlr = 0.007");
  const ProgramRun refused = resume({"trainer.max_epochs=3", "optimizer.lr=0.002"});
  EXPECT_NE(refused.err.find("  optimizer.lr: was 0.007, now 0.002\n"), std::string::npos) << refused.err;
  EXPECT_EQ(resume({"trainer.max_epochs=3"}).exit_code, 0);
}

TEST_F(DamagedRun, WritesAConfigAgainThatCannotBeRead) {
  ASSERT_EQ(fit({"name=small"}).exit_code, 0);
  const std::string whole = text_of(run_ / "config.toml");
  write_text(run_ / "config.toml", std::string(whole.size(), '\0'));
  EXPECT_EQ(resume().exit_code, 2);
  const ProgramRun again = fit({"trainer.max_epochs=2", "checkpoint.resume=last", "trainer.max_epochs=3"});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_NE(again.err.find("the run's config.toml cannot be read and is written again"), std::string::npos)
      << again.err;
  EXPECT_NE(text_of(run_ / "config.toml").find("max_epochs = 3"), std::string::npos);
}

// Everything between the beginning of a line and its comment; comments say nothing about the run.
std::vector<std::size_t> places_of_settings(const std::string& config) {
  std::vector<std::size_t> places;
  for (std::size_t begin = 0; begin < config.size(); begin = config.find('\n', begin) + 1) {
    const std::string_view line = std::string_view(config).substr(begin, config.find('\n', begin) - begin);
    const std::size_t end = line.substr(0, line.find("  #")).find_last_not_of(' ');
    for (std::size_t i = 0; !line.starts_with('#') && end != std::string_view::npos && i <= end; ++i)
      places.push_back(begin + i);
  }
  return places;
}

// Their digits, whose lowest bits make other digits.
std::vector<std::size_t> places_of_digits(const std::string& config,
                                          const std::vector<std::size_t>& settings) {
  std::vector<std::size_t> places;
  for (const std::size_t at : settings)
    if (std::isdigit(config[at]) != 0 && config.rfind('=', at) > config.rfind('\n', at)) places.push_back(at);
  return places;
}

TEST_F(DamagedRun, NoticesEveryFlippedBitOfItsConfig) {
  ASSERT_EQ(fit({"ema.decay=0.9", "early_stopping.patience=5", "trainer.max_epochs=1"}).exit_code, 0);
  const fs::path file = run_ / "config.toml";
  const std::string whole = text_of(file);
  const auto values_of = [&] { return RunConfig(ConfigDocument::load(file), registry_, "small").values(); };
  const auto values = values_of();
  replace(run_ / "run.json", "finished", "running");
  const std::vector<std::size_t> places = places_of_settings(whole);
  const std::vector<std::size_t> digits = places_of_digits(whole, places);
  ASSERT_GT(places.size(), 500u);
  std::mt19937 random(2);
  int edits = 0, refused = 0, unreadable = 0;
  while (edits < 100) {
    std::string bytes = whole;
    if (edits % 2 == 0)
      flip_bit(bytes, 8 * places[random() % places.size()] + random() % 8);
    else
      flip_bit(bytes, 8 * digits[random() % digits.size()] + random() % 3);
    write_text(file, bytes);
    const Request request{.command = "fit", .resume = run_};
    std::string note;
    try {
      if (values_of() == values) continue;  // 1E-8 is 1e-8
    } catch (const ConfigError&) {
      ++unreadable;
      ++edits;
      EXPECT_THROW(load_config(request, registry_), ConfigError);
      continue;
    }
    ++edits;
    try {
      const LoadedConfig loaded = load_config(request, registry_);
      note = plan_resume(request, registry_, *loaded.config).note;
    } catch (const ConfigError& error) {
      ++refused;
      note = error.what();
      EXPECT_NE(note.find("(in its config.toml)"), std::string::npos) << note;
      continue;
    }
    EXPECT_NE(note.find("changed "), std::string::npos) << note << "\n" << bytes;
  }
  std::cout << "R21: of " << edits << " flips " << unreadable << " were no config, " << refused
            << " refused, the others reported\n";
  EXPECT_GT(refused, 10);
}

TEST_F(DamagedRun, HasNoRecordTwice) {
  ASSERT_EQ(fit({"trainer.max_epochs=3"}).exit_code, 0);
  const auto expected = records_of(run_);
  const auto rows = csv_of(run_);
  for (const char* name : {"metrics.jsonl", "metrics.csv"}) {
    const std::string text = text_of(run_ / name);
    const std::size_t half = text.find('\n', text.size() / 2) + 1;
    write_text(run_ / name, text.substr(0, half) + "\n" + std::string(4096, '\0') + "\n" + text.substr(half));
  }
  replace(run_ / "run.json", "finished", "running");
  const fs::path second_epoch = run_ / "checkpoints/step-00000046.safetensors";
  const ProgramRun again = run_program({"fit", "--resume", second_epoch.string()}, registry_);
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(records_of(run_), expected);
  EXPECT_EQ(csv_of(run_), rows);
  EXPECT_NE(again.err.find("metrics.jsonl: 2 lines that cannot be read were removed"), std::string::npos)
      << again.err;
}

TEST_F(DamagedRun, ReportsMissingRecordsOnResume) {
  ASSERT_EQ(fit().exit_code, 0);
  fs::remove(run_ / "metrics.jsonl");
  fs::remove(run_ / "metrics.csv");
  const ProgramRun again = resume({"trainer.max_epochs=3"});
  EXPECT_EQ(again.exit_code, 0);
  for (const char* name : {"metrics.jsonl", "metrics.csv"})
    EXPECT_NE(again.err.find(std::string(name) + ": the records of 2 epochs are missing, the first is epoch "
                                                 "1"),
              std::string::npos)
        << again.err;
}

TEST_F(DamagedRun, WarnsOfFilesThatAreRemovedWhileItRuns) {
  files_to_remove.clear();
  const std::vector<std::pair<std::string, std::string>> reports{
      {"config.toml", " was removed during the run; it has been written again"},
      {"command.txt", " was removed during the run"},
      {"log.txt", " was removed during the run; its earlier lines are lost"},
      {".lock", ": the lock file was removed"},
      {"checkpoints/.lock", ": the lock file was removed"},
      {"metrics.jsonl", ": the file was removed while it was being written; it has been written again"},
      {"metrics.csv", ": the file was removed while it was being written; it has been written again"}};
  for (const auto& [name, report] : reports) files_to_remove.push_back(run_ / name);
  const ProgramRun run = fit({"callbacks.remove_files={}"});
  EXPECT_EQ(run.exit_code, 0);
  for (const auto& [name, report] : reports)
    EXPECT_NE(run.err.find((run_ / name).string() + report), std::string::npos) << name << ": " << run.err;
  for (const auto& [name, report] : reports)
    EXPECT_EQ(fs::exists(run_ / name), name != "command.txt") << name;
  EXPECT_EQ(records_of(run_).size(), 48u);
  EXPECT_EQ(csv_of(run_).size(), 3u);
  EXPECT_EQ(resume().exit_code, 0);
}

TEST_F(DamagedRun, TellsTheStepAtWhichItHasFailed) {
  EXPECT_EQ(fit({"callbacks.fail_in_epoch_2={}"}).exit_code, 1);
  EXPECT_EQ(summary()["status"], "failed");
  EXPECT_EQ(summary()["global_step"], 30);
  EXPECT_NE(log().find("failed in epoch 2, after batch 7, step 30\n"), std::string::npos) << log();
}

TEST_F(DamagedRun, DoesNotWriteItsLogThroughALink) {
  ASSERT_EQ(fit().exit_code, 0);
  write_text(scratch_ / "other.txt", "mine\n");
  fs::remove(run_ / "log.txt");
  fs::create_symlink(scratch_ / "other.txt", run_ / "log.txt");
  const ProgramRun refused = resume({"trainer.max_epochs=3"});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_NE(refused.err.find("log.txt: the log file is a symbolic link"), std::string::npos) << refused.err;
  EXPECT_EQ(text_of(scratch_ / "other.txt"), "mine\n");
}

TEST_F(DamagedRun, LeavesNoTemporaryFiles) {
  ASSERT_EQ(fit().exit_code, 0);
  write_text(run_ / ".weights.safetensors.tmp.4194305", "half");
  write_text(scratch_ / ".out.safetensors.tmp.4194305", "half");
  write_text(scratch_ / ".other.safetensors.tmp.4194305", "half");
  ASSERT_EQ(resume({"trainer.max_epochs=3"}).exit_code, 0);
  EXPECT_FALSE(fs::exists(run_ / ".weights.safetensors.tmp.4194305"));
  ASSERT_EQ(run_program({"export", run_.string(), (scratch_ / "out.safetensors").string()}).exit_code, 0);
  EXPECT_FALSE(fs::exists(scratch_ / ".out.safetensors.tmp.4194305"));
  EXPECT_TRUE(fs::exists(scratch_ / ".other.safetensors.tmp.4194305"));
}

// The states in which a kill between the last step and the exit can leave a run: run.json is written last.
TEST_F(DamagedRun, HasAllFilesAfterAKillAtItsEndAndAResume) {
  ASSERT_EQ(fit().exit_code, 0);
  EXPECT_NE(text_of(run_ / "report.html").find("finished"), std::string::npos);
  const auto weights = load_state_file(run_ / "weights.safetensors");
  const auto records = records_of(run_).size();
  const std::string csv = text_of(run_ / "metrics.csv"), layers = text_of(run_ / "model.csv");
  std::vector<fs::path> lost;
  for (const char* name : {"run.json", "report.html", "model.csv", "curves.svg", "weights.safetensors"}) {
    lost.push_back(run_ / name);
    for (const fs::path& file : lost) fs::remove(file);
    nlohmann::json before{{"status", "running"}};
    write_text(run_ / "run.json", before.dump());
    const ProgramRun resumed = resume();
    ASSERT_EQ(resumed.exit_code, 0) << name << ": " << resumed.err;
    EXPECT_EQ(summary()["status"], "finished") << name;
    EXPECT_NE(text_of(run_ / "report.html").find("finished"), std::string::npos) << name;
    EXPECT_TRUE(fs::exists(run_ / "curves.svg")) << name;
    EXPECT_EQ(text_of(run_ / "model.csv"), layers) << name;
    EXPECT_EQ(text_of(run_ / "metrics.csv"), csv) << name;
    EXPECT_EQ(records_of(run_).size(), records) << name;
    const auto now = load_state_file(run_ / "weights.safetensors");
    for (const auto& [tensor, value] : weights.tensors) EXPECT_TRUE(now.find(tensor)->equal(value)) << tensor;
  }
  EXPECT_NE(resume().out.find("is finished"), std::string::npos);
}

// Its lines of steps belong to what was lost.
TEST_F(DamagedRun, StartsAgainInTheFolderOfARunThatWasKilledEarly) {
  fs::create_directories(run_);
  write_text(run_ / "run.json", "{\"status\": \"running\"}");
  write_text(run_ / "metrics.jsonl", "{\"global_step\": 1, \"epoch\": 1, \"train_loss_step\": 9}\n");
  ASSERT_EQ(fit().exit_code, 0);
  EXPECT_FALSE(fs::exists(scratch_ / "runs/small/0002"));
  EXPECT_EQ(records_of(run_).size(), 48u);
  EXPECT_NE(log().find("the folder is that of a run that was killed before its first checkpoint"),
            std::string::npos);
}

}  // namespace
}  // namespace kindling
