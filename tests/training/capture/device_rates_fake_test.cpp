// The rates of a schedule on a device, as a rule meets them.
#include <ATen/Functions.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include <memory>
#include <string_view>
#include <vector>

#include "fake_accelerator.h"
#include "kindling/optim/adam.h"
#include "kindling/optim/lion.h"
#include "kindling/optim/sgd.h"
#include "training/step/optimizer_update.h"

namespace kindling {
namespace {

// What the fused operators have been given as rate, one per group.
class GivenRates {
 public:
  GivenRates()
      : handle_(at::addThreadLocalCallback(
            at::RecordFunctionCallback(&note).scopes({at::RecordScope::FUNCTION}).needsInputs(true))) {
    noted_.clear();
  }
  ~GivenRates() { at::removeCallback(handle_); }
  GivenRates(const GivenRates&) = delete;
  GivenRates& operator=(const GivenRates&) = delete;
  std::vector<c10::IValue> taken() const { return noted_; }

 private:
  static std::unique_ptr<at::ObserverContext> note(const at::RecordFunction& call) {
    const std::string_view name = call.name();
    const bool is_adam = name == "aten::_fused_adam_" || name == "aten::_fused_adamw_";
    if (!is_adam && name != "aten::_fused_sgd_") return nullptr;
    noted_.push_back(call.inputs()[is_adam ? 6 : 5]);
    return nullptr;
  }
  static inline thread_local std::vector<c10::IValue> noted_;
  at::CallbackHandle handle_;
};

std::vector<c10::IValue> rates_of_step(Optimizer& rule) {
  const GivenRates rates;
  rule.step();
  return rates.taken();
}

std::vector<c10::IValue> rates_of_step(Optimizer& rule, DeviceRates& rates) {
  const DeviceRates::Scope scope(rates, rule);
  return rates_of_step(rule);
}

ParameterGroup group_of(at::Device device, at::ScalarType type = at::kFloat) {
  at::Tensor parameter = at::ones({3}, at::dtype(type).device(device)).set_requires_grad(true);
  parameter.mutable_grad() = at::ones_like(parameter);
  return {.parameters = {parameter}};
}

double value_of(const c10::IValue& rate) { return rate.toTensor().cpu().item<double>(); }

template <class Rule>
void expect_rates_of_groups() {
  Rule rule({group_of(fake::device()), group_of(fake::device())});
  DeviceRates rates;
  std::vector<const void*> places;
  for (const double rate : {0.1, 0.3, 0.3, 0.7}) {
    rule.set_lr(0, rate);
    rule.set_lr(1, 2 * rate);
    const auto given = rates_of_step(rule, rates);
    ASSERT_EQ(given.size(), 2U);
    for (std::size_t group = 0; group < 2; ++group) {
      ASSERT_TRUE(given[group].isTensor());
      const at::Tensor& tensor = given[group].toTensor();
      EXPECT_EQ(tensor.device(), fake::device());
      EXPECT_EQ(value_of(tensor), static_cast<double>(static_cast<float>(rule.lr(group))));
      if (places.size() < 2) places.push_back(tensor.const_data_ptr());
      EXPECT_EQ(tensor.const_data_ptr(), places[group]) << "a graph reads it there";
    }
    EXPECT_EQ(rule.lr(0), rate);
    EXPECT_EQ(rates_of_step(rule)[0].toDouble(), rate) << "after the scope it is a number again";
  }
}

TEST(FakeDeviceRates, MatchTheGroupsInEachStep) {
  expect_rates_of_groups<Adam>();
  expect_rates_of_groups<AdamW>();
  expect_rates_of_groups<Sgd>();
}

TEST(FakeDeviceRates, AreSeparateForEachOptimizer) {
  Sgd one({group_of(fake::device())}), other({group_of(fake::device())});
  DeviceRates rates;
  one.set_lr(0.25);
  other.set_lr(0.5);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(value_of(rates_of_step(one, rates)[0]), 0.25);
    EXPECT_EQ(value_of(rates_of_step(other, rates)[0]), 0.5);
  }
}

TEST(FakeDeviceRates, LeaveUserDefinedTensorsUnchanged) {
  Sgd rule({group_of(fake::device()), group_of(fake::device())});
  DeviceRates rates;
  const at::Tensor own = at::full({}, 0.125, fake::device());
  rule.set_lr(1, own);
  EXPECT_TRUE(rates_of_step(rule, rates)[0].isTensor());
  EXPECT_TRUE(rates_of_step(rule, rates)[1].toTensor().is_same(own));
  EXPECT_TRUE(rates_of_step(rule)[1].toTensor().is_same(own));
}

TEST(FakeDeviceRates, AreHostNumbersInFloat64) {
  DeviceRates rates;
  Adam of_host({group_of(at::kCPU)});
  EXPECT_TRUE(rates_of_step(of_host, rates)[0].isDouble());
  Adam of_float64({group_of(fake::device()), group_of(fake::device(), at::kDouble)});
  for (const auto& rate : rates_of_step(of_float64, rates)) EXPECT_TRUE(rate.isDouble());
}

// They would round it to the type of what they multiply, and gain nothing.
TEST(FakeDeviceRates, AreNumbersForRulesThatAreNotCaptured) {
  struct NotedLion : Lion {
    using Lion::Lion;
    void update_part(const Part& part) override {
      has_tensor = part.lr.tensor.defined();
      Lion::update_part(part);
    }
    bool has_tensor = true;
  } lion({group_of(fake::device())});
  DeviceRates rates;
  const DeviceRates::Scope scope(rates, lion);
  lion.step();
  EXPECT_FALSE(lion.has_tensor);
}

}  // namespace
}  // namespace kindling
