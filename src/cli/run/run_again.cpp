#include "cli/run/run_again.h"

#include <ATen/Parallel.h>
#include <torch/version.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/joined.h"
#include "checkpoint/checkpoint_file.h"
#include "cli/run/data_summary.h"
#include "cli/run/fit_run.h"
#include "cli/run/process_settings.h"
#include "cli/run/resume_plan.h"
#include "cli/run/start_files.h"
#include "cli/run/weights.h"
#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "kindling/data/input_transform.h"
#include "kindling/device/device.h"
#include "kindling/device/host_info.h"
#include "kindling/formats/safetensors.h"
#include "kindling/training/callback.h"
#include "runs/run_summary.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

std::vector<CheckpointInfo> checkpoints_in(const fs::path& run) {
  return has_checkpoints(run) ? list_checkpoints(checkpoints_of(run)) : std::vector<CheckpointInfo>{};
}

// The text and the name of the config that trained a step. A resume may change it, and then config.toml has
// that of the later steps.
std::pair<std::string, std::string> config_of_step(const fs::path& run, std::int64_t step) {
  const CheckpointInfo* next = nullptr;
  const std::vector<CheckpointInfo> all = checkpoints_in(run);  // latest first
  for (const CheckpointInfo& info : all)
    if (info.global_step >= step) next = &info;
  if (next != nullptr) {
    const Metadata metadata = SafetensorsFile(next->path).index().metadata;
    if (const auto found = metadata.find(saved_keys::kProgramConfig); found != metadata.end())
      return {found->second, next->path.string() + ", config"};
  }
  constexpr std::size_t kMaxConfigBytes = std::size_t{1} << 24;
  return {read_file(run / "config.toml", kMaxConfigBytes), (run / "config.toml").string()};
}

std::unique_ptr<RunConfig> read_config(const CommandContext& context, const fs::path& run,
                                       std::int64_t step) {
  const auto [text, name] = config_of_step(run, step);
  ConfigDocument document = ConfigDocument::parse(text, name, run);
  for (const std::string& assignment : context.request.overrides) document.set(assignment);
  if (const std::string& branch = context.request.replay.branch; !branch.empty())
    document.set("name=" + branch);
  auto config =
      std::make_unique<RunConfig>(document, context.registry, run.parent_path().filename().string());
  config->resume = {};  // concerned one start of the run
  return config;
}

// "cuda:0" and "cuda:1" are alike.
std::string kind_of_device(const std::string& device) { return device.substr(0, device.find(':')); }

void require_same_kind(const fs::path& run, const TrainerOptions& options, const Group& group) {
  const std::int64_t processes = num_ranks_of(run), here = group ? group->size() : 1;
  if (processes != here)
    throw ConfigError({.place = run.string(),
                       .found = "it was trained by " + counted(processes, "rank") + ", and here are " +
                                std::to_string(here),
                       .wanted = "as many ranks",
                       .remedy = "without a launcher, the program starts them itself"});
  const std::string was = kind_of_device(run_text(run, "device")),
                    now = options.num_gpus != 0 && num_gpus() > 0 ? "cuda" : "cpu";
  if (was.empty() || was == now) return;
  throw ConfigError({.place = run.string(),
                     .found = "it was trained on " + was + ", and this is " + now,
                     .wanted = "the same kind of device, whose results are bit-identical"});
}

// Those of the run, unless the config sets them: sums may depend on their number.
void set_threads(const fs::path& run, const RunConfig& config) {
  auto threads = config.trainer.options.num_threads;
  if (!threads) threads = run_number(run, "threads");
  if (threads) at::set_num_threads(static_cast<int>(std::max<std::int64_t>(*threads, 1)));
}

void add_doubt(std::vector<std::string>& doubts, const std::string& what, const std::string& was,
               const std::string& now) {
  if (!was.empty() && was != now) doubts.push_back(what + " was " + was + " and is now " + now);
}

std::vector<std::string> doubts_about(const fs::path& run, const RunConfig& config, DataModule& data) {
  std::vector<std::string> doubts;
  add_doubt(doubts, "LibTorch", run_text(run, "libtorch"), TORCH_VERSION);
  add_doubt(doubts, "the CPU", run_text(run, "cpu"), host_info().cpu_model);
  add_doubt(doubts, "run.fast_mkl", run_text(run, "fast_mkl"), chosen_mkl_kernels());
  if (const auto threads = run_number(run, "threads"))
    add_doubt(doubts, "the number of threads", std::to_string(*threads),
              std::to_string(at::get_num_threads()));
  const std::string difference = difference_of(run_data(run), summary_of(data, config.data.name.name));
  if (!difference.empty()) doubts.push_back("the data have changed: " + difference);
  const DataSummary before = run_data(run);
  if (before.checksum.empty() || !difference.empty())  // else the values are known to be the same
    for (const std::string& changed : changed_files(before.files, data_files(config.values())))
      doubts.push_back(changed);
  return doubts;
}

// Stands for a callback of the program, whose state only concerns what it prints.
class ProgramCallback : public Callback {
 public:
  std::string type_name() const override { return "Screen"; }
};

// The positions of the config's callbacks are those of a fit.
TrainerOptions options_of(const RunConfig& config, const std::string& device_of_run) {
  TrainerOptions options = config.trainer_options();
  if (!config.trainer.num_gpus && kind_of_device(device_of_run) == "cpu") options.num_gpus = 0;
  options.callbacks.insert(options.callbacks.begin(), kNumProgramCallbacks,
                           std::make_shared<ProgramCallback>());
  return options;
}

}  // namespace

fs::path named_run(const fs::path& path) { return run_of(fs::is_directory(path) ? run_at(path) : path); }

std::int64_t num_ranks_of(const fs::path& run) {
  return std::max<std::int64_t>(run_number(run, "processes").value_or(1), 1);
}

RunAgain make_run_again(const CommandContext& context, const fs::path& path, std::int64_t step,
                        const Group& group) {
  RunAgain again{.run = named_run(path), .config = nullptr};
  again.config = read_config(context, again.run, step);
  const RunConfig& config = *again.config;
  apply(config.process);
  set_threads(again.run, config);
  again.options = options_of(config, run_text(again.run, "device"));
  require_same_kind(again.run, again.options, group);
  again.options.process_group = group;
  again.data = config.make_data();
  again.doubts = doubts_about(again.run, config, *again.data);
  again.model = config.make_model();
  const auto checkpoints = checkpoints_in(again.run);
  const bool starts_at_seed =
      std::ranges::none_of(checkpoints, [&](const auto& info) { return info.global_step < step; });
  if (starts_at_seed) {
    start_from_files(config, *again.model);
    again.options.optimizer = with_start(again.options.optimizer, config.optimizer_start);
  }
  set_input_transform(*again.model, again.data->input_transform());
  give_class_weights(config, *again.model, *again.data);
  give_target_scale(config, *again.model, *again.data);
  return again;
}

}  // namespace kindling
