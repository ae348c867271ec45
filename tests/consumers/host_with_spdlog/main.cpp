#include <kindling/kindling.h>

#include <iostream>

#include "own_log.h"

// A program with its own default logger, which also receives Kindling's log.
int main() {
  start_own_log();
  write_to_own_log("before");
  kindling::set_log_observer(
      [](kindling::LogLevel, const std::string& message) { write_to_own_log(message); });

  kindling::SyntheticRegression data({}, {.batch_size = 50});
  kindling::Trainer trainer({.max_epochs = 3, .num_gpus = 99});  // logs that there are fewer
  const auto result = trainer.fit(std::make_shared<kindling::LinearRegression>(), data);

  if (!own_log_is_untouched()) return 1;
  write_to_own_log("after");
  return result.progress.epoch == 3 ? 0 : 2;
}
