#include "program/fit_processes.h"

#include <algorithm>

#include "kindling/base/error.h"
#include "kindling/device/device.h"
#include "kindling/launch/local_launch.h"

namespace kindling {
namespace {

void require_number(const LaunchEnvironment& place, std::int64_t num_processes) {
  if (num_processes == 1 || num_processes == place.size || num_processes == place.local_size) return;
  throw ConfigError({.place = "trainer.num_processes",
                     .found = "it is " + std::to_string(num_processes) + ", but by " + place.launcher + " " +
                              std::to_string(place.size) + " processes train together",
                     .wanted = "the same number, or 1",
                     .remedy = "leave it out where a launcher starts the processes"});
}

[[noreturn]] void refuse_search(const char* finder) {
  throw ConfigError({.place = finder,
                     .found = "several processes are to train, and it is one that searches",
                     .remedy =
                         "search with one process (trainer.num_processes = 1 and num_gpus at most 1), and "
                         "write what was found into the config"});
}

}  // namespace

std::optional<LaunchEnvironment> place_among_processes(const RunConfig& config) {
  auto place = launch_environment();
  if (place) require_number(*place, config.num_processes());
  return place;
}

std::int64_t num_to_start(ProcessWish wish, std::int64_t num_cards) {
  if (wish.num_processes > 1) return wish.num_processes;
  const std::int64_t usable = wish.num_gpus < 0 ? num_cards : std::min(wish.num_gpus, num_cards);
  return std::max<std::int64_t>(usable, 1);
}

std::int64_t num_processes(const std::optional<LaunchEnvironment>& place, const RunConfig& config) {
  if (place) return place->size;
  const ProcessWish wish{.num_gpus = config.num_gpus(), .num_processes = config.num_processes()};
  return num_to_start(wish, wish.num_gpus != 0 ? num_gpus() : 0);
}

void require_no_search(const std::optional<LaunchEnvironment>& place, const RunConfig& config) {
  if (num_processes(place, config) == 1) return;
  if (config.batch_finder.is_on) refuse_search("batch_finder");
  if (config.lr_finder.is_on) refuse_search("lr_finder");
}

int launch_fit(const CommandContext& context, std::int64_t num_processes) {
  return run_local_processes({.command = {context.argv, context.argv + context.argc},
                              .program = "/proc/self/exe",
                              .num_processes = num_processes,
                              .grace_s = 1.5});
}

std::string told_by_first(const Group& group, const std::string& text) {
  return group ? group->all_gather(text).front() : text;
}

int largest(const Group& group, int number) {
  if (!group) return number;
  for (const std::string& text : group->all_gather(std::to_string(number)))
    number = std::max(number, std::stoi(text));
  return number;
}

}  // namespace kindling
