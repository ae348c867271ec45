#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace kindling {

// A package of AOTInductor: code, and the tensors that it takes besides its inputs. Knows no programs. What
// LibTorch throws comes as CheckpointError.
class CompiledCode {
 public:
  explicit CompiledCode(const std::filesystem::path& path);

  const std::string& place() const noexcept { return place_; }  // for messages
  at::Device device() const noexcept { return device_; }

  // By the names that the weights had in Python. What the code computes once of others is not among them.
  // The tensors are the code's own: valid until the next replace().
  std::map<std::string, at::Tensor> constants() const;

  // Copies of all constants(), from any device, take their place at once; their shapes and dtypes fit.
  void replace(const std::map<std::string, at::Tensor>& values);

  // The inputs lie in memory as they did when it was compiled: the code does not ask.
  std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs);

 private:
  std::string place_;
  std::unique_ptr<torch::inductor::AOTIModelPackageLoader> loader_;
  at::Device device_ = at::kCPU;
};

}  // namespace kindling
