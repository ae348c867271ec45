// Random models train to bit-identical values with step capture and without, or capture refuses the model and
// says why.
#include <gtest/gtest.h>

#include <iostream>

#include "training/capture/random_net.h"
#include "training/capture/step_graph.h"

namespace kindling {
namespace {

struct TrainedNet {
  std::vector<at::Tensor> values;
  std::string text, said;
  int num_calls;
};

// 20 steps: two epochs of nine full batches and a short one.
TrainedNet trained_net(unsigned seed, const char* step_graph) {
  const SaidBySteps said;
  torch::manual_seed(seed);
  const auto model = std::make_shared<RandomNet>(seed);
  const std::int64_t n = 9 * kRows + 5;
  TensorData data({at::randn({n, kLength, kWidth}), at::randint(4, {n})}, {}, {.batch_size = kRows});
  Trainer(
      {.max_epochs = 2,
       .gradient_clip_val = 1.0,
       .step_graph = step_graph,
       .optimizer = [](ParameterGroups p) { return std::make_unique<Adam>(std::move(p), AdamOptions{}); }})
      .fit(model, data);
  TrainedNet result{.values = {}, .text = model->text(), .said = said.text(), .num_calls = model->num_calls};
  for (const at::Tensor& tensor : model->parameters()) result.values.push_back(tensor.detach());
  for (const at::Tensor& tensor : model->buffers()) result.values.push_back(tensor);
  return result;
}

TEST(StepGraph, TrainsRandomModelsBitIdentically) {
  int num_replayed = 0;
  for (unsigned seed = 1; seed <= 40; ++seed) {
    const TrainedNet eager = trained_net(seed, "off"), recorded = trained_net(seed, "on");
    SCOPED_TRACE(recorded.text);
    ASSERT_EQ(eager.values.size(), recorded.values.size());
    for (std::size_t i = 0; i < eager.values.size(); ++i)
      EXPECT_TRUE(same(recorded.values[i], eager.values[i])) << "tensor " << i;
    const bool is_replayed = recorded.num_calls < eager.num_calls;
    num_replayed += is_replayed ? 1 : 0;
    EXPECT_EQ(is_replayed, recorded.said.empty()) << recorded.said;
    std::cout << seed << " " << (is_replayed ? "replayed" : "refused") << ": " << recorded.text << " "
              << recorded.said << (recorded.said.empty() ? "\n" : "");
  }
  EXPECT_GE(num_replayed, 36);  // refusing every model would pass the rest
}

}  // namespace
}  // namespace kindling
