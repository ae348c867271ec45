#include "cli/run/environment.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <torch/version.h>

#include "cli/run/process_settings.h"
#include "kindling/base/number_text.h"
#include "kindling/base/version.h"
#include "kindling/device/device.h"
#include "kindling/device/host_info.h"

namespace kindling {
namespace {

std::string library_path(const void* symbol) {
  Dl_info info{};
  return dladdr(symbol, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "?";
}

std::string gib_text(std::int64_t bytes) { return fixed_text(static_cast<double>(bytes) / (1 << 30), 1); }

}  // namespace

std::vector<std::pair<std::string, std::string>> environment_facts() {
  const HostInfo host = host_info();
  const std::string libtorch = library_path(reinterpret_cast<const void*>(&at::get_num_threads));
  return {
      {"kindling", version()},
      {"libtorch", TORCH_VERSION " (" + libtorch + ")"},
      {"compiler", __VERSION__},
      {"cpu", host.cpu_model + ", " + std::to_string(host.num_cores) + " cores, " +
                  std::to_string(host.num_threads) + " threads for operators"},
      {"fast mkl", chosen_mkl_kernels()},
      {"memory", gib_text(host.memory_available_bytes) + " GiB free of " + gib_text(host.memory_total_bytes)},
      {"GPUs", std::to_string(num_gpus()) + (num_gpus() == 0 ? " (" + gpu_unavailable_reason() + ")" : "")},
  };
}

}  // namespace kindling
