#include "cli/check/fit_parts.h"

#include <algorithm>
#include <charconv>

#include "cli/config/unquoted.h"

namespace kindling {

std::string FitParts::text(const std::string& key) const {
  const auto found = values.find(key);
  return found == values.end() ? "" : unquoted(found->second);
}

std::int64_t FitParts::count(const std::string& key) const {
  const std::string digits = text(key);
  std::int64_t number = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return number;
}

bool FitParts::can_validate() const {
  return validation && (trainer.limit_val_batches != 0 || trainer.fast_dev_run);
}

RunLength length_of_run(const FitParts& fit) {
  const TrainerOptions& options = fit.trainer;
  const DataLoader& loader = *fit.train;
  const std::int64_t samples = loader.num_samples(), batch = loader.options().batch_size * fit.num_ranks;
  std::int64_t batches = loader.options().drop_last ? samples / batch : (samples + batch - 1) / batch;
  batches = std::min(batches, options.limit_train_batches.value_or(batches));
  if (options.overfit_batches) batches = std::min(options.overfit_batches->of(batches), batches);
  const std::int64_t window = options.accumulate_grad_batches,
                     per_epoch = std::max<std::int64_t>((batches + window - 1) / window, 1);
  std::int64_t steps = options.max_epochs.value_or(0) * per_epoch;
  if (options.max_steps) steps = steps > 0 ? std::min(steps, *options.max_steps) : *options.max_steps;
  return {.epochs = (steps + per_epoch - 1) / per_epoch, .steps = steps};
}

}  // namespace kindling
