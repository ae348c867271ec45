#pragma once

#include "kindling/training/callback.h"

namespace kindling {

// While it lives, the model has the averages in place of its own values, which come back afterwards, whatever
// happens in between; the tensors stay the same objects. Costs two copies of the weights and their memory. For
// evaluating the averages between two steps:
//
//   const AveragedWeights averaged(trainer, ema.get());
//   trainer.validate(trainer.model(), data);
class AveragedWeights {
 public:
  // Does nothing for nullptr, while there is no average yet and when it is applied already. Throws Error when
  // another average of the trainer's is applied.
  AveragedWeights(Trainer& trainer, WeightAveraging* averaging)
      : averaging_(averaging != nullptr && averaging->apply(trainer) ? averaging : nullptr) {}
  ~AveragedWeights() {
    if (averaging_ != nullptr) averaging_->restore();
  }
  AveragedWeights(const AveragedWeights&) = delete;
  AveragedWeights& operator=(const AveragedWeights&) = delete;

 private:
  WeightAveraging* averaging_;  // that has been applied here
};

}  // namespace kindling
