#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/interop/exported_module.h"

namespace kindling {

struct CompiledPackageOptions {
  // Runs package and model once, with generated inputs, and compares their outputs. Set it to false for a
  // model that draws random numbers in evaluation mode.
  bool compare = true;
};

// Runs compiled code of a program, which Python generated ahead of time
// (torch._inductor.aoti_compile_and_package), with weights that were trained here, without Python: fused
// kernels replace one operator after the other. The package's own weights are never used: it starts with
// those of a model.
//
// The package must contain the same program in evaluation mode, compiled so that no weight becomes part of
// the code: inductor_configs={"always_keep_tensor_constants": True}, without freezing. It is native code that
// runs with all rights of the process, on CPUs of the kind that it was compiled for: do not load packages
// from untrusted sources. Loading unpacks it into a temporary directory, which the destructor removes.
class KINDLING_API CompiledPackage {
 public:
  // Throws CheckpointError for a file that is not a package, for the errors of set_weights(), and if the
  // outputs differ from the model's: it was then compiled from another program, or in training mode.
  CompiledPackage(const std::filesystem::path& path, ExportedModule& model,
                  CompiledPackageOptions options = {});
  ~CompiledPackage();
  CompiledPackage(const CompiledPackage&) = delete;
  CompiledPackage& operator=(const CompiledPackage&) = delete;

  // Copies the values of a model's parameters, buffers and constants into the package, whose outputs are then
  // those of model.eval(). The model may be trained further, or destroyed. Other threads may call run()
  // meanwhile: each call uses either the old or the new values. Throws CheckpointError, without changing the
  // package, if the model's names, shapes or dtypes differ from the package's, or if the package has fixed
  // values for some weights.
  void set_weights(const ExportedModule& model);

  // Returns the program's outputs in order. The inputs are those of ExportedModule::run(), with exactly the
  // dtypes that the program was exported with, on the package's device, in any memory layout. Throws
  // DataError for others. Several threads may call it; they take turns.
  std::vector<at::Tensor> run(std::span<const at::Tensor> inputs) const;
  // Returns the first output of a program with one input.
  at::Tensor forward(const at::Tensor& input) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kindling
