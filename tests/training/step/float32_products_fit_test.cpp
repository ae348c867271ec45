// trainer.float32_matmul_precision: the setting while a trainer runs, and that matmuls respect it.
#include <ATen/Context.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "device/float32_products.h"
#include "kindling/base/error.h"
#include "kindling/training/callback.h"
#include "kindling/training/update_bn.h"
#include "support/scratch.h"
#include "tensors/run_difference.h"
#include "training/capture/step_graph.h"
#include "training/parallel/rank_runs.h"

namespace kindling {
namespace {

using Words = std::vector<std::string>;

// Writes down how products are made whenever it is asked for its outputs.
class Multiplies : public Slope {
 public:
  Multiplies() { register_module("norm", norm); }
  at::Tensor forward_inputs(const Batch& batch) override {
    words.push_back(float32_matmul_precision());
    if (throws) throw std::runtime_error("enough");
    norm->forward(batch[0]);  // for update_bn()
    return forward(batch[0]);
  }
  torch::nn::BatchNorm1d norm{torch::nn::BatchNorm1dOptions(1).affine(false)};
  bool throws = false;
  Words words;
};

// The process's setting, and what it was.
class ProcessWord {
 public:
  explicit ProcessWord(const char* word) { at::globalContext().setFloat32MatmulPrecision(word); }
  ~ProcessWord() { at::globalContext().setFloat32MatmulPrecision("highest"); }
  ProcessWord(const ProcessWord&) = delete;
  ProcessWord& operator=(const ProcessWord&) = delete;
};

TEST(Float32MatmulPrecision, HoldsWhileTheTrainerRuns) {
  for (const std::string before : {"highest", "high"})
    for (const std::string word : {"highest", "high", "medium"}) {
      const ProcessWord process(before.c_str());
      const auto model = std::make_shared<Multiplies>();
      TensorData data = ramp(4, 2, 2);
      Trainer trainer({.max_epochs = 1, .float32_matmul_precision = word, .optimizer = sgd(0.125)});
      const auto expect_number = [&](std::size_t number) {
        EXPECT_EQ(model->words, Words(number, word));
        EXPECT_EQ(float32_matmul_precision(), before);
        model->words.clear();
      };
      trainer.fit(model, data);
      expect_number(4);  // a sanity check, two steps, a validation
      trainer.validate(model, data);
      expect_number(1);
      trainer.predict(model, data);
      expect_number(1);
      trainer.prepare_data(data);
      trainer.prepare_model(model);
      for (const Batch& batch : trainer.train_batches()) trainer.train_step(batch);
      expect_number(2);
      update_bn(trainer, *model, data);
      expect_number(2);
    }
}

TEST(Float32MatmulPrecision, IsRestoredWhenAStepThrows) {
  const auto model = std::make_shared<Multiplies>();
  model->throws = true;
  TensorData data = ramp(4, 0, 2);
  Trainer trainer({.max_epochs = 1, .float32_matmul_precision = "medium", .optimizer = sgd(0.125)});
  EXPECT_THROW(trainer.fit(model, data), std::runtime_error);
  EXPECT_EQ(model->words, Words{"medium"});
  EXPECT_EQ(float32_matmul_precision(), "highest");
}

TEST(Float32MatmulPrecision, IsThatOfTheProcessByDefault) {
  const ProcessWord process("medium");
  const auto model = std::make_shared<Multiplies>();
  TensorData data = ramp(4, 2, 2);
  Trainer({.max_epochs = 1, .optimizer = sgd(0.125)}).fit(model, data);
  EXPECT_EQ(model->words, Words(4, "medium"));
}

// Lets another trainer look at the model in between.
struct LooksExactly : Callback {
  void on_train_batch_end(Trainer&, Module& model) override {
    TensorData data = ramp(4, 2, 2);
    Trainer({.float32_matmul_precision = "highest"})
        .validate(std::static_pointer_cast<Module>(model.shared_from_this()), data);
  }
};

TEST(Float32MatmulPrecision, OfANestedTrainerEndsWithIt) {
  const auto model = std::make_shared<Multiplies>();
  TensorData data = ramp(4, 0, 2);
  Trainer({.max_epochs = 1,
           .float32_matmul_precision = "medium",
           .optimizer = sgd(0.125),
           .callbacks = {std::make_shared<LooksExactly>()}})
      .fit(model, data);
  EXPECT_EQ(model->words, (Words{"medium", "highest", "medium", "highest"}));
}

TEST(Float32MatmulPrecision, RefusesOtherWords) {
  const std::string error = error_text<ConfigError>([] { Trainer({.float32_matmul_precision = "bf16"}); });
  EXPECT_NE(error.find("float32_matmul_precision is \"bf16\""), std::string::npos) << error;
  EXPECT_NE(error.find("\"highest\", \"high\", \"medium\""), std::string::npos) << error;
}

TEST(Float32MatmulPrecision, MustBeTheSameOnAllRanks) {
  std::vector<std::string> errors(2);
  const auto groups = ProcessGroup::from_threads(2, {.timeout_s = 60});
  on_ranks(groups, [&](ProcessGroup& group) {
    const auto rank = static_cast<std::size_t>(group.rank());
    TrainerOptions options = options_for(groups[rank]);
    if (rank == 1) options.float32_matmul_precision = "medium";
    TensorData data = rank_images(2);
    errors[rank] = error_text<Error>([&] { Trainer(options).fit(mlp({8}), data); });
  });
  for (const std::string& error : errors)
    EXPECT_NE(error.find("float32_matmul_precision is 'medium' on rank 1 and nothing on rank 0"),
              std::string::npos)
        << error;
}

constexpr std::int64_t kTerms = 256;  // of fewer all libraries make sums in one order

// Whether this CPU multiplies otherwise where it may: rounded, or only by another library, which may depend
// on the number of samples. The batches of graph_fit() have 16, the last one 6.
bool has_other_products() {
  for (const std::int64_t samples : {16, 6}) {
    const at::Tensor x = at::randn({samples, kTerms}), weight = at::randn({16, kTerms}),
                     bias = at::randn({16}), exact = at::linear(x, weight, bias);
    const Float32Products products("medium");
    if (!at::linear(x, weight, bias).equal(exact)) return true;
  }
  return false;
}

// Gives the model a layer of so many inputs, which the mask scales.
void multiply_beside(CountedNet& model) {
  torch::nn::Linear wide(kTerms, 16);
  model.register_module("wide", wide);
  model.extra = [wide](CountedNet& net, const Batch& batch, const at::Tensor& loss) mutable {
    return loss + wide->forward(batch[0].flatten(1).repeat({1, kTerms / 64}) * net.mask).square().mean();
  };
}

GraphFit fit_with(const std::optional<std::string>& word, const std::string& step_graph) {
  return graph_fit(step_graph, {.float32_matmul_precision = word}, multiply_beside);
}

TEST(Float32MatmulPrecision, AppliesToEagerAndReplayedMatmuls) {
  const GraphFit exact = fit_with("highest", "off");
  for (const std::string word : {"high", "medium"}) {
    const GraphFit eager = fit_with(word, "off"), recorded = fit_with(word, "on");
    expect_same_fit(recorded, eager);
    EXPECT_LT(recorded.num_calls, eager.num_calls) << "it is replayed";
    EXPECT_EQ(recorded.said, "");
    if (word != "medium") continue;
    bool is_same = true;
    for (std::size_t i = 0; i < eager.values.size(); ++i)
      is_same = is_same && same(eager.values[i], exact.values[i]);
    EXPECT_EQ(is_same, !has_other_products());
  }
  expect_same_fit(fit_with("highest", "on"), exact);
  expect_same_fit(fit_with(std::nullopt, "on"), exact);
}

// Recorded steps multiply zeros, which is exact everywhere.
TEST(Float32MatmulPrecision, AppliesToMatmulsThatWereExactAtFirst) {
  const auto fit = [](const std::string& step_graph) {
    const auto unmask = [](CountedNet& net, std::int64_t batch) {
      if (batch == 15) net.mask.fill_(1);
    };
    return graph_fit(step_graph,
                     {.max_epochs = 4,
                      .float32_matmul_precision = "medium",
                      .callbacks = {std::make_shared<ModelMeddler>(unmask)}},
                     [](CountedNet& net) {
                       multiply_beside(net);
                       net.mask.fill_(0);
                     });
  };
  const GraphFit eager = fit("off"), recorded = fit("on");
  expect_same_fit(recorded, eager);
  EXPECT_EQ(recorded.said, "");
  EXPECT_LT(recorded.num_calls, eager.num_calls);
}

// On a device that adds up in changing order.
TEST(Float32MatmulPrecision, WidensTheToleranceOfComparisons) {
  EXPECT_EQ(tolerance_of("32-true", /*shortens_products=*/true).relative,
            tolerance_of("bf16-mixed").relative);
  EXPECT_LT(tolerance_of("32-true").relative, tolerance_of("bf16-mixed").relative);
  EXPECT_EQ(tolerance_of("64-true", true).relative, tolerance_of("64-true").relative);
}

// Sets the process's word behind some batches.
struct ChangesTheWord : Callback {
  void on_train_batch_end(Trainer&, Module&) override {
    if (++num_batches == 15) at::globalContext().setFloat32MatmulPrecision("medium");
    if (num_batches == 27) at::globalContext().setFloat32MatmulPrecision("highest");
  }
  int num_batches = 0;
};

TEST(Float32MatmulPrecision, IsTheSameInRecordingsAndReplays) {
  const ProcessWord process("highest");
  const auto fit = [](const std::string& step_graph) {
    return graph_fit(step_graph, {.callbacks = {std::make_shared<ChangesTheWord>()}}, multiply_beside);
  };
  const GraphFit eager = fit("off"), recorded = fit("on");
  expect_same_fit(recorded, eager);
  EXPECT_EQ(recorded.said, "") << "it is recorded anew, and not given up";
  EXPECT_LT(recorded.num_calls, eager.num_calls - 5);
}

}  // namespace
}  // namespace kindling
