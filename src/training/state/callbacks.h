#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "kindling/training/callback.h"
#include "kindling/training/model_checkpoint.h"
#include "kindling/training/weight_average.h"

namespace kindling {

// The callbacks of a trainer, called in their order, but those that save the training after the others: what
// the others have come to is part of it. When the fit ends they come first, before the others change
// anything.
class Callbacks {
 public:
  Callbacks(Trainer& trainer, const std::vector<std::shared_ptr<Callback>>& list) : trainer_(trainer) {
    for (const auto& callback : list) {
      if (auto checkpoint = std::dynamic_pointer_cast<ModelCheckpoint>(callback))
        checkpoints_.push_back(std::move(checkpoint));
      else
        others_.push_back(callback);
      if (auto average = std::dynamic_pointer_cast<WeightAverage>(callback))
        averages_.push_back(std::move(average));
    }
  }

  // callbacks.call(&Callback::on_train_batch_end, model)
  template <class... Parameters, class... Arguments>
  void call(void (Callback::*moment)(Trainer&, Module&, Parameters...), Module& model,
            Arguments&... arguments) const {
    is_calling_ = true;
    for (const auto& callback : others_) (*callback.*moment)(trainer_, model, arguments...);
    for (const auto& checkpoint : checkpoints_) (*checkpoint.*moment)(trainer_, model, arguments...);
    is_calling_ = false;
  }
  // The averages of the model's weights, which take part in a training rather than hear of it.
  void average_after_step(Module& model) const {
    for (const auto& average : averages_) average->after_step(trainer_, model);
  }
  void average_after_epoch(Module& model) const {
    for (const auto& average : averages_) average->after_epoch(trainer_, model);
  }
  // The one that validation looks at; nullptr: the model's own weights.
  WeightAverage* evaluated_average() const {
    for (const auto& average : averages_)
      if (average->evaluates()) return average.get();
    return nullptr;
  }

  // Of several processes: whether this one wishes a save, and that one of them has done so. Those who save
  // ask the others at the end of the batch.
  bool wish_save() const {
    return std::ranges::any_of(checkpoints_,
                               [](const auto& checkpoint) { return checkpoint->wishes_save(); });
  }
  void tell_of_wish() const {
    for (const auto& checkpoint : checkpoints_) checkpoint->hear_of_wish();
  }

  // The latest call has not come to its end: some have heard of its moment, others not.
  bool is_calling() const noexcept { return is_calling_; }

  const std::vector<std::shared_ptr<ModelCheckpoint>>& checkpoints() const noexcept { return checkpoints_; }
  const std::vector<std::shared_ptr<Callback>>& others() const noexcept { return others_; }
  Trainer& trainer() const noexcept { return trainer_; }

 private:
  Trainer& trainer_;
  mutable bool is_calling_ = false;
  std::vector<std::shared_ptr<Callback>> others_;
  std::vector<std::shared_ptr<WeightAverage>> averages_;  // among the others
  std::vector<std::shared_ptr<ModelCheckpoint>> checkpoints_;
};

}  // namespace kindling
