// CUDA graphs compared with eager steps, with deterministic operators.
#include <gtest/gtest.h>

#include "graph/device/device_graph.h"
#include "kindling/models/lenet.h"
#include "kindling/models/mlp.h"
#include "kindling/models/small_cnn.h"
#include "kindling/optim/cosine_schedules.h"
#include "kindling/optim/sgd.h"
#include "training/capture/step_graph.h"

namespace kindling {
namespace {

class StepGraphCuda : public testing::Test {
 protected:
  void SetUp() override {
    if (num_gpus() == 0) GTEST_SKIP() << "there is no cuda:0: " << gpu_unavailable_reason();
    ASSERT_EQ(why_no_graph(gpu()), "");
  }
};

GraphFit cuda_fit(const std::string& step_graph, TrainerOptions options,
                  const std::function<void(CountedNet&)>& prepare = {}) {
  options.num_gpus = 1;
  if (options.deterministic == "false") options.deterministic = "true";
  return graph_fit(step_graph, std::move(options), prepare);
}

// Of 36 steps. While the result of a comparison is pending, steps are eager.
constexpr std::int64_t kMostCalls = 30;

void expect_replayed_on_cuda(const TrainerOptions& options,
                             const std::function<void(CountedNet&)>& prepare = {}) {
  const GraphFit eager = cuda_fit("off", options, prepare), recorded = cuda_fit("on", options, prepare);
  EXPECT_EQ(eager.num_calls, 36);
  EXPECT_LE(recorded.num_calls, kMostCalls);
  EXPECT_EQ(recorded.said, eager.said);
  expect_same_fit(recorded, eager);
}

OptimizerFactory momentum_rule() {
  return [](ParameterGroups p) {
    return std::make_unique<Sgd>(std::move(p), SgdOptions{.lr = 0.05, .momentum = 0.9});
  };
}

TEST_F(StepGraphCuda, IsBitIdenticalToEagerSteps) {
  const std::vector<std::pair<std::string, TrainerOptions>> cases{
      {"plain", {}},
      {"clipping and step records", {.gradient_clip_val = 0.5, .log_every_n_steps = 2}},
      {"windows of three with clipping", {.gradient_clip_val = 0.5, .accumulate_grad_batches = 3}},
      {"bf16-mixed", {.precision = "bf16-mixed"}},
      {"16-mixed", {.precision = "16-mixed"}},
      {"16-mixed in windows", {.accumulate_grad_batches = 2, .precision = "16-mixed"}},
      {"bf16-true", {.precision = "bf16-true"}},
      {"64-true", {.precision = "64-true"}},
      {"channels last", {.channels_last = "on"}},
      {"skipping", {.gradient_clip_val = 1, .on_nonfinite = "skip"}},
      {"norms of gradients", {.log_every_n_steps = 1, .track_grad_norm = 2}},
      {"several validations", {.val_check_interval = 0.5}},
      {"a rate that changes", {.gradient_clip_val = 0.5, .schedule = cosine_schedule()}},
      {"momentum", {.optimizer = momentum_rule()}}};
  for (const auto& [name, options] : cases) {
    SCOPED_TRACE(name);
    expect_replayed_on_cuda(options);
  }
}

TEST_F(StepGraphCuda, LogsWhatTheModelLogs) { expect_replayed_on_cuda({.log_every_n_steps = 1}, log_beside); }

// Sums in a nondeterministic order do not count as a changed step.
TEST_F(StepGraphCuda, TrainsWithNondeterministicSums) {
  const GraphFit eager = cuda_fit("off", {.deterministic = "warn"}),
                 recorded = cuda_fit("on", {.deterministic = "warn"});
  EXPECT_LE(recorded.num_calls, kMostCalls);
  for (std::size_t i = 0; i < eager.values.size(); ++i)
    EXPECT_TRUE(close(recorded.values[i].to(at::kDouble), eager.values[i].to(at::kDouble), 1e-3)) << i;
}

struct CudaRefusal {
  std::string name, reason;
  std::function<at::Tensor(CountedNet&, const Batch&, at::Tensor)> extra;
};

// Training continues, and later recordings succeed.
TEST_F(StepGraphCuda, RefusesStepsThatAGpuCannotRecord) {
  const std::vector<CudaRefusal> refusals{
      {"a number of the host's", "host",
       [](CountedNet&, const Batch&, const at::Tensor& loss) {
         return loss * (loss.item<double>() > 1e9 ? 2 : 1);
       }},
      {"a tensor made on the host", "tensor", [](CountedNet&, const Batch&, const at::Tensor& loss) {
         return loss * at::ones({}).to(loss.device());
       }}};
  for (const auto& [name, reason, extra] : refusals) {
    SCOPED_TRACE(name);
    const auto prepare = [&extra = extra](CountedNet& net) { net.extra = extra; };
    const GraphFit eager = cuda_fit("off", {}, prepare), recorded = cuda_fit("on", {}, prepare);
    EXPECT_EQ(recorded.num_calls, 36);
    EXPECT_NE(recorded.said.find("steps are not captured: "), std::string::npos) << recorded.said;
    EXPECT_NE(recorded.said.find(reason), std::string::npos) << recorded.said;
    expect_same_fit(recorded, eager);
  }
  expect_replayed_on_cuda({});
}

TEST_F(StepGraphCuda, NoticesAStepThatChanges) {
  const auto prepare = [](CountedNet& net) {
    net.extra = [](CountedNet& model, const Batch&, const at::Tensor& loss) {
      return model.num_calls < 10 ? loss : 2 * loss;
    };
  };
  const GraphFit recorded = cuda_fit("on", {}, prepare);
  EXPECT_NE(recorded.said.find("a replay differs from the eager step"), std::string::npos) << recorded.said;
}

TEST_F(StepGraphCuda, TrainsTheShippedModelsLikeEagerSteps) {
  const auto trained = [](const std::shared_ptr<Module>& model, std::int64_t size, const char* step_graph) {
    NoiseImages data(44, size, 8);
    torch::manual_seed(2);
    const SaidBySteps said;
    Trainer({.max_epochs = 4, .num_gpus = 1, .step_graph = step_graph, .deterministic = "true"})
        .fit(model, data);
    EXPECT_EQ(said.text(), "");
    std::vector<at::Tensor> values;
    for (const at::Tensor& tensor : model->parameters()) values.push_back(tensor.detach().cpu());
    for (const at::Tensor& tensor : model->buffers()) values.push_back(tensor.cpu());
    return values;
  };
  for (const auto& [size, make] : sample_models()) {
    torch::manual_seed(1);
    const auto eager = trained(make(), size, "off");
    torch::manual_seed(1);
    const auto recorded = trained(make(), size, "on");
    for (std::size_t i = 0; i < eager.size(); ++i) EXPECT_TRUE(same(recorded[i], eager[i])) << i;
  }
}

}  // namespace
}  // namespace kindling
