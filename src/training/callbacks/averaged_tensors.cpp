#include "training/callbacks/averaged_tensors.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>

#include "kindling/base/error.h"
#include "kindling/tensors/move.h"

namespace kindling {
namespace {

// With eight bits of mantissa an average would not move, because each step's change is rounded away.
bool is_narrow(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16;
}

void copy_all(at::TensorList to, at::TensorList from) {
  if (!to.empty()) at::_foreach_copy_(to, from);
}

[[noreturn]] void refuse_average(const std::string& name, const std::string& found) {
  throw CheckpointError({.place = "the averaged weights",
                         .found = "'" + name + "' " + found,
                         .wanted = "averages of the same model, with the same options"});
}

}  // namespace

void AveragedTensors::add(const std::string& name, const at::Tensor& own) {
  const auto known =
      std::ranges::find_if(own_, [&](const at::Tensor& tensor) { return tensor.is_same(own); });
  names_.emplace_back(name, known - own_.begin());
  if (known != own_.end()) return;
  const at::Tensor values = own.detach();
  if (is_narrow(values)) {
    narrow_.push_back(own_.size());
    averages_.push_back(at::empty_like(values, at::kFloat));
    newest_.push_back(at::empty_like(values, at::kFloat));
  } else {
    averages_.push_back(at::empty_like(values));
    newest_.push_back(own);
  }
  own_.push_back(own);
}

void AveragedTensors::take() {
  const at::NoGradGuard no_grad;
  copy_all(averages_, own_);
}

void AveragedTensors::lerp(double weight) {
  const at::NoGradGuard no_grad;
  for (const std::size_t i : narrow_) newest_[i].copy_(own_[i], /*non_blocking=*/true);
  const at::TensorList averages(averages_), newest(newest_);
  if (num_averaged_ > 0)
    at::_foreach_lerp_(averages.slice(0, num_averaged_), newest.slice(0, num_averaged_), weight);
  take_others();
}

void AveragedTensors::take_others() {
  const at::NoGradGuard no_grad;
  copy_all(at::TensorList(averages_).slice(num_averaged_), at::TensorList(own_).slice(num_averaged_));
}

void AveragedTensors::put_in_place() {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> aside;
  for (const at::Tensor& tensor : own_) aside.push_back(at::empty_like(tensor.detach()));
  copy_all(aside, own_);
  copy_all(own_, averages_);
  aside_ = std::move(aside);
}

void AveragedTensors::give_back() {
  const at::NoGradGuard no_grad;
  copy_all(own_, aside_);
  aside_.clear();
}

void AveragedTensors::put_own_values(StateDict& model_state) const {
  if (aside_.empty()) return;
  for (auto& [name, tensor] : model_state.tensors)
    for (std::size_t i = 0; i < own_.size(); ++i)
      if (tensor.is_same(own_[i])) {
        tensor = aside_[i];
        break;
      }
}

StateDict AveragedTensors::averages() const {
  StateDict state;
  for (const auto& [name, i] : names_) state.tensors.emplace_back(name, averages_[i]);
  return state;
}

void AveragedTensors::load(const StateDict& saved) {
  for (const auto& [name, values] : saved.tensors) {
    const auto known = std::ranges::find(names_, name, &std::pair<std::string, std::size_t>::first);
    if (known == names_.end()) refuse_average(name, "is not among the averaged tensors");
    if (values.sizes() != own_[known->second].sizes()) refuse_average(name, "has a different shape");
  }
  for (const auto& [name, i] : names_) {
    const at::Tensor* values = saved.find(name);
    if (values == nullptr) refuse_average(name, "is missing");
    write_values(averages_[i], *values);
  }
}

}  // namespace kindling
