#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "kindling/tensors/state_dict.h"

namespace kindling {

// The tensors of a model and, beside them, what is averaged of their values.
class AveragedTensors {
 public:
  bool empty() const noexcept { return own_.empty(); }
  // Those of lerp() come first. A tensor that is there already only gets one more name: tied parameters.
  void add(const std::string& name, const at::Tensor& own);
  // From here on add() takes those that lerp() leaves alone.
  void end_of_averaged() { num_averaged_ = own_.size(); }
  bool has_others() const noexcept { return own_.size() > num_averaged_; }

  // The averages take the model's values.
  void take();
  // average += weight · (own - average); the others take the model's values.
  void lerp(double weight);
  // The others alone.
  void take_others();

  // The model has the averages, and its own values stand aside; then it has them again, or keeps the
  // averages.
  void put_in_place();
  void give_back();
  void forget_own_values() { aside_.clear(); }
  bool is_in_place() const noexcept { return !aside_.empty(); }
  // In a state of the model.
  void put_own_values(StateDict& model_state) const;

  // Under all names; the averages themselves.
  StateDict averages() const;
  // Copies of the values; throws CheckpointError for what does not fit.
  void load(const StateDict& averages);

 private:
  std::vector<std::pair<std::string, std::size_t>> names_;
  std::vector<at::Tensor> own_, averages_;
  std::size_t num_averaged_ = 0;
  std::vector<std::size_t> narrow_;  // of those averaged: kept wider than the model has them
  std::vector<at::Tensor> newest_;   // what lerp() goes to: the model's tensors, or wider copies of them
  std::vector<at::Tensor> aside_;    // empty: the model has its own values
};

}  // namespace kindling
