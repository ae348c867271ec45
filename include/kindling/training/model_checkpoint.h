#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "kindling/base/export.h"
#include "kindling/config/options.h"
#include "kindling/training/callback.h"

namespace kindling {

struct ModelCheckpointOptions {
  std::filesystem::path dirpath = "checkpoints";  // created if missing
  std::int64_t every_n_epochs = 1;                // after validation; 0: never after epochs
  std::optional<std::int64_t> every_n_steps{};    // optimizer steps
  std::optional<double> every_minutes{};
  std::int64_t keep_last = 2;  // number of latest checkpoints to keep
  std::int64_t keep_best = 1;  // number of best checkpoints to keep in addition
  // In addition, the first checkpoint of every n optimizer steps, for replays of any step (replay.h).
  std::optional<std::int64_t> keep_every_n_steps{};
  std::string monitor{};          // a value of the epoch record; empty: the model's monitor()
  std::string mode{};             // what is better; empty: the model's, for its own monitor()
  std::string on_error = "stop";  // what to do when a save fails: "stop" or "continue"
  // Writes files in a separate thread while training continues. A save by steps, minutes or request that
  // falls due before the previous one is written happens after the first step after that.
  bool asynchronous = false;

  static constexpr auto fields = kindling::fields(
      kindling::field("every_n_epochs", &ModelCheckpointOptions::every_n_epochs,
                      {.doc = "save every n epochs; 0: never after epochs", .min = 0}),
      kindling::field("every_n_steps", &ModelCheckpointOptions::every_n_steps,
                      {.doc = "also save every n optimizer steps", .min = 1, .example = "1000"}),
      kindling::field(
          "every_minutes", &ModelCheckpointOptions::every_minutes,
          {.doc = "also save after this many minutes", .min = 0, .min_excluded = true, .example = "30"}),
      kindling::field("keep_last", &ModelCheckpointOptions::keep_last,
                      {.doc = "number of latest checkpoints to keep", .min = 2}),
      kindling::field("keep_best", &ModelCheckpointOptions::keep_best,
                      {.doc = "number of best checkpoints to keep in addition", .min = 0}),
      kindling::field("keep_every_n_steps", &ModelCheckpointOptions::keep_every_n_steps,
                      {.doc = "keep the first checkpoint of every n steps in addition, for kindling replay",
                       .min = 1,
                       .example = "10000"}),
      kindling::field("monitor", &ModelCheckpointOptions::monitor,
                      {.doc = "value that decides which is best; empty: the model's monitor()",
                       .example = "\"val_loss\""}),
      kindling::field("mode", &ModelCheckpointOptions::mode,
                      {.doc = "whether smaller or larger values are better; empty: as the model says",
                       .choices = "|min|max"}),
      kindling::field("on_error", &ModelCheckpointOptions::on_error,
                      {.doc = "what to do when a save fails", .choices = "stop|continue"}),
      kindling::field("asynchronous", &ModelCheckpointOptions::asynchronous,
                      {.doc = "write files while training continues"}));
};

// Saves a run so that it can resume exactly where it was saved (FitOptions::resume), and once more when the
// fit ends, unless the run has diverged or an exception interrupted a step. Each file is durable before an
// older one is deleted. A directory belongs to one run: a fit that neither is nor resumes that run is refused
// at its start, and so is a second ModelCheckpoint at the same time.
class KINDLING_API ModelCheckpoint : public Callback, private TrainingSaver {
 public:
  // Throws ConfigError for options out of range.
  explicit ModelCheckpoint(ModelCheckpointOptions options = {});
  ~ModelCheckpoint() override;

  // Requests a save after the running step (or validation). May be called from any thread or signal handler.
  // In data-parallel training one rank is enough: all ranks save after their next common step.
  void request_save() noexcept;

  // Adds texts to the metadata of every later checkpoint, such as the program's config: NAME is stored as
  // "program.NAME". Loading ignores them. Call it from the trainer's thread, between two steps.
  void set_metadata(std::map<std::string, std::string> texts);

  // Waits until all saves are durable and releases the directory, as on_fit_end() does; call it at the end of
  // custom training loops. Throws the error of a failed save, depending on on_error.
  void finish();

  // Returns the seconds from the start of the latest finished save until its file was durable; 0: there is
  // none, or another rank writes.
  double last_save_s() const noexcept;

  // Return the latest valid checkpoint in the directory and the best one by the monitored value; empty: none
  // yet. Both read and check the files they name; best() is known from on_fit_start on. To resume if there is
  // a checkpoint, else start: fit(model, data, {.resume = checkpoint->last()}).
  std::filesystem::path last() const;
  std::filesystem::path best() const override;

  void on_fit_start(Trainer& trainer, Module& model) override;
  void on_resume(Trainer& trainer, Module& model) override;
  void on_train_batch_end(Trainer& trainer, Module& model) override;
  void on_validation_record(Trainer& trainer, Module& model, const Record& record) override;
  void on_epoch_end(Trainer& trainer, Module& model, const Record& record) override;
  void on_fit_end(Trainer& trainer, Module& model, const FitResult& result) override;
  std::string type_name() const override { return "ModelCheckpoint"; }
  std::vector<std::pair<std::string, std::string>> shared_options() const override;
  TrainingSaver* saver() noexcept override { return this; }

 private:
  bool save_requested() override;  // by every_minutes or request_save()
  void on_save_request() noexcept override;
  std::filesystem::path latest() override;

  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kindling
