#pragma once

#include <ATen/record_function.h>
#include <torch/nn/module.h>

#include <map>
#include <string>
#include <vector>

namespace kindling {

// "NaN", "an infinity" or, for a tensor without either, nothing. The host waits for it.
std::string nonfinite_part(const at::Tensor& tensor);

// While it lives, looks at what every operator on this thread gives, for the first NaN and the first
// infinity. Slow, and the host waits at each one: for a step that is replayed. One at a time per thread.
class NonfiniteWatch {
 public:
  explicit NonfiniteWatch(const torch::nn::Module& model);
  ~NonfiniteWatch();
  NonfiniteWatch(const NonfiniteWatch&) = delete;
  NonfiniteWatch& operator=(const NonfiniteWatch&) = delete;

  // What was found, in the order in which it came: "the output of layer 'net.1' (aten::addmm) has NaN". An
  // infinity that a NaN follows may be its cause, or meant, as in a mask: both are told.
  const std::vector<std::string>& findings() const noexcept { return findings_; }

 private:
  static std::unique_ptr<at::ObserverContext> on_operator(const at::RecordFunction& call);
  static void on_end(const at::RecordFunction& call, at::ObserverContext* context);
  struct Inputs;
  void look(const at::RecordFunction& call, const Inputs& inputs);

  std::map<const void*, std::string> parameters_;  // their names, by their memory, which views share
  const std::string* last_parameter_ = nullptr;
  int depth_ = 0;  // of the operators that are running
  std::map<std::string, bool> is_found_;
  std::vector<std::string> findings_;
  at::CallbackHandle handle_;
};

}  // namespace kindling
