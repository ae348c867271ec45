#pragma once

#include "kindling/base/export.h"
#include "kindling/training/callback.h"

namespace kindling {

// While it exists, the averages replace the model's own values, in the same tensor objects. The destructor
// restores the model's own values. Costs two copies of the weights and the memory for them. To evaluate the
// averages between two steps:
//
//   const AveragedWeights averaged(trainer, ema.get());
//   trainer.validate(trainer.model(), data);
class AveragedWeights {
 public:
  // Does nothing for nullptr, without an average yet, or if the average is already applied. Throws Error if
  // another average of the trainer is applied.
  AveragedWeights(Trainer& trainer, WeightAveraging* averaging)
      : averaging_(averaging != nullptr && averaging->apply(trainer) ? averaging : nullptr) {}
  KINDLING_API ~AveragedWeights();  // logs an error if the weights cannot be restored
  AveragedWeights(const AveragedWeights&) = delete;
  AveragedWeights& operator=(const AveragedWeights&) = delete;

 private:
  WeightAveraging* averaging_;  // the one that was applied here; nullptr: none
};

}  // namespace kindling
