// A loss is a mean over the labels that count, whatever batches, accumulation, ranks and shards cut them
// into. The right values are those of one process with one batch per step, where PyTorch's own operator is
// the mean.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "kindling/metrics/accuracy.h"
#include "kindling/nn/classifier.h"
#include "support/device_under_test.h"
#include "training/parallel/rank_runs.h"

namespace kindling {
namespace {

constexpr std::int64_t kTaggedSamples = 120, kPerWholeStep = 12, kTagPositions = 3, kTags = 4,
                       kTagFeatures = 5;

std::int64_t num_settings() {
  const char* set = std::getenv("KINDLING_SOAK_LABELS");
  return set == nullptr ? 40 : std::atoi(set);
}

enum class Loss { all_count, ignored, class_weights, masked_error, smoothed, focal, multi_label };
constexpr std::int64_t kNumLosses = 7;

// Outputs [batch, classes, positions]. Without shared state: it may be captured.
class Tagger : public Classifier {
 public:
  explicit Tagger(Loss kind) : kind_(kind) {
    layer_ = register_module("layer", torch::nn::Linear(kTagFeatures, kTags));
    if (kind == Loss::class_weights) set_class_weights(at::tensor({1.1, 0.3, 3.7, 0.}, at::kDouble));
    if (kind == Loss::smoothed) set_class_weights(at::tensor({1.1, 0.3, 3.7, 0.2}, at::kDouble));
    if (kind == Loss::smoothed) set_loss_options({.label_smoothing = 0.2});
    if (kind == Loss::focal) set_loss_options({.label_smoothing = 0.1, .focal_gamma = 2});
    if (kind == Loss::multi_label)
      set_loss_options({.ignore_index = -100, .multi_label = true, .pos_weight = {1, 2, 3, 0.5}});
  }
  bool has_static_graph() const override { return true; }
  at::Tensor forward(const at::Tensor& x) override { return layer_(x).transpose(1, 2); }
  // A masked mean error that is NaN if the mask is empty, as its gradient is.
  at::Tensor loss(const at::Tensor& outputs, const at::Tensor& labels) override {
    if (kind_ != Loss::masked_error) return Classifier::loss(outputs, labels);
    const at::Tensor mask = labels.ne(-100).to(outputs.dtype());
    const at::Tensor errors = outputs.select(1, 0).sub(labels).square().mul(mask);
    return weighted({errors.sum().div(mask.sum()), mask.sum()});
  }

 private:
  Loss kind_;
  torch::nn::Linear layer_{nullptr};
};

struct Cut {
  std::int64_t batch_size = kPerWholeStep, accumulate = 1, num_ranks = 1, shards = 1;
  std::string step_graph = "off";
};

std::ostream& operator<<(std::ostream& to, const Cut& cut) {
  return to << "batch_size " << cut.batch_size << ", accumulate " << cut.accumulate << ", ranks "
            << cut.num_ranks << ", shards " << cut.shards << ", step_graph " << cut.step_graph;
}

struct Labelled {
  at::Tensor x, labels;
};

// Few labels count in some samples, none in others, and in one whole step none at all.
Labelled labelled(Loss kind, std::uint64_t seed) {
  at::manual_seed(seed);
  Labelled data{at::randn({kTaggedSamples, kTagPositions, kTagFeatures}),
                at::randint(kTags, {kTaggedSamples, kTagPositions}, at::kLong)};
  if (kind == Loss::all_count) return data;
  data.labels.masked_fill_(at::rand({kTaggedSamples, kTagPositions}).lt(0.5), -100);
  data.labels.masked_fill_(at::rand({kTaggedSamples, 1}).lt(0.3), -100);
  data.labels.narrow(0, 3 * kPerWholeStep, kPerWholeStep).fill_(-100);
  if (kind == Loss::multi_label) {  // each class of a position that counts has a 0 or 1, or none
    const at::Tensor classes = at::arange(kTags).view({1, kTags, 1}), numbers = data.labels.unsqueeze(1);
    data.labels = numbers.remainder(3).ge(classes.remainder(3)).to(at::kLong);
    data.labels.masked_fill_(numbers.eq(-100).logical_and(classes.ne(1)), -100);
    data.labels.narrow(0, 3 * kPerWholeStep, kPerWholeStep).fill_(-100);
  }
  return data;
}

RankRun train(const Labelled& data, Loss kind, const Cut& cut, const std::string& precision,
              std::int64_t num_gpus = 0) {
  std::vector<RankRun> runs(static_cast<std::size_t>(cut.num_ranks));
  for (RankRun& run : runs) {
    at::manual_seed(3);
    run.model = std::make_shared<Tagger>(kind);
  }
  fit_on_ranks(cut.num_ranks, [&](const std::shared_ptr<ProcessGroup>& group, std::int64_t rank) {
    RankRun& run = runs[static_cast<std::size_t>(rank)];
    TensorData source({data.x, data.labels}, {data.x, data.labels},
                      {.batch_size = cut.batch_size, .shuffle = false});
    Trainer trainer({.max_epochs = 2,
                     .num_gpus = num_gpus,
                     .accumulate_grad_batches = cut.accumulate,
                     .gradient_shards = cut.shards,
                     .precision = precision,
                     .step_graph = cut.step_graph,
                     .optimizer =
                         [](ParameterGroups parameters) {
                           return std::make_unique<Sgd>(std::move(parameters),
                                                        SgdOptions{.lr = 0.1, .momentum = 0.9});
                         },
                     .process_group = group});
    run.result = trainer.fit(run.model, source);
  });
  for (const RankRun& run : runs) expect_same_weights(run.weights(), runs[0].weights());
  return std::move(runs[0]);
}

void expect_equal_training(const RankRun& run, const RankRun& right, double tolerance) {
  EXPECT_EQ(run.result.status, FitStatus::finished);
  for (std::size_t i = 0; i < right.weights().size(); ++i) {
    const at::Tensor difference = run.weights()[i].sub(right.weights()[i]).to(at::kDouble);
    EXPECT_LE(difference.norm().item<double>(),
              tolerance * right.weights()[i].to(at::kDouble).norm().item<double>());
  }
  for (const char* name : {"train_loss", "val_loss"})
    EXPECT_NEAR(run.result.metrics.at(name), right.result.metrics.at(name),
                std::min(tolerance, 1e-6) * std::abs(right.result.metrics.at(name)))
        << name;
}

Cut random_cut(std::mt19937& random) {
  const auto pick = [&](std::int64_t below) { return static_cast<std::int64_t>(random()) % below; };
  constexpr std::int64_t kRanks[] = {1, 1, 2, 3};
  Cut cut{.num_ranks = kRanks[pick(4)]};
  const std::int64_t own = kPerWholeStep / cut.num_ranks;
  if (cut.num_ranks != 3 && pick(3) == 0) {
    cut.shards = 4;
    cut.batch_size = own;
  } else {
    while (own % (cut.accumulate = 1 + pick(own)) != 0) continue;
    cut.batch_size = own / cut.accumulate;
  }
  cut.step_graph = pick(2) == 0 ? "on" : "off";
  return cut;
}

TEST(CountedLabels, GiveTheSameWeightsAndMeansHoweverTheyAreCut) {
  std::mt19937 random(24);
  for (std::int64_t i = 0; i < num_settings() && !HasFailure(); ++i) {
    const auto kind = static_cast<Loss>(i % kNumLosses);
    const bool is_double = i % (2 * kNumLosses) < kNumLosses;
    const std::string precision = is_double ? "64-true" : "32-true";
    const Labelled data = labelled(kind, static_cast<std::uint64_t>(100 + i));
    const Cut cut = random_cut(random);
    SCOPED_TRACE(testing::Message() << "setting " << i << ", loss " << static_cast<int>(kind) << ", "
                                    << precision << ": " << cut);
    expect_equal_training(train(data, kind, cut, precision), train(data, kind, {}, precision),
                          is_double ? 1e-12 : 1e-5);
  }
}

class CountedLabelsOnDevice : public OnDevice {};
INSTANTIATE_TEST_SUITE_P(Devices, CountedLabelsOnDevice, testing::ValuesIn(trainer_devices_under_test()),
                         DeviceName());

TEST_P(CountedLabelsOnDevice, GiveTheWeightsOfOneBatchPerStep) {
  for (const Loss kind : {Loss::ignored, Loss::class_weights}) {
    Labelled data = labelled(kind, 7);
    data.labels.select(1, 0).clamp_(0);  // a step without labels is an update with zeros on a device
    const RankRun right = train(data, kind, {}, "32-true");
    for (const char* graph : {"off", "on"})
      expect_equal_training(train(data, kind, {.batch_size = 3, .accumulate = 4, .step_graph = graph},
                                  "32-true", num_gpus_wanted()),
                            right, 1e-5);
  }
}

// The accuracy of one batch, where LibTorch's operators count.
TEST(CountedLabels, DecideTheAccuracyToo) {
  for (const Loss kind : {Loss::ignored, Loss::class_weights, Loss::multi_label}) {
    const Labelled data = labelled(kind, 9);
    const RankRun run = train(data, kind, {.batch_size = 5}, "64-true");
    Tagger& model = dynamic_cast<Tagger&>(*run.model);
    const at::NoGradGuard no_grad;
    const at::Tensor outputs = model.forward(data.x.to(at::kDouble));
    const at::Tensor said = kind == Loss::multi_label ? outputs.gt(0).to(at::kLong) : outputs.argmax(1);
    const double right =
        said.eq(data.labels).sum().item<double>() / data.labels.ne(-100).sum().item<double>();
    EXPECT_NEAR(run.result.metrics.at("val_acc"), right, 1e-12) << static_cast<int>(kind);
    EXPECT_LE(run.result.metrics.at("train_acc"), 1);
    if (kind == Loss::multi_label) continue;
    EXPECT_NEAR(accuracy(outputs, data.labels).item<double>(), right, 1e-6);
  }
}

// logits 0, as PyTorch's cross_entropy(logits, labels, weight): the mean of ln 4.
TEST(CountedLabels, SkipAStepWithoutAnyWhichIsNoError) {
  Labelled data = labelled(Loss::ignored, 8);
  data.labels.fill_(-100);
  const RankRun run = train(data, Loss::ignored, {}, "32-true");
  at::manual_seed(3);
  expect_same_weights(run.weights(), RankRun::on_host(Tagger(Loss::ignored).parameters()));
  EXPECT_EQ(run.result.status, FitStatus::finished);
  EXPECT_EQ(run.result.metrics.at("skipped_steps"), kTaggedSamples / kPerWholeStep);
  EXPECT_FALSE(run.result.metrics.contains("val_loss"));
}

TEST(CountedLabels, RefuseAWeightThatIsNone) {
  struct Weighted : Slope {
    explicit Weighted(at::Tensor weight) : of_loss(std::move(weight)) {}
    at::Tensor loss(const at::Tensor& y, const at::Tensor& labels) override {
      return weighted({Slope::loss(y, labels), of_loss});
    }
    at::Tensor of_loss;
  };
  const auto error_of = [](at::Tensor weight) -> std::string {
    TensorData data = ramp(8, 0, 2);
    try {
      Trainer({.max_epochs = 1}).fit(std::make_shared<Weighted>(std::move(weight)), data);
    } catch (const DataError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_NE(error_of(at::full({}, -1.)).find("it is -1; expected: a number, at least 0"), std::string::npos);
  EXPECT_NE(error_of(at::full({}, std::nan(""))).find("it is nan"), std::string::npos);
  EXPECT_NE(error_of(at::ones({2})).find("a weight of 2 elements; expected: one number"), std::string::npos);
}

}  // namespace
}  // namespace kindling
