#pragma once

#include <memory>

#include "kindling/distributed/process_group.h"

namespace kindling {

// Batch norm in training over the samples of all ranks (TrainerOptions::sync_batchnorm): while a scope
// exists, every at::batch_norm of this thread that takes its statistics from the batch takes them from the
// batches of all ranks together, in forward and backward. Layers and their names stay unchanged. All ranks
// must call the same layers in the same order: each call waits for the others.
class SyncBatchNorm {
 public:
  // How the batch of this rank counts among those of all ranks.
  struct Part {
    std::shared_ptr<ProcessGroup> group{};
    bool counts = true;  // whether its samples are part of the statistics
    // Times the gradients that backward sees, gives the gradients of a sum over the samples of all ranks.
    double scale = 1;
  };

  class Scope {
   public:
    explicit Scope(Part part);  // without a group: does nothing
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    class Active;
    std::unique_ptr<Active> active_;
  };
};

}  // namespace kindling
