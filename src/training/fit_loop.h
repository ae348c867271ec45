#pragma once

#include <memory>
#include <optional>

#include "training/agreed_stop.h"
#include "training/batch_source.h"
#include "training/callbacks.h"
#include "training/divergence_report.h"
#include "training/epoch_report.h"
#include "training/step.h"
#include "training/train_state.h"

namespace kindling {

// The parts of a trainer that its loops work on.
struct FitParts {
  const TrainerOptions& options;
  const std::shared_ptr<TrainerInfo>& info;
  TrainState& state;
  Step& step;
  EpochReport& report;
  DivergenceReport& divergence;
  EpochLog& evaluation_log;
  const Callbacks& callbacks;
  AgreedStop& stop;
  ProcessGroup* group;      // nullptr: this process alone
  BatchSource* train;       // nullptr: an own loop brings its batches
  BatchSource* validation;  // nullptr: there is none
};

bool has_all_steps(const FitParts& fit);  // max_steps
// Nothing more is to be trained: the epochs or steps are done, or a stop was requested.
bool is_done(const FitParts& fit);

// The state of the training between two steps, to be saved: what has been logged up to there is told and
// durable. A training that has diverged is stopped.
StateDict save_point(const FitParts& fit);
// Goes on from a saved state, instead of from the beginning.
void resume(const FitParts& fit, const StateDict& saved);

// Epoch after epoch, from where the state stands, until is_done(). Returns the values of the last epoch
// record.
Metrics fit_loop(const FitParts& fit);
// A few batches of validation, without a record.
void sanity_check(const FitParts& fit, BatchSource& batches);

// The pieces of the loop, for own ones:
//
//   begin_epoch(fit); while (next_batch(fit, batch)) train_batch(fit, batch); finish_epoch(fit);
void begin_epoch(const FitParts& fit);
bool next_batch(const FitParts& fit, Batch& batch);
void train_batch(const FitParts& fit, const Batch& batch);
// Validates, reports and goes on to the next epoch, unless a stop has ended the batches of `fit.train` or the
// validation: then position, phase and log stay as they are. Returns the values of the record.
Metrics finish_epoch(const FitParts& fit);
// One epoch, or the rest of it. Nothing when a stop has ended it: then position, phase and log stay as they
// are.
std::optional<Metrics> fit_epoch(const FitParts& fit);

}  // namespace kindling
