#pragma once

#include <ATen/record_function.h>
#include <torch/nn/module.h>

#include <map>
#include <string>
#include <vector>

namespace kindling {

// Returns "NaN", "an infinity", or an empty string for a finite tensor. The host waits for the device.
std::string nonfinite_part(const at::Tensor& tensor);

// While it exists, checks the outputs of every operator on this thread for the first NaN and the first
// infinity. Slow, because the host waits after each operator: use it only to re-run a step. At most one per
// thread.
class NonfiniteWatch {
 public:
  explicit NonfiniteWatch(const torch::nn::Module& model);
  ~NonfiniteWatch();
  NonfiniteWatch(const NonfiniteWatch&) = delete;
  NonfiniteWatch& operator=(const NonfiniteWatch&) = delete;

  // Returns the findings in order: "the output of layer 'net.1' (aten::addmm) has NaN". An infinity before a
  // NaN may be its cause, or intended, as in a mask, so both are reported.
  const std::vector<std::string>& findings() const noexcept { return findings_; }

 private:
  static std::unique_ptr<at::ObserverContext> on_operator(const at::RecordFunction& call);
  static void on_end(const at::RecordFunction& call, at::ObserverContext* context);
  struct Inputs;
  void look(const at::RecordFunction& call, const Inputs& inputs);

  std::map<const void*, std::string> parameters_;  // names by memory, which views share
  const std::string* last_parameter_ = nullptr;
  int depth_ = 0;  // of nested operators
  std::map<std::string, bool> is_found_;
  std::vector<std::string> findings_;
  at::CallbackHandle handle_;
};

}  // namespace kindling
