#include "training/step_reporter.h"

namespace kindling {

StepReporter::StepReporter(DeviceLog& log, std::int64_t every_n_steps,
                           std::vector<std::shared_ptr<Logger>> loggers)
    : log_(log), every_n_steps_(every_n_steps), loggers_(std::move(loggers)) {}

void StepReporter::start_epoch(std::int64_t epoch, std::int64_t steps_before,
                               std::function<double(std::int64_t)> lr_of) {
  epoch_ = epoch;
  steps_before_ = steps_before;
  reported_rows_ = 0;
  lr_of_ = std::move(lr_of);
}

void StepReporter::after_step() {
  if (every_n_steps_ == 0 || (steps_before_ + log_.num_rows()) % every_n_steps_ != 0) return;
  log_.start_preview();
  report_up_to(log_.rows_on_host());
}

void StepReporter::finish_epoch() {
  if (every_n_steps_ > 0) report_up_to(log_.num_rows());
}

void StepReporter::report_up_to(std::int64_t rows) {
  for (; reported_rows_ < rows; ++reported_rows_) {
    const std::int64_t step = steps_before_ + reported_rows_ + 1;
    if (step % every_n_steps_ != 0) continue;
    Record record{.kind = Record::Kind::step, .global_step = step, .epoch = epoch_ + 1, .values = {}};
    if (const auto loss = log_.value(reported_rows_, log_.column("train_loss")))
      record.values.emplace_back("train_loss_step", *loss);
    record.values.emplace_back("lr", lr_of_(step));
    if (const auto norm = log_.value(reported_rows_, log_.column("grad_norm")))
      record.values.emplace_back("grad_norm", *norm);
    for (const auto& logger : loggers_) logger->write(record);
  }
}

}  // namespace kindling
