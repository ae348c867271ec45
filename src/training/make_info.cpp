#include "training/make_info.h"

#include <cstddef>
#include <cstdint>
#include <string>

#include "kindling/base/error.h"
#include "kindling/base/log.h"

namespace kindling {
namespace {

// Says aloud what is not as it was asked for.
void check_cards(const TrainerOptions& options, std::size_t num_found) {
  const auto found = static_cast<std::int64_t>(num_found);
  const std::int64_t wanted = options.num_gpus == -1 ? 1 : options.num_gpus;
  const std::string asked = "num_gpus = " + std::to_string(options.num_gpus);
  if (found > 1)
    log_warning(asked +
                ": training runs on the first card alone, the others stay unused (no data parallel yet)");
  if (found >= wanted) return;
  const std::string reason = why_no_more_gpus();
  if (options.require_gpus)
    throw DeviceError(
        {.place = "Trainer",
         .found = asked + ", but " + std::to_string(found) + " can be used: " + reason,
         .wanted = "as many cards, because require_gpus is set",
         .remedy = "run `kindling devices`, or leave require_gpus off to train on what there is"});
  log_warning(asked + ", but " + reason + ": training goes on on " +
              (found == 0 ? "the CPU" : "the first card"));
}

}  // namespace

std::shared_ptr<TrainerInfo> make_info(const TrainerOptions& options) {
  auto info = std::make_shared<TrainerInfo>();
  info->gpus = first_gpus(options.num_gpus);
  info->max_epochs = options.max_epochs;
  info->precision = Precision::named(options.precision);
  info->deterministic_operators = DeterministicOperators(options.deterministic);
  if (options.profile) info->clock = std::make_unique<EpochClock>();
  check_cards(options, info->gpus.size());
  return info;
}

}  // namespace kindling
