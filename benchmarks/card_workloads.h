#pragma once

#include "workloads.h"

namespace kindling_bench {

// Workloads that fill a GPU. Their data is random, so a loss shows only that all peers compute the same.

// A residual network for images of 32 x 32 in batches of 512, from bytes.
Workload card_cifar();
// GPT-2 of 124 million parameters, 16 sequences of 1024 tokens in a batch.
Workload card_gpt2();

}  // namespace kindling_bench
