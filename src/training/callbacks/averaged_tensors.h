#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "kindling/tensors/state_dict.h"

namespace kindling {

// The tensors of a model together with the averages of their values.
class AveragedTensors {
 public:
  bool empty() const noexcept { return own_.empty(); }
  // Adds a tensor; those that lerp() averages come first. A tensor that was added before (tied parameters)
  // gets another name.
  void add(const std::string& name, const at::Tensor& own);
  // Ends the averaged tensors: those added later are copied, not averaged.
  void end_of_averaged() { num_averaged_ = own_.size(); }
  bool has_others() const noexcept { return own_.size() > num_averaged_; }

  // Sets the averages to the model's values.
  void take();
  // average += weight · (own - average); the copied tensors take the model's values.
  void lerp(double weight);
  // Updates the copied tensors only.
  void take_others();

  // put_in_place() swaps the averages into the model and keeps its own values aside. give_back() restores
  // them; forget_own_values() leaves the averages in the model.
  void put_in_place();
  void give_back();
  void forget_own_values() { aside_.clear(); }
  bool is_in_place() const noexcept { return !aside_.empty(); }
  // Replaces the averages in a state of the model by its own values.
  void put_own_values(StateDict& model_state) const;

  // Returns the averages under all names, not as copies.
  StateDict averages() const;
  // Copies the values; throws CheckpointError for names or shapes that do not match.
  void load(const StateDict& averages);

 private:
  std::vector<std::pair<std::string, std::size_t>> names_;
  std::vector<at::Tensor> own_, averages_;
  std::size_t num_averaged_ = 0;
  std::vector<std::size_t> narrow_;  // averaged tensors that are kept in a wider dtype than the model's
  std::vector<at::Tensor> newest_;   // the inputs of lerp(): the model's tensors, or wider copies
  std::vector<at::Tensor> aside_;    // the model's own values while averages are applied, else empty
};

}  // namespace kindling
