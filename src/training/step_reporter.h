#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "kindling/loggers/logger.h"
#include "kindling/metrics/device_log.h"

namespace kindling {

// Turns the rows of an epoch's log into step records, every n steps, as soon as they have reached the host
// and in order.
class StepReporter {
 public:
  StepReporter(DeviceLog& log, std::int64_t every_n_steps, std::vector<std::shared_ptr<Logger>> loggers);

  // `epoch` counts from 0, `steps_before` are the steps of earlier epochs; `lr_of` gives the rate of a global
  // step (from 1).
  void start_epoch(std::int64_t epoch, std::int64_t steps_before, std::function<double(std::int64_t)> lr_of);
  // After every step: asks for a copy of new rows when a record is due, and reports what has arrived. Never
  // waits.
  void after_step();
  // The rest, once the log has been moved to the host.
  void finish_epoch();

 private:
  void report_up_to(std::int64_t rows);

  DeviceLog& log_;
  std::int64_t every_n_steps_;
  std::vector<std::shared_ptr<Logger>> loggers_;
  std::int64_t epoch_ = 0, steps_before_ = 0, reported_rows_ = 0;
  std::function<double(std::int64_t)> lr_of_;
};

}  // namespace kindling
