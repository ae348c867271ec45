#pragma once

#include <cstddef>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/thread_use.h"
#include "device/float32_products.h"
#include "kindling/training/trainer.h"
#include "nn/model_use.h"
#include "training/loop/evaluate_loop.h"
#include "training/loop/fit_loop.h"

namespace kindling {

// One of a data module's loaders.
struct LoaderSelector {
  const char* location;  // the caller, for error messages
  const char* name;
  std::shared_ptr<DataLoader> (DataModule::*loader)();
  Stage stage;
  const char* defaults = "";  // for the error: what a data module that does not override it returns
};

// Data of which Trainer::validate() passes on every batch, whatever the options limit. Such a data module
// derives from both.
class UnlimitedData {
 protected:
  virtual ~UnlimitedData() = default;
};

// The implementation of Trainer around its loops: prepares models and data, starts and ends a fit, evaluates.
class Trainer::Impl {
 public:
  Impl(Trainer& owner, TrainerOptions options);

  FitResult fit(std::shared_ptr<Module> model, DataModule& data, const FitOptions& options);
  void prepare_data(DataModule& data);
  void prepare_model(std::shared_ptr<Module> model);
  // Returns the loop. Throws Error when something that `location` needs has not been prepared.
  FitLoop& prepared(const char* location, bool needs_data);
  Metrics validate(Module& model, DataModule& data, const LoaderSelector& selector);
  void validate(Module& model, BatchSource source, const std::function<void(const Prediction&)>& take);
  Metrics evaluate(Module& model, BatchSource source, EvaluationStep step);
  at::Tensor predict(Module& model, BatchSource source);
  void predict(Module& model, BatchSource source, const std::function<void(const Prediction&)>& take);
  std::vector<LayerRow> layer_summary(Module& model, DataModule& data);
  // Returns the batches of one of the data's loaders; throws DataError when the data has none. `enough`: see
  // limit_of_epoch().
  BatchSource source_of(DataModule& data, const LoaderSelector& selector, std::optional<std::int64_t> limit,
                        std::optional<std::int64_t> enough = std::nullopt) const;
  // Returns such batches for a model; throws ConfigError if its inputs were transformed in another way.
  BatchSource source_for(const Module& model, DataModule& data, const LoaderSelector& selector,
                         std::optional<std::int64_t> limit) const;

  const std::shared_ptr<TrainingContext> context;  // models refer to it weakly
  FitLoop loop;
  DataModule* data = nullptr;  // prepared

  // While it lives, this thread uses the trainer and a model: the one that is given, else the one that is
  // trained, if any. Throws Error that names the call if another thread is using either of them.
  class Use {
   public:
    Use(Impl& impl, const char* location, std::shared_ptr<Module> model);

   private:
    const ThreadUse of_trainer_;
    const std::shared_ptr<Module> model_;
    std::optional<ModelUse> of_model_;
  };

  // While it lives, a call is running on the trainer: a second one, from a callback or a step, would destroy
  // what the first one works on.
  class Work {
   public:
    // Throws Error for a second one.
    Work(Impl& impl, const char* location, std::shared_ptr<Module> model = nullptr);
    ~Work() { impl_.is_working_ = false; }
    Work(const Work&) = delete;
    Work& operator=(const Work&) = delete;

   private:
    Impl& impl_;
    const Use use_;
    DeterministicOperators::Scope deterministic_;
    Float32Products products_;
  };

 private:
  // Cleans up after a fit, however it ends: a stop request and the data are for one fit only.
  struct FitScope {
    Impl& impl;
    ~FitScope();
  };
  ProcessGroup* group() const noexcept { return context->group(); }
  void shard(BatchSource& source) const;  // among the ranks
  static std::unique_ptr<Step> make_step(TrainingContext& context);
  // Runs the loop, and goes back after each spike (rollback.cpp). `resumed`: where the fit has started;
  // empty: it is new.
  Metrics run_with_rollbacks(const std::filesystem::path& resumed);
  std::filesystem::path latest_checkpoint() const;  // collective
  // False: the run has given up.
  bool go_back(const EpochReport::StepRows& spike, const std::filesystem::path& checkpoint,
               const StateDict& saved);
  std::vector<ValidationSource> validation_of(DataModule& data, std::optional<std::int64_t> limit) const;
  void materialize(Module& model, DataModule& data);  // lazy layers, before ranks compare
  void run_sanity_check(DataModule& data);
  void report_error(std::exception_ptr error) noexcept;
  void end_fit(FitResult& result);
  // Calls on_fit_end or finalize() of the next one that has not been called in this fit. False: all have
  // been.
  bool end_next_saver(const FitResult& result);
  bool finalize_next_logger(const FitResult& result);
  bool end_next_other(const FitResult& result);

  ThreadOwner thread_owner_;
  bool is_working_ = false;
  struct NumEnded {
    std::size_t savers = 0, loggers = 0, others = 0;
  };
  NumEnded num_ended_;  // of this fit: one that has thrown is not called again
};

}  // namespace kindling
