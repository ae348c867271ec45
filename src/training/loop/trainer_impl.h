#pragma once

#include <memory>
#include <optional>

#include "kindling/training/trainer.h"
#include "training/evaluate_loop.h"
#include "training/fit_loop.h"

namespace kindling {

// One of a data module's loaders.
struct LoaderOf {
  const char* place;  // that asks for it, for the error
  const char* name;
  std::shared_ptr<DataLoader> (DataModule::*loader)();
};

// What stands behind a Trainer: its parts, which the loops work on.
class Trainer::Impl {
 public:
  Impl(Trainer& owner, TrainerOptions options);

  FitResult fit(std::shared_ptr<Module> model, DataModule& data, const FitOptions& options);
  void prepare_data(DataModule& data);
  void prepare_model(std::shared_ptr<Module> model);
  // Throws Error when something that `place` needs has not been prepared.
  FitParts prepared(const char* place, bool needs_data);
  Metrics evaluate(Module& model, BatchSource source, EvaluationStep step);
  at::Tensor predict(Module& model, BatchSource source);
  void predict(Module& model, BatchSource source, const std::function<void(const Prediction&)>& take);
  std::vector<LayerRow> layer_summary(Module& model, DataModule& data);
  // Batches of one of the data's loaders, made ready; throws DataError when the data has none.
  BatchSource source_of(DataModule& data, const LoaderOf& of, std::optional<std::int64_t> limit) const;

  TrainerOptions options;
  TrainerOptions shown;                                                         // by Trainer::options()
  const std::shared_ptr<TrainerInfo> info;                                      // models hold it weakly
  ProcessGroup* group() const noexcept { return options.process_group.get(); }  // nullptr: alone

  AgreedStop stop;
  TrainState state;
  EpochLog evaluation_log;
  Callbacks callbacks;
  EpochReport report;
  DivergenceReport divergence;
  DataModule* data = nullptr;  // prepared

  // While it lives, a call is at work on the training: another one, from a callback or a step, would lose it.
  class Work {
   public:
    Work(Impl& impl, const char* place);  // throws Error for a second one
    ~Work() { impl_.is_working_ = false; }
    Work(const Work&) = delete;
    Work& operator=(const Work&) = delete;

   private:
    Impl& impl_;
    DeterministicOperators::Scope deterministic_;
    Float32Products products_;
  };

 private:
  // Leaves nothing of a fit behind, however it ends: a stop request holds for one fit, data is borrowed for
  // one.
  struct FitScope {
    Impl& impl;
    ~FitScope();
  };
  FitParts parts();
  void require_interval(std::int64_t num_batches) const;  // throws ConfigError
  void share(BatchSource& source) const;                  // among the processes
  void share_training(BatchSource& source) const;
  void give_shapes(Module& model, DataModule& data);  // to lazy layers, before processes compare
  void tell_of_error(std::exception_ptr error) noexcept;
  void end_fit(FitResult& result);

  bool is_working_ = false;
  std::optional<BatchSource> train_, validation_;
  std::unique_ptr<Step> step_;  // of the prepared model
};

}  // namespace kindling
