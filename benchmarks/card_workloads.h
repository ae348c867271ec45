#pragma once

#include "workloads.h"

namespace kindling_bench {

// What fills a card; the numbers in their data are drawn, so a loss says only that all peers do the same.

// A residual network for images of 32 x 32 in batches of 512, from bytes.
Workload card_cifar();
// GPT-2 of 124 million parameters, 16 sequences of 1024 tokens in a batch.
Workload card_gpt2();

}  // namespace kindling_bench
