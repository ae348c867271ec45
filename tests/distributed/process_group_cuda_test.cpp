// NCCL with a single rank: the machine that this was written for had one GPU.
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "kindling/device/device.h"
#include "kindling/distributed/process_group.h"
#include "support/rank_threads.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

TEST(ProcessGroupCuda, AloneAddsUpAndBroadcastsOnTheCard) {
  if (num_gpus() == 0) GTEST_SKIP() << "there is no cuda:0: " << gpu_unavailable_reason();
  on_ranks(1, [](ProcessGroup& group) {
    at::Tensor sum = at::arange(1000, at::kFloat).to(gpu());
    group.all_reduce(sum);
    EXPECT_TRUE(same(sum, at::arange(1000, at::kFloat)));
    const std::vector<at::Tensor> tensors{at::full({2, 3}, 2., at::device(gpu())),
                                          at::full({}, 3, at::dtype(at::kLong).device(gpu())),
                                          at::full({4}, 5.)};
    group.broadcast(tensors, /*root=*/0);
    EXPECT_TRUE(same(tensors[0], at::full({2, 3}, 2.)));
    EXPECT_TRUE(same(tensors[1], at::full({}, 3, at::kLong)));
    EXPECT_EQ(group.all_gather("alone"), std::vector<std::string>{"alone"});
  });
}

}  // namespace
}  // namespace kindling
