#include <ATen/Parallel.h>
#include <ATen/Version.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <iostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/joined.h"
#include "cli/commands/commands.h"
#include "cli/help/help.h"
#include "cli/run/process_settings.h"
#include "device/deterministic_operators.h"
#include "kindling/base/error.h"
#include "kindling/base/number_text.h"
#include "kindling/base/suggest.h"
#include "kindling/base/text.h"
#include "kindling/device/device_memory.h"
#include "measurements/stress.h"

namespace kindling {
namespace {

// A kind of names that a config can use.
struct Kind {
  const char* name;             // "models"
  const char* other_names;      // "model"
  const char* how_to_register;  // a call of a Registry
};

// The stress test writes a quarter of the free memory of a device, and at most this: others use it, too.
constexpr std::int64_t kMostBytes = std::int64_t{2} << 30;

constexpr std::array<Kind, 8> kKinds{
    {{"models", "model", "registry.model<MyModel, MyOptions>(\"my_model\")"},
     {"datasets", "dataset data data_sets data_modules", "registry.data<MyData, MyOptions>(\"my_data\")"},
     {"transforms", "transform train_transforms val_transforms",
      "registry.transform<MyTransform, MyOptions>(\"my_transform\")"},
     {"optimizers", "optimizer", "registry.optimizer<MyOptimizer, MyOptions>(\"my_optimizer\")"},
     {"schedules", "schedule scheduler schedulers",
      "registry.schedule<MyOptions>(\"my_schedule\", \"\", &make)"},
     {"metrics", "metric", "registry.metric<MyMetric>(\"my_metric\")"},
     {"callbacks", "callback", "registry.callback<MyCallback>(\"my_callback\")"},
     {"loggers", "logger", "registry.logger<MyLogger>(\"my_logger\")"}}};

bool has_word(const std::string& words, const std::string& word) {
  return (" " + words + " ").find(" " + word + " ") != std::string::npos;
}

// Returns the name of the kind that the user means. Throws ConfigError for an unknown one.
std::string kind_of(const std::string& written) {
  const std::string word = lower_case(written);
  std::vector<std::string> names;
  for (const Kind& kind : kKinds) {
    if (word.empty() || word == kind.name || has_word(kind.other_names, word))
      return word.empty() ? "" : kind.name;
    names.emplace_back(kind.name);
  }
  const std::string guess = nearest(word, names);
  throw ConfigError({.place = "kindling list",
                     .found = "there is no kind of names '" + written + "'",
                     .wanted = "one of " + list_names(names),
                     .remedy = guess.empty() ? "" : "did you mean '" + guess + "'?"});
}

std::string empty_text(const std::string& kind) {
  for (const Kind& each : kKinds)
    if (kind == each.name)
      return "this program registers no " + kind + "; a program of your own does so with " +
             each.how_to_register + ", see docs/guides/registering_names.md";
  return {};
}

// Prints one kind of names, with a title if all kinds are listed. Only names go to stdout.
template <class Product>
void print_names(const std::string& listed, const char* kind, const Catalog<Product>& catalog) {
  if (!listed.empty() && listed != kind) return;
  const std::vector<std::string> names = catalog.names();
  if (listed.empty()) std::cout << kind << ":\n";
  if (names.empty()) (listed.empty() ? std::cout : std::cerr) << empty_text(kind) << "\n";
  std::size_t width = 22;
  for (const std::string& name : names) width = std::max(width, name.size() + 2);
  for (const std::string& name : names) std::cout << padded(name, width) << catalog.doc(name) << "\n";
  if (listed.empty()) std::cout << "\n";
}

// Prints the result of the work as "cpu     training steps   1203 rounds in 60.0 s, all bit-identical",
// and returns whether they had.
bool print_stress(Device device, const std::string& name, const StressResult& result) {
  std::cout << padded(device.str(), 8) << padded(name, 18) << result.num_rounds << " rounds in "
            << fixed_text(result.seconds, 1) << " s, ";
  if (result.num_wrong == 0)
    std::cout << "all bit-identical" << std::endl;
  else
    std::cout << result.num_wrong << " of them not bit-identical to the first one (first: round "
              << result.first_wrong << ")" << std::endl;
  return result.num_wrong == 0;
}

// Tests the CPU and each GPU in turn, for equal times.
int stress_devices(double seconds) {
  std::vector<Device> devices{cpu()};
  for (const Device device : first_gpus(-1)) devices.push_back(device);
  const double seconds_of_work = seconds / static_cast<double>(2 * devices.size());
  DeterministicOperators operators("true");
  const DeterministicOperators::Scope deterministic(operators);
  bool is_sound = true;
  for (const Device device : devices) {
    is_sound &= print_stress(device, "training steps", stress(stress_steps(device), seconds_of_work));
    const std::int64_t bytes = std::min(device_memory(device).free_bytes / 4, kMostBytes);
    is_sound &= print_stress(device, "memory, " + bytes_text(static_cast<double>(bytes), 2),
                             stress(stress_memory(device, bytes), seconds_of_work));
  }
  if (is_sound) return 0;
  throw Error({.place = "kindling doctor --stress",
               .found = "this machine has computed the same work with different results",
               .wanted = "bit-identical rounds",
               .remedy = "test its memory, and run the same command on another machine"});
}

}  // namespace

int doctor_command(const CommandContext& context) {
  if (context.request.stress_s > 0) return stress_devices(context.request.stress_s);
  for (const auto& [name, value] : environment_facts()) std::cout << padded(name, 12) << value << "\n";
  std::cout << at::show_config() << at::get_parallel_info();
  return 0;
}

int list_command(const CommandContext& context) {
  const std::string listed = kind_of(context.request.listed);
  print_names(listed, "models", context.registry.models);
  print_names(listed, "datasets", context.registry.data_modules);
  print_names(listed, "transforms", context.registry.transforms);
  print_names(listed, "optimizers", context.registry.optimizers);
  print_names(listed, "schedules", context.registry.schedules);
  print_names(listed, "metrics", context.registry.metrics);
  print_names(listed, "callbacks", context.registry.callbacks);
  print_names(listed, "loggers", context.registry.loggers);
  return 0;
}

int help_command(const CommandContext& context) {
  std::string text;
  for (const std::string& topic : context.request.help_topic)
    text += (text.empty() ? "" : "\n") + config_help(context.registry, topic);
  std::cout << text;
  return 0;
}

int completion_command(const CommandContext& context) {
  const std::string program =
      context.argc > 0 ? std::filesystem::path(context.argv[0]).filename().string() : "kindling";
  std::cout << (context.request.shell == "zsh" ? zsh_completion(context.registry, program)
                                               : bash_completion(context.registry, program));
  return 0;
}

}  // namespace kindling
