#pragma once

#include <memory>

#include "kindling/distributed/process_group.h"

namespace kindling {

// Batch norm in training by the samples of all processes (TrainerOptions::sync_batchnorm): while a scope
// lives, every at::batch_norm of this thread that takes its statistics from the batch takes them from the
// batches of all processes together, in forward and in backward. Layers stay what they are, and so do their
// names. All processes call the same layers in the same order: each call waits for the others.
class SyncBatchNorm {
 public:
  // What the batch of this process is among those of all.
  struct Part {
    std::shared_ptr<ProcessGroup> group{};
    bool counts = true;  // its samples, in the statistics
    // Times the gradients that backward sees, that are those of a sum over samples of all processes.
    double scale = 1;
  };

  class Scope {
   public:
    explicit Scope(Part part);  // without a group: nothing
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    class Active;
    std::unique_ptr<Active> active_;
  };
};

}  // namespace kindling
