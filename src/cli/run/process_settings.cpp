#include "cli/run/process_settings.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <c10/core/CPUAllocator.h>
#include <dlfcn.h>
#include <malloc.h>
#include <sys/resource.h>
#include <torch/version.h>

#include <cstdlib>
#include <limits>

#include "device/host_allocator.h"
#include "kindling/base/log.h"
#include "kindling/base/number_text.h"
#include "kindling/base/version.h"
#include "kindling/device/device.h"
#include "kindling/device/host_info.h"
#include "kindling/fast_mkl/fast_mkl.h"

namespace kindling {
namespace {

FastMkl fast_mkl_of(const std::string& word) {
  return word == "on" ? FastMkl::on : word == "off" ? FastMkl::off : FastMkl::automatic;
}

// Setting one of these values also disables glibc's automatic tuning of both.
void set_limits([[maybe_unused]] int mapped_from, [[maybe_unused]] int trimmed_from) {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, mapped_from);
  mallopt(M_TRIM_THRESHOLD, trimmed_from);
#endif
}

std::string library_path(const void* symbol) {
  Dl_info info{};
  return dladdr(symbol, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "?";
}

std::string gib_text(std::int64_t bytes) { return fixed_text(static_cast<double>(bytes) / (1 << 30), 1); }

}  // namespace

void apply(const ProcessOptions& options) {
  at::globalContext().setFlushDenormal(options.flush_denormal);
  if (!set_fast_mkl(fast_mkl_of(options.fast_mkl)))
    log_warning("run.fast_mkl = \"" + options.fast_mkl +
                "\" has no effect: MKL has already chosen its kernels for the whole process");
}

std::string chosen_mkl_kernels() {
  if (!at::hasMKL()) return "none: this LibTorch has no MKL";
  const at::Tensor matrix = at::ones({16, 16});
  at::mm(matrix, matrix);
  return fast_mkl_text();
}

bool has_memory_limit() {
  rlimit limit{};
  return getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

// By default, glibc maps and unmaps blocks of at least 128 KiB on each use, at two page faults per 8 KiB; 32
// MiB is the largest threshold that it accepts.
void keep_freed_memory() {
  set_limits(32 << 20, std::numeric_limits<int>::max());
  // LibTorch's own allocator asks for huge pages if this variable is set.
  if (std::getenv("THP_MEM_ALLOC_ENABLE") == nullptr) c10::SetCPUAllocator(&host_allocator());
}

void keep_memory_compact() { set_limits(1 << 20, 1 << 20); }

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
