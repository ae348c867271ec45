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
  // Package and model are run once, with made-up inputs, and their outputs are compared. False for a model
  // that draws random numbers in evaluation mode, too.
  bool compare = true;
};

// Compiled code of a program, made by Python ahead of time (torch._inductor.aoti_compile_and_package), that
// serves weights which were trained here, without Python: fused kernels in place of one operator after the
// other. The weights it was compiled with are never served: it begins with those of a model.
//
// The package is of the same program in evaluation mode, and is compiled such that no weight becomes a part
// of the code: inductor_configs={"always_keep_tensor_constants": True}, without freezing. It is native code,
// which runs with all rights of the process, on CPUs of the kind that it was compiled for: load none from
// strangers. Loading unpacks it into a folder of its own among the temporary files, until it is destroyed.
class KINDLING_API CompiledPackage {
 public:
  // Throws CheckpointError for a file that is none, and where set_weights() would; where the outputs are not
  // the model's: then it was compiled from another program, or from one in training mode.
  CompiledPackage(const std::filesystem::path& path, ExportedModule& model,
                  CompiledPackageOptions options = {});
  ~CompiledPackage();
  CompiledPackage(const CompiledPackage&) = delete;
  CompiledPackage& operator=(const CompiledPackage&) = delete;

  // Copies the values of a model's parameters, buffers and constants into the package, whose outputs are then
  // those of model.eval(); the model may be trained on, or destroyed. Other threads may call run() meanwhile:
  // each call sees the old values or the new ones. Throws CheckpointError, and leaves the package as it was,
  // for a model whose names, shapes or dtypes are not those of the package, and for a package that has values
  // of its own for some of the weights.
  void set_weights(const ExportedModule& model);

  // The program's outputs, in their order. The inputs are those of ExportedModule::run, of just the dtypes
  // that the program was exported with, on the package's device; they may lie in memory in any way. Throws
  // DataError for others. Several threads may call it; they take turns.
  std::vector<at::Tensor> run(std::span<const at::Tensor> inputs) const;
  // The first output of a program of one input.
  at::Tensor forward(const at::Tensor& input) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kindling
