#include <ATen/record_function.h>

#include <exception>
#include <fstream>
#include <string>
#include <system_error>
#include <utility>

#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/base/log.h"
#include "training/inspect/inspected_step.h"
#include "training/inspect/operator_table.h"

namespace kindling {
namespace {

constexpr const char *kTraceFile = "trace.json", *kTableFile = "profile.txt";

std::string batches_text(std::int64_t first, std::int64_t last) {
  return first == last ? "batch " + std::to_string(first)
                       : "batches " + std::to_string(first) + " to " + std::to_string(last);
}

}  // namespace

ProfiledStep::ProfiledStep(std::unique_ptr<Step> step, const TrainState& state, const TrainerOptions& options)
    : step_(std::move(step)),
      state_(state),
      options_(options),
      trace_(std::make_unique<OperatorTrace>(state.log.device())) {
  std::error_code error;
  std::filesystem::create_directories(options.profile_dir, error);
  if (error)
    throw Error({.place = options.profile_dir.string(),
                 .found = "it cannot be created: " + error.message(),
                 .wanted = "a directory for the trace",
                 .remedy = "choose another profile_dir"});
}

StepOutcome ProfiledStep::run(const Batch& batch, WindowPosition place) {
  const std::int64_t first = options_.profile_wait + options_.profile_warmup;
  if (num_batches_ == options_.profile_wait && trace_) prepare();
  if (num_batches_ == first && trace_) {
    trace_->start();
    first_traced_ = num_batches_ + 1;
  }
  ++num_batches_;
  StepOutcome outcome;
  {
    at::RecordFunction in_trace(at::RecordScope::USER_SCOPE);
    if (in_trace.isActive()) in_trace.before("batch " + std::to_string(num_batches_));
    outcome = step_->run(batch, place);
  }
  if (num_batches_ >= first + options_.profile_active) end_epoch();
  return outcome;
}

void ProfiledStep::prepare() {
  if (trace_->prepare()) return;
  log_warning("profile: another profiler is active in this process, so no trace is written");
  trace_.reset();
}

void ProfiledStep::end_epoch() {
  step_->end_epoch();
  if (!trace_ || !trace_->is_running()) return;
  const auto trace = std::exchange(trace_, nullptr);
  write(own_times(trace->finish(options_.profile_dir / kTraceFile)));
}

void ProfiledStep::write(const std::vector<OperatorRow>& rows) const {
  const std::string batches = batches_text(first_traced_, num_batches_);
  write_file_atomically(
      options_.profile_dir / kTableFile,
      batches + " of the run, on " + state_.log.device().str() + "\n\n" + operator_table(rows));
  log_info("profile: " + batches + " are in " + (options_.profile_dir / kTraceFile).string() +
           " (for chrome://tracing or ui.perfetto.dev), their operators in " + kTableFile);
}

ProfiledStep::~ProfiledStep() {
  try {
    end_epoch();
    if (trace_)
      log_warning("profile: no trace was written, because the run ended after " +
                  batches_text(1, num_batches_) +
                  "; profile_wait and profile_warmup determine when it begins");
  } catch (const std::exception& error) {
    log_error(std::string("profile: ") + error.what());
  }
}

}  // namespace kindling
