#include "cli/run/run_branch.h"

#include <ATen/Parallel.h>
#include <torch/version.h>

#include <string>
#include <utility>

#include "checkpoint/saved_keys.h"
#include "cli/run/process_settings.h"
#include "cli/run/resume_plan.h"
#include "kindling/checkpoint/checkpoint_folder.h"
#include "kindling/device/host_info.h"
#include "kindling/loggers/csv_logger.h"
#include "kindling/loggers/jsonl_logger.h"
#include "kindling/tensors/checkpoint_file.h"
#include "runs/run_folder.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

// The records up to the step.
template <class OneLogger>
void copy_records(const fs::path& from, const fs::path& to, const Progress& at) {
  if (!fs::exists(from)) return;
  fs::copy_file(from, to, fs::copy_options::overwrite_existing);
  OneLogger logger(to);
  logger.resume_at(at);
  logger.finish();
}

}  // namespace

fs::path begin_branch(const RunAgain& parent, const std::string& name, const Progress& at, StateDict state) {
  const fs::path run = fs::absolute(parent.run).lexically_normal();
  const FitFolder folder(run.parent_path().parent_path(), name);
  folder.write_config(parent.config->text());
  copy_records<JsonlLogger>(run / "metrics.jsonl", folder.file("metrics.jsonl"), at);
  copy_records<CsvLogger>(run / "metrics.csv", folder.file("metrics.csv"), at);
  CheckpointFolder of_branch(checkpoints_of(folder.path()), {});
  state.metadata[saved_keys::kProgramConfig] = parent.config->values_text();
  save_checkpoint(state, of_branch.file_of(at.global_step));
  folder.write_summary({.status = "stopped",
                        .reason = "requested",
                        .device = run_text(run, "device"),
                        .cpu_model = host_info().cpu_model,
                        .libtorch_version = TORCH_VERSION,
                        .num_threads = at::get_num_threads(),
                        .fast_mkl = chosen_mkl_kernels(),
                        .float32_matmul_precision = run_text(run, "float32_matmul_precision"),
                        .seed = parent.config->run.seed,
                        .data = run_data(run),
                        .global_step = at.global_step,
                        .parent = RunParent{.run = run.string(), .step = at.global_step}});
  folder.make_durable();
  return folder.path();
}

}  // namespace kindling
