// The rates of a schedule on a device, as a rule meets them.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <vector>

#include "fake_accelerator.h"
#include "training/device_rates.h"

namespace kindling {
namespace {

// Notes the rate of each update, one per group.
class RateNoting : public Optimizer {
 public:
  RateNoting(ParameterGroups groups, bool takes_tensors)
      : Optimizer(std::move(groups), 0.1), takes_tensors_(takes_tensors) {}
  bool takes_tensors() const override { return takes_tensors_; }

  struct Rate {
    double number;
    at::Tensor tensor;
  };
  // By a step within a scope.
  std::vector<Rate> rates_with(DeviceRates& rates) {
    const DeviceRates::Scope scope(rates, *this);
    return rates_of_step();
  }
  std::vector<Rate> rates_of_step() {
    noted_.clear();
    step();
    return noted_;
  }

 private:
  void update(const Update& update) override { noted_.push_back({update.lr.number, update.lr.tensor}); }

  bool takes_tensors_;
  std::vector<Rate> noted_;
};

ParameterGroup group_of(at::Device device, at::ScalarType type = at::kFloat) {
  at::Tensor parameter = at::ones({3}, at::dtype(type).device(device)).set_requires_grad(true);
  parameter.mutable_grad() = at::ones_like(parameter);
  return {.parameters = {parameter}};
}

double value_of(const at::Tensor& rate) { return rate.cpu().item<double>(); }

TEST(FakeDeviceRates, AreThoseOfTheGroupsInEachStep) {
  RateNoting rule({group_of(fake::device()), group_of(fake::device())}, true);
  DeviceRates rates;
  std::vector<const void*> places;
  for (const double rate : {0.1, 0.3, 0.3, 0.7}) {
    rule.set_lr(0, rate);
    rule.set_lr(1, 2 * rate);
    const auto noted = rule.rates_with(rates);
    ASSERT_EQ(noted.size(), 2U);
    for (std::size_t group = 0; group < 2; ++group) {
      const double number = static_cast<double>(group + 1) * rate;
      EXPECT_EQ(noted[group].number, number);
      ASSERT_TRUE(noted[group].tensor.defined());
      EXPECT_EQ(noted[group].tensor.device(), fake::device());
      EXPECT_EQ(value_of(noted[group].tensor), static_cast<double>(static_cast<float>(number)));
      if (places.size() < 2) places.push_back(noted[group].tensor.const_data_ptr());
      EXPECT_EQ(noted[group].tensor.const_data_ptr(), places[group]) << "a graph reads it there";
    }
    EXPECT_EQ(rule.lr(0), rate);
    EXPECT_FALSE(rule.rates_of_step()[0].tensor.defined()) << "behind the scope it is a number again";
  }
}

TEST(FakeDeviceRates, AreOfEachOptimizer) {
  RateNoting one({group_of(fake::device())}, true), other({group_of(fake::device())}, true);
  DeviceRates rates;
  one.set_lr(0.25);
  other.set_lr(0.5);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(value_of(one.rates_with(rates)[0].tensor), 0.25);
    EXPECT_EQ(value_of(other.rates_with(rates)[0].tensor), 0.5);
  }
}

TEST(FakeDeviceRates, LeaveATensorOfTheUsersAlone) {
  RateNoting rule({group_of(fake::device()), group_of(fake::device())}, true);
  DeviceRates rates;
  const at::Tensor own = at::full({}, 0.125, fake::device());
  rule.set_lr(1, own);
  const auto noted = rule.rates_with(rates);
  EXPECT_TRUE(noted[0].tensor.defined());
  EXPECT_TRUE(noted[1].tensor.is_same(own));
  EXPECT_TRUE(rule.rates_of_step()[1].tensor.is_same(own));
}

TEST(FakeDeviceRates, AreNumbersWhereARuleTakesThoseAlone) {
  DeviceRates rates;
  RateNoting rule({group_of(fake::device())}, false);
  EXPECT_FALSE(rule.rates_with(rates)[0].tensor.defined());
}

TEST(FakeDeviceRates, AreNumbersOfTheHostAndOfFloat64) {
  DeviceRates rates;
  RateNoting of_host({group_of(at::kCPU)}, true);
  EXPECT_FALSE(of_host.rates_with(rates)[0].tensor.defined());
  RateNoting of_float64({group_of(fake::device()), group_of(fake::device(), at::kDouble)}, true);
  for (const auto& rate : of_float64.rates_with(rates)) EXPECT_FALSE(rate.tensor.defined());
}

}  // namespace
}  // namespace kindling
