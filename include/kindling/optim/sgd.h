#pragma once

#include <typeinfo>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/config/options.h"
#include "kindling/optim/optimizer.h"

namespace kindling {

// Names and defaults as in torch.optim.SGD.
struct SgdOptions {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  bool nesterov = false;  // requires momentum > 0 and dampening = 0
  double weight_decay = 0;
  bool maximize = false;

  static constexpr auto fields = kindling::fields(
      kindling::field("lr", &SgdOptions::lr, {.doc = "learning rate", .min = 0}),
      kindling::field("momentum", &SgdOptions::momentum, {.doc = "momentum factor", .min = 0}),
      kindling::field("dampening", &SgdOptions::dampening,
                      {.doc = "reduces the contribution of the gradient to the momentum"}),
      kindling::field("nesterov", &SgdOptions::nesterov,
                      {.doc = "use Nesterov momentum; requires momentum without dampening"}),
      kindling::field("weight_decay", &SgdOptions::weight_decay,
                      {.doc = "L2 penalty, added to the gradient", .min = 0}),
      kindling::field("maximize", &SgdOptions::maximize, {.doc = "maximize instead of minimize"}));
};

// Stochastic gradient descent, with momentum as in Sutskever et al. (2013) in PyTorch's form, in one fused
// operator for all parameters of a group (one by one for bfloat16 and half on the CPU). Its state:
// `momentum_buffer`, from a parameter's first gradient on. Sparse gradients update the rows they contain;
// they cannot be combined with momentum or weight decay (ConfigError).
class KINDLING_API Sgd : public Optimizer {
 public:
  // Throws ConfigError for options that contradict each other.
  explicit Sgd(ParameterGroups parameters, SgdOptions options = {});
  bool takes_tensors() const override { return true; }
  bool is_per_parameter() const override { return typeid(*this) == typeid(Sgd); }
  TorchOptions python_options() const override;

 protected:
  // Throws ConfigError for found_inf with dampening, unless found_inf_stays: only the device would know
  // whether the buffer has been initialised.
  void update(const Update& update) override;

 private:
  struct Lists {
    std::vector<at::Tensor> parameters, gradients, buffers;
  };
  void apply(const Update& update, at::TensorList buffers, bool first);
  void apply_singly(const Update& update, at::TensorList buffers, bool first);
  void start_some(const Update& update);
  void update_dense(const Update& update);
  void update_sparse(const Update& update, std::size_t i);

  SgdOptions options_;
  std::vector<at::Tensor>& buffers_;  // undefined until a parameter's first update, or without momentum
};

}  // namespace kindling
