#include "training/resolved_options.h"

#include <bit>
#include <cstdint>
#include <string>

#include "device/libtorch_version.h"
#include "kindling/base/error.h"

namespace kindling {
namespace {

void require_processes(const TrainerOptions& options) {
  const std::int64_t there = options.process_group ? options.process_group->size() : 1;
  if (options.num_processes == 1 || options.num_processes == there) return;
  throw ConfigError({.place = "Trainer",
                     .found = "num_processes = " + std::to_string(options.num_processes) +
                              ", and process_group has " + std::to_string(there),
                     .wanted = "as many",
                     .remedy =
                         "the program starts processes; a program of your own is started by a launcher and "
                         "sets process_group = ProcessGroup::from_environment()"});
}

void require_no_null(const char* place, const auto& pointers) {
  for (std::size_t i = 0; i < pointers.size(); ++i)
    if (!pointers[i])
      throw ConfigError({.place = place,
                         .found = "number " + std::to_string(i) + " (counted from 0) is a null pointer",
                         .wanted = "objects alone; make them with std::make_shared"});
}

// The shards of a process are batches to it: a window has those of each of its global batches.
std::int64_t shards_of_window(const TrainerOptions& options) {
  const std::int64_t shards = options.gradient_shards,
                     size = options.process_group ? options.process_group->size() : 1;
  const auto refuse = [&](const std::string& found, const std::string& wanted) {
    throw ConfigError({.place = "trainer.gradient_shards", .found = found, .wanted = wanted});
  };
  if (!std::has_single_bit(static_cast<std::uint64_t>(shards)))
    refuse("it is " + std::to_string(shards), "a power of two");
  if (shards % size != 0)
    refuse("it is " + std::to_string(shards) + ", for " + std::to_string(size) + " processes",
           "a multiple of them");
  if (options.process_group && options.process_group->options().compression != "none")
    throw ConfigError({.place = "distributed.compression",
                       .found = "it is " + options.process_group->options().compression +
                                ", and with gradient_shards sums keep all their bits",
                       .wanted = "none beside it"});
  if (options.sync_batchnorm)
    throw ConfigError(
        {.place = "trainer.sync_batchnorm",
         .found = "it is set, and with gradient_shards each shard has batch statistics of its own",
         .wanted = "one of the two"});
  return options.accumulate_grad_batches * (shards / size);
}

}  // namespace

TrainerOptions resolved(TrainerOptions options) {
  require_matching_libtorch();
  validate(options, "TrainerOptions");
  require_no_null("TrainerOptions::callbacks", options.callbacks);
  require_no_null("TrainerOptions::loggers", options.loggers);
  if (options.process_group && options.process_group->size() == 1) options.process_group = nullptr;
  require_processes(options);
  if (options.gradient_shards > 1) options.accumulate_grad_batches = shards_of_window(options);
  if (options.fast_dev_run) {
    options.max_epochs = 1;
    options.max_steps = 1;
    options.limit_train_batches = options.limit_val_batches = 1;
    options.limit_test_batches = options.limit_predict_batches = 1;
    options.num_sanity_val_steps = 0;
    options.val_check_interval = 1.0;
    options.check_val_every_n_epoch = 1;
    options.overfit_batches.reset();
  }
  return options;
}

}  // namespace kindling
