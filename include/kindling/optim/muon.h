#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <typeinfo>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/config/options.h"
#include "kindling/optim/foreach_optimizer.h"

namespace kindling {

// Names and defaults as in torch.optim.Muon, and options for parameters that are not matrices.
struct MuonOptions {
  double lr = 1e-3;
  double weight_decay = 0.1;
  double momentum = 0.95;
  bool nesterov = true;
  std::vector<double> ns_coefficients{3.4445, -4.7750, 2.0315};
  double eps = 1e-7;
  std::int64_t ns_steps = 5;
  std::string adjust_lr_fn = "original";
  std::optional<double> adamw_lr{};

  static constexpr auto fields = kindling::fields(
      kindling::field("lr", &MuonOptions::lr, {.doc = "learning rate", .min = 0}),
      kindling::field("weight_decay", &MuonOptions::weight_decay,
                      {.doc = "decay of the weights by lr · weight_decay", .min = 0}),
      kindling::field("momentum", &MuonOptions::momentum,
                      {.doc = "decay of the running mean of the gradient", .min = 0, .max = 1}),
      kindling::field("nesterov", &MuonOptions::nesterov, {.doc = "use Nesterov momentum"}),
      kindling::field("ns_coefficients", &MuonOptions::ns_coefficients,
                      {.doc = "the three coefficients of the Newton-Schulz polynomial"}),
      kindling::field("eps", &MuonOptions::eps, {.doc = "smallest norm to divide by", .min = 0}),
      kindling::field("ns_steps", &MuonOptions::ns_steps,
                      {.doc = "Newton-Schulz iterations", .min = 0, .max = 99}),
      kindling::field(
          "adjust_lr_fn", &MuonOptions::adjust_lr_fn,
          {.doc = "how the rate depends on the shape of the matrix", .choices = "original|match_rms_adamw"}),
      kindling::field(
          "adamw_lr", &MuonOptions::adamw_lr,
          {.doc = "learning rate of AdamW for parameters that are not matrices; absent: they are refused",
           .min = 0,
           .example = "0.0003"}));
};

// Muon (Jordan, 2024; with weight decay and the second adjustment as in Liu et al., 2025, "Muon is
// scalable"), for the matrices of a model: B ← momentum·B + (1−momentum)·g, O = NS(B, or with nesterov
// (1−momentum)·g + momentum·B), p ← p·(1 − lr·weight_decay) − lr·adjustment·O. NS, ns_steps iterations of a
// polynomial of degree five in bfloat16, brings all singular values close to 1. The adjustment of a matrix
// A×B is √max(1, A/B), or 0.2·√max(A, B) with match_rms_adamw. Its state: `momentum_buffer`.
//
// Parameters with another number of dimensions are rejected, as in Python, unless adamw_lr is set. AdamW then
// updates them with its defaults and this weight decay, at adamw_lr / lr times the learning rate of their
// group, so that a schedule changes both. Their state: `exp_avg`, `exp_avg_sq`, `step`.
class KINDLING_API Muon : public ForeachOptimizer {
 public:
  // Throws ConfigError that names the parameters that are not matrices.
  explicit Muon(ParameterGroups parameters, MuonOptions options = {});
  bool is_per_parameter() const override { return typeid(*this) == typeid(Muon); }
  TorchOptions python_options() const override;  // none if AdamW updates some of the parameters

 protected:
  void update_part(const Part& part) override;
  void state_loaded() override { counters_.share_equal(); }

 private:
  void update_matrices(const Part& part);
  void update_others(const Part& part);
  at::Tensor orthogonalized(const at::Tensor& matrix) const;

  MuonOptions options_;
  std::vector<at::Tensor>&momentum_buffers_, &exp_avgs_, &exp_avg_sqs_, &steps_;
  StepCounters counters_;  // of the parameters that AdamW updates
};

}  // namespace kindling
