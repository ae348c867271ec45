// A run that was stopped anywhere and resumed from its checkpoint ends as if it had never stopped.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <iostream>

#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/loggers/csv_logger.h"
#include "kindling/loggers/jsonl_logger.h"
#include "kindling/tensors/checkpoint_file.h"
#include "kindling/training/model_checkpoint.h"
#include "support/device_under_test.h"
#include "support/scratch.h"
#include "training/loop/measured_fit.h"
#include "training/loop/resumed_fit.h"

namespace kindling {
namespace {

// Keeps the state of a run at every position where it may be saved.
class Keeper : public Callback {
 public:
  explicit Keeper(std::filesystem::path folder) : folder_(std::move(folder)) {}
  void on_train_batch_end(Trainer& trainer, Module&) override {
    if (trainer.progress().accumulated_batches == 0) keep(trainer, "step");
  }
  void on_validation_start(Trainer& trainer, Module&) override {
    if (trainer.progress().global_step > 0) keep(trainer, "validation-start");
  }
  void on_validation_end(Trainer& trainer, Module&) override {
    if (trainer.progress().global_step > 0) keep(trainer, "validation-end");
  }
  void on_epoch_end(Trainer& trainer, Module&, const Record&) override { keep(trainer, "epoch-end"); }

  std::vector<std::filesystem::path> files;

 private:
  void keep(Trainer& trainer, const std::string& what) {
    const auto at = std::to_string(trainer.progress().global_step);
    files.push_back(folder_ / (what + "-" + at + ".safetensors"));
    save_checkpoint(trainer.state_dict(), files.back());
  }
  std::filesystem::path folder_;
};

class Resumes : public OnDevice {
 protected:
  ResumedFit made(const std::string& rule, const std::string& schedule = "cosine") const {
    return ResumedFit(rule, num_gpus_wanted(), schedule);
  }
  // The same with checkpoints in a folder.
  ResumedFit made(const std::string& rule, ModelCheckpointOptions options) const {
    ResumedFit fit(rule, num_gpus_wanted());
    fit.options.callbacks.insert(fit.options.callbacks.begin(), std::make_shared<ModelCheckpoint>(options));
    return fit;
  }
};
KINDLING_RUN_ON_TRAINER_DEVICES(Resumes);

TEST_P(Resumes, AreBitIdenticalFromEveryPosition) {
  const Scratch scratch(memory_folder());
  std::size_t num_places = 0;
  const std::vector<std::pair<std::string, std::string>> trainings{
      {"sgd", "cosine"}, {"adam", "cosine"}, {"adamw", "cosine"},  {"sgd", "no"},
      {"adam", "no"},    {"adamw", "no"},    {"sgd", "one_cycle"}, {"adam", "plateau"}};
  for (const auto& [rule, schedule] : trainings) {
    ResumedFit whole = made(rule, schedule);
    whole.fit();
    // Saving itself leaves everything as it is.
    ResumedFit saved = made(rule, schedule);
    const auto keeper = std::make_shared<Keeper>(scratch.folder());
    saved.options.callbacks.push_back(keeper);
    saved.fit();
    expect_same_state(saved.end, whole.end, rule + ", saved everywhere");
    ASSERT_EQ(keeper->files.size(), kResumeEpochs * (kResumeBatches + 3));

    for (const auto& file : keeper->files) {
      if (num_places++ % place_stride() != 0) continue;
      const std::string where = rule + ", " + schedule + " schedule, from " + file.filename().string();
      ResumedFit rest = made(rule, schedule);
      for (const Record& record : whole.logger->records()) rest.logger->write(record);  // some of the future
      at::rand({17});
      rest.fit(file);
      expect_same_state(rest.end, whole.end, where);
      expect_same_records(rest.logger->records(), whole.logger->records(), where);
      EXPECT_EQ(rest.meddler->num_resumes, 1) << where;
      if (HasFailure()) return;
    }
  }
  std::cout << "R7: " << (num_places + place_stride() - 1) / place_stride() << " places of 8 trainings on "
            << device_ << ", all bit-equal\n";
}

// The averages, the rates that one of them sets, the patience that is left; saved in validations that see one
// of the averages, too.
TEST_P(Resumes, OfAveragesAreBitIdenticalFromEveryPosition) {
  const Scratch scratch(memory_folder());
  for (const std::string evaluated : {"ema", "swa"}) {
    ResumedFit whole = made("adam");
    whole.average(evaluated);
    whole.fit();
    ResumedFit saved = made("adam");
    saved.average(evaluated);
    const auto keeper = std::make_shared<Keeper>(scratch.folder());
    saved.options.callbacks.push_back(keeper);
    saved.fit();
    expect_same_state(saved.end, whole.end, evaluated + ", saved everywhere");
    ASSERT_EQ(keeper->files.size(), kResumeEpochs * (kResumeBatches + 3));
    for (std::size_t i = 0; i < keeper->files.size(); i += place_stride()) {
      const auto& file = keeper->files[i];
      const std::string where = evaluated + ", from " + file.filename().string();
      ResumedFit rest = made("adam");
      rest.average(evaluated);
      for (const Record& record : whole.logger->records()) rest.logger->write(record);
      rest.fit(file);
      expect_same_state(rest.end, whole.end, where);
      expect_same_records(rest.logger->records(), whole.logger->records(), where);
      if (HasFailure()) return;
    }
  }
}

// The sums of metrics, in the middle of an epoch, of a validation and of a window whose step may be skipped.
TEST_P(Resumes, OfMetricsAreBitIdenticalFromEveryPosition) {
  const Scratch scratch(memory_folder());
  const auto measured = [&] {
    ResumedFit fit = made("adam");
    // Not the areas of classes that have no samples: they are NaN, which is not equal to itself.
    measure_classes(*fit.model,
                    {"top2", "f1_macro", "recall_per_class", "confusion_matrix", "auroc", "perplexity"});
    fit.options.accumulate_grad_batches = 2;
    fit.options.on_nonfinite = "skip";
    return fit;
  };
  ResumedFit whole = measured();
  whole.fit();
  EXPECT_NE(whole.logger->records().back().find("val_confusion_matrix[9][9]"), nullptr);
  ResumedFit saved = measured();
  const auto keeper = std::make_shared<Keeper>(scratch.folder());
  saved.options.callbacks.push_back(keeper);
  saved.fit();
  expect_same_state(saved.end, whole.end, "saved everywhere");
  ASSERT_GE(keeper->files.size(), kResumeEpochs * (kResumeBatches / 2 + 3));
  for (std::size_t i = 0; i < keeper->files.size(); i += place_stride()) {
    const auto& file = keeper->files[i];
    const std::string where = "metrics, from " + file.filename().string();
    ResumedFit rest = measured();
    for (const Record& record : whole.logger->records()) rest.logger->write(record);
    rest.fit(file);
    expect_same_state(rest.end, whole.end, where);
    expect_same_records(rest.logger->records(), whole.logger->records(), where);
    if (HasFailure()) return;
  }
}

TEST_P(Resumes, DifferWithoutTheRandomState) {
  const Scratch scratch(memory_folder());
  ResumedFit whole = made("adam"), stopped = made("adam"), rest = made("adam");
  whole.fit();
  stopped.meddler->stop_at = 7;
  stopped.fit();
  std::erase_if(stopped.end.tensors, [](const auto& item) { return item.first.starts_with("random."); });
  save_checkpoint(stopped.end, scratch / "file");
  at::manual_seed(99);
  rest.fit(scratch / "file");
  EXPECT_FALSE(same(rest.end.tensors[0].second, whole.end.tensors[0].second));
}

TEST_P(Resumes, AreBitIdenticalAfterAnyStop) {
  const Scratch scratch(memory_folder());
  ResumedFit whole = made("adamw");
  whole.average("swa");
  const FitResult of_whole = whole.fit();
  std::int64_t num_stops = 0;
  for (const bool asynchronous : {false, true}) {
    const ModelCheckpointOptions options{.dirpath = scratch / (asynchronous ? "async" : "sync"),
                                         .every_n_steps = 4,
                                         .asynchronous = asynchronous};
    std::filesystem::path from;
    FitResult result;
    StateDict end;
    auto logger = std::make_shared<MemoryLogger>();
    for (std::int64_t stop_at = 3;; stop_at += 7) {  // in epochs, and at their ends
      ResumedFit part = made("adamw", options);
      part.average("swa");
      part.options.loggers = {logger};
      part.meddler->stop_at = stop_at;
      if (stop_at % 2 == 0) part.model->stop_at_val_batch = 5;  // sanity checks are the first two
      result = part.fit(from);
      end = part.end;
      from = options.dirpath;
      if (result.status == FitStatus::finished) break;
      ASSERT_LT(++num_stops, 40);
    }
    expect_same_state(end, whole.end, "stopped");
    expect_same_records(logger->records(), whole.logger->records(), "stopped");
    EXPECT_EQ(result.progress, of_whole.progress);
  }
  std::cout << num_stops << " stops of 2 trainings on " << device_ << "\n";
}

TEST_P(Resumes, OfCustomLoopsAreBitIdentical) {
  const Scratch scratch(memory_folder());
  ResumedFit whole = made("sgd");
  whole.average("ema");
  whole.options.num_sanity_val_steps = 0;
  whole.fit();
  // A loop that saves after every step and is abandoned at some; another loop resumes it.
  auto logger = std::make_shared<MemoryLogger>();
  StateDict end;
  for (const std::int64_t leave_at : {5, 15, 38, 1000}) {
    ResumedFit part = made("sgd");
    part.average("ema");
    part.options.loggers = {logger};
    Trainer trainer(part.options);
    trainer.prepare_data(part.data);
    trainer.prepare_model(part.model);
    if (std::filesystem::exists(scratch / "loop")) trainer.load_state_dict(load_checkpoint(scratch / "loop"));
    bool is_left = false;
    while (!trainer.is_done() && !is_left) {
      for (const Batch& batch : trainer.train_batches()) {
        trainer.train_step(batch);
        save_checkpoint(trainer.state_dict(), scratch / "loop");
        is_left = trainer.progress().global_step == leave_at;
        if (is_left) break;
      }
      if (!is_left) trainer.finish_epoch();
    }
    end = copy_to(trainer.state_dict(), cpu());
  }
  expect_same_state(end, whole.end, "own loop");
  expect_same_records(logger->records(), whole.logger->records(), "own loop");
}

TEST_P(Resumes, CutMetricFilesBackToTheCheckpoint) {
  const Scratch scratch(memory_folder());
  const auto with_files = [&](ResumedFit& fit, const std::string& name) {
    fit.options.loggers = {std::make_shared<JsonlLogger>(scratch / (name + ".jsonl")),
                           std::make_shared<CsvLogger>(scratch / (name + ".csv"))};
  };
  const auto keeper = std::make_shared<Keeper>(scratch.folder());
  ResumedFit whole = made("adam");
  with_files(whole, "whole");
  whole.options.callbacks.push_back(keeper);
  whole.fit();
  // The lines without what clocks and counters say.
  const auto lines = [&](const std::string& name) {
    std::vector<std::string> all;
    for (const char* end : {".jsonl", ".csv"}) {
      std::istringstream text(read_file(scratch / (name + end), 1 << 20));
      for (std::string line; std::getline(text, line);) {
        const bool is_table = std::string(end) == ".csv";
        all.push_back(is_table ? line.substr(0, line.find(',', line.find(',') + 1))
                               : line.substr(0, line.find(", \"epoch_time_s\"")));
      }
    }
    return all;
  };
  const auto expected = lines("whole");
  ASSERT_EQ(expected.size(), 60u + 4 + 1 + 4);
  for (const auto& file : keeper->files) {
    // The files of a run that was killed later on, in the middle of a line.
    for (const char* end : {".jsonl", ".csv"})
      write_file_atomically(scratch / (std::string("rest") + end),
                            read_file(scratch / (std::string("whole") + end), 1 << 20) + "7,3");
    ResumedFit rest = made("adam");
    with_files(rest, "rest");
    rest.fit(file);
    EXPECT_EQ(lines("rest"), expected) << file;
  }
}

TEST_P(Resumes, RefuseMismatchesAndChangeNothing) {
  const Scratch scratch(memory_folder());
  ResumedFit stopped = made("adam", ModelCheckpointOptions{.dirpath = scratch / "ckpt"});
  stopped.meddler->stop_at = 20;
  stopped.fit();
  const auto count = [&] { return std::distance(std::filesystem::directory_iterator(scratch / "ckpt"), {}); };
  const auto before = count();
  ResumedFit other_rule = made("sgd");
  JsonlLogger lines(scratch / "lines");
  const Record record{.kind = Record::Kind::step, .global_step = 50};
  lines.write(record);
  const auto size = std::filesystem::file_size(scratch / "lines");
  other_rule.options.loggers = {std::make_shared<JsonlLogger>(scratch / "lines")};
  EXPECT_NE(error_text<CheckpointError>([&] { other_rule.fit(scratch / "ckpt"); }).find("exp_avg"),
            std::string::npos);
  EXPECT_EQ(std::filesystem::file_size(scratch / "lines"), size);
  EXPECT_EQ(count(), before);
  const std::string nothing = error_text<CheckpointError>([&] { made("adam").fit(scratch.folder()); });
  EXPECT_NE(nothing.find("no valid checkpoint"), std::string::npos) << nothing;
  const std::string missing = error_text<CheckpointError>([&] { made("adam").fit(scratch / "none"); });
  EXPECT_NE(missing.find("none"), std::string::npos) << missing;
}

TEST_P(Resumes, OfAFinishedRunChangeNothing) {
  const Scratch scratch(memory_folder());
  const ModelCheckpointOptions options{.dirpath = scratch / "ckpt"};
  ResumedFit whole = made("adam", options);
  whole.fit();
  std::map<std::string, std::filesystem::file_time_type> before, after;
  const auto look = [&](auto& times) {
    for (const auto& entry : std::filesystem::directory_iterator(scratch / "ckpt"))
      if (entry.path().extension() == ".safetensors") times[entry.path()] = entry.last_write_time();
  };
  look(before);
  ResumedFit again = made("adam", options);
  const FitResult result = again.fit(scratch / "ckpt");
  EXPECT_EQ(result.status, FitStatus::finished);
  EXPECT_EQ(result.progress.global_step, kResumeEpochs * kResumeBatches);
  expect_same_state(again.end, whole.end, "over");
  look(after);
  EXPECT_EQ(before, after);

  ResumedFit longer = made("adam", options), at_once = made("adam");
  at_once.options.max_epochs = longer.options.max_epochs = kResumeEpochs + 1;
  at_once.options.schedule = longer.options.schedule = {};
  EXPECT_EQ(longer.fit(scratch / "ckpt").progress.epoch, kResumeEpochs + 1);
}

TEST_P(Resumes, DrawTheSameWeightsBeforeTheFirstStep) {
  const Scratch scratch(memory_folder());
  const ModelCheckpointOptions options{.dirpath = scratch / "ckpt"};
  ResumedFit whole = made("adam"), stopped = made("adam", options), rest = made("adam", options);
  whole.options.num_sanity_val_steps = stopped.options.num_sanity_val_steps = 0;
  at::manual_seed(3);
  whole.fit();
  at::manual_seed(3);
  stopped.options.callbacks.push_back([] {
    struct Stop : Callback {
      void on_fit_start(Trainer& trainer, Module&) override { trainer.request_stop(); }
    };
    return std::make_shared<Stop>();
  }());
  EXPECT_EQ(stopped.fit().progress.global_step, 0);
  EXPECT_TRUE(stopped.end.metadata.contains("lazy.net.1.weight"));
  rest.fit(scratch / "ckpt");  // its sanity check has given the layers weights of other numbers
  expect_same_state(rest.end, whole.end, "before the first step");
}

}  // namespace
}  // namespace kindling
