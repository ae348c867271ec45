// The cost of weight averaging on a device: no wait and no transfer in a step, and one operator.
#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <torch/nn.h>

#include "fake_accelerator.h"
#include "kindling/optim/adam.h"
#include "kindling/training/early_stopping.h"
#include "kindling/training/exponential_moving_average.h"
#include "kindling/training/stochastic_weight_averaging.h"
#include "training/loop/resumed_fit.h"

namespace kindling {
namespace {

thread_local std::map<std::string, std::int64_t> calls_by_name;

std::unique_ptr<at::ObserverContext> note_call(const at::RecordFunction& call) {
  ++calls_by_name[call.name()];
  return nullptr;
}

// The device's counts from the end of one step to that of the next, and all operators from the second step
// on.
struct StepCosts : Callback {
  StepCosts()
      : handle(at::addThreadLocalCallback(
            at::RecordFunctionCallback(&note_call).scopes({at::RecordScope::FUNCTION}))) {}
  ~StepCosts() override { at::removeCallback(handle); }
  void on_train_epoch_start(Trainer&, Module&) override { fake::reset_counts(); }
  void on_train_batch_end(Trainer& trainer, Module&) override {
    const fake::Counts counts = fake::counts();
    waits += counts.host_waits() + counts.item_reads + counts.data_dependent_ops;
    to_host += counts.device_to_host_copies;
    to_device += counts.host_to_device_copies;
    fake::reset_counts();
    if (trainer.progress().global_step == 1) calls_by_name.clear();  // the first values were copied
  }
  std::int64_t waits = 0, to_host = 0, to_device = 0;
  at::CallbackHandle handle;
};

struct Cost {
  std::int64_t waits, to_host, to_device;
  std::map<std::string, std::int64_t> calls;
  bool operator==(const Cost&) const = default;
};

Cost cost_of(std::vector<std::shared_ptr<Callback>> callbacks) {
  at::manual_seed(7);
  const auto costs = std::make_shared<StepCosts>();
  callbacks.insert(callbacks.begin(), costs);
  NoiseImages data(40, 4, 4, "off");
  Trainer(
      {.max_epochs = 4, .num_gpus = 1, .optimizer = rule_named("adam"), .callbacks = std::move(callbacks)})
      .fit(std::make_shared<Busy>(), data);
  return {costs->waits, costs->to_host, costs->to_device, calls_by_name};
}

std::shared_ptr<Callback> ema_for_cost(bool evaluate) {
  return std::make_shared<ExponentialMovingAverage>(
      ExponentialMovingAverageOptions{.evaluate = evaluate, .apply_at_end = evaluate});
}
std::shared_ptr<Callback> swa_for_cost() {
  return std::make_shared<StochasticWeightAveraging>(
      StochasticWeightAveragingOptions{.swa_lrs = {0.01}, .swa_epoch_start = 2});
}

TEST(FakeAverages, NeitherWaitNorTransferInAStep) {
  const Cost plain = cost_of({});
  ASSERT_EQ(plain.waits, 0);
  for (const auto& callbacks : std::vector<std::vector<std::shared_ptr<Callback>>>{
           {ema_for_cost(true)},
           {swa_for_cost()},
           {std::make_shared<EarlyStopping>()},
           {ema_for_cost(false), swa_for_cost(), std::make_shared<EarlyStopping>()}}) {
    const Cost cost = cost_of(callbacks);
    EXPECT_EQ(cost.waits, 0);
    EXPECT_EQ(cost.to_host, plain.to_host);
    EXPECT_EQ(cost.to_device, plain.to_device);
  }
}

TEST(FakeAverages, NeedOneOperatorPerStep) {
  Cost plain = cost_of({});
  Cost cost = cost_of({ema_for_cost(false)});
  EXPECT_EQ(cost.calls["aten::_foreach_lerp_"], 39);
  for (const char* inner : {"aten::_foreach_lerp_", "aten::lerp_", "aten::lerp"}) cost.calls.erase(inner);
  for (const auto& [name, number] : cost.calls) EXPECT_EQ(number, plain.calls[name]) << name;
}

}  // namespace
}  // namespace kindling
