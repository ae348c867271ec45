#include "cli/run/process_settings.h"

#include <ATen/Context.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>

#include "kindling/base/log.h"
#include "kindling/fast_mkl/fast_mkl.h"

namespace kindling {
namespace {

FastMkl fast_mkl_of(const std::string& word) {
  return word == "on" ? FastMkl::on : word == "off" ? FastMkl::off : FastMkl::automatic;
}

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

}  // namespace kindling
