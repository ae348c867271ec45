#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "kindling/base/export.h"
#include "kindling/config/options.h"
#include "kindling/training/callback.h"

namespace kindling {

struct ModelCheckpointOptions {
  std::filesystem::path dirpath = "checkpoints";  // made where there is none
  std::int64_t every_n_epochs = 1;                // after validation; 0: not by epochs
  std::optional<std::int64_t> every_n_steps{};    // optimizer steps
  std::optional<double> every_minutes{};
  std::int64_t keep_last = 2;     // the latest ones that stay
  std::int64_t keep_best = 1;     // the best ones that stay beside them
  std::string monitor{};          // a value of the epoch record; empty: the model's monitor()
  std::string mode{};             // what is better; empty: the model's, for its own monitor()
  std::string on_error = "stop";  // what a save that fails does to the fit
  // The file is written by a thread of its own while the training goes on. A save by steps, minutes or
  // request that falls due before the last one is written is made behind the first step after that.
  bool asynchronous = false;

  static constexpr auto fields = kindling::fields(
      kindling::field("every_n_epochs", &ModelCheckpointOptions::every_n_epochs,
                      {.doc = "save every n epochs; 0: never after epochs", .min = 0}),
      kindling::field("every_n_steps", &ModelCheckpointOptions::every_n_steps,
                      {.doc = "also save every n optimizer steps", .min = 1}),
      kindling::field("every_minutes", &ModelCheckpointOptions::every_minutes,
                      {.doc = "also save after this many minutes", .min = 0, .min_excluded = true}),
      kindling::field("keep_last", &ModelCheckpointOptions::keep_last,
                      {.doc = "number of latest checkpoints to keep", .min = 2}),
      kindling::field("keep_best", &ModelCheckpointOptions::keep_best,
                      {.doc = "number of best checkpoints to keep in addition", .min = 0}),
      kindling::field("monitor", &ModelCheckpointOptions::monitor,
                      {.doc = "value that decides which is best; empty: the model's monitor()"}),
      kindling::field("mode", &ModelCheckpointOptions::mode,
                      {.doc = "whether smaller or larger values are better; empty: as the model says",
                       .choices = "|min|max"}),
      kindling::field("on_error", &ModelCheckpointOptions::on_error,
                      {.doc = "what to do when a save fails", .choices = "stop|continue"}),
      kindling::field("asynchronous", &ModelCheckpointOptions::asynchronous,
                      {.doc = "write files while training continues"}));
};

// Saves a training so that it can go on from there as if it had never stopped (FitOptions::resume), and once
// more when the fit ends, unless the training has diverged or a step has thrown in its middle. Each file is
// durable before an older one is deleted. A folder belongs to one training: a fit that neither is it nor goes
// on with it is refused at its start, and so is a second ModelCheckpoint at the same time.
class KINDLING_API ModelCheckpoint : public Callback, private TrainingSaver {
 public:
  // Throws ConfigError for options out of range.
  explicit ModelCheckpoint(ModelCheckpointOptions options = {});
  ~ModelCheckpoint() override;

  // Has the training saved after the step (or validation) that is running. From any thread or signal handler.
  // Of several processes one is enough: all save behind the next step that they make together.
  void request_save() noexcept;

  // Returns when what has been saved is durable, and gives the folder back, as on_fit_end() does: for the end
  // of own loops. Throws what a save has thrown, by on_error.
  void finish();

  // The latest checkpoint in the folder that is whole, and the best one by the monitored value; empty: none
  // yet. Before a fit: fit(model, data, {.resume = checkpoint->last()}) goes on with what is there, or
  // begins. Both read the files they name to check them; the best is known from on_fit_start on.
  std::filesystem::path last() const;
  std::filesystem::path best() const override;

  void on_fit_start(Trainer& trainer, Module& model) override;
  void on_resume(Trainer& trainer, Module& model) override;
  void on_train_batch_end(Trainer& trainer, Module& model) override;
  void on_validation_record(Trainer& trainer, Module& model, const Record& record) override;
  void on_epoch_end(Trainer& trainer, Module& model, const Record& record) override;
  void on_fit_end(Trainer& trainer, Module& model, const FitResult& result) override;
  TrainingSaver* saver() noexcept override { return this; }

 private:
  bool save_requested() override;  // by every_minutes or request_save()
  void on_save_request() noexcept override;

  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kindling
