#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "kindling_c.h"

// Calls of the C interface in tests.
namespace kindling::test {

// An array that owns its numbers, row-major.
template <class Number>
class OwnArray {
 public:
  OwnArray(int32_t dtype, std::vector<std::int64_t> shape) : dtype_(dtype), shape_(std::move(shape)) {
    std::int64_t numel = 1;
    for (const std::int64_t size : shape_) numel *= size;
    numbers.resize(static_cast<std::size_t>(numel));
  }
  kindling_array view() {
    return {.data = numbers.data(),
            .shape = shape_.data(),
            .strides = nullptr,
            .rank = static_cast<int32_t>(shape_.size()),
            .dtype = dtype_,
            .device = KINDLING_CPU,
            .device_index = 0};
  }
  std::vector<Number> numbers;

 private:
  int32_t dtype_;
  std::vector<std::int64_t> shape_;
};

inline void expect_ok(kindling_status status) { EXPECT_EQ(status, KINDLING_OK) << kindling_error(); }

inline const std::vector<std::string>& regressor_settings() {
  static const std::vector<std::string> settings{"model.name=\"mlp_regressor\"",
                                                 "model.hidden=[16]",
                                                 "optimizer.name=\"adam\"",
                                                 "optimizer.lr=0.01",
                                                 "seed=3",
                                                 "trainer.num_threads=1"};
  return settings;
}

inline kindling_trainer make_trainer(std::vector<std::string> settings = regressor_settings(),
                                     kindling_group group = nullptr) {
  std::vector<const char*> texts;
  for (const std::string& setting : settings) texts.push_back(setting.c_str());
  kindling_trainer trainer = nullptr;
  expect_ok(kindling_trainer_create(texts.data(), texts.size(), group, &trainer));
  return trainer;
}

// 32 samples of 3 numbers and of one that depends on them.
template <class Number>
struct Samples {
  static constexpr std::int64_t kNumber = 32;
  explicit Samples(int32_t dtype) : x(dtype, {kNumber, 3}), y(dtype, {kNumber, 1}) { fill(0); }
  // The numbers of step `step`.
  void fill(int step) {
    for (std::size_t i = 0; i < x.numbers.size(); ++i)
      x.numbers[i] = static_cast<Number>(std::sin(static_cast<double>(i) + 0.1 * step));
    for (std::size_t i = 0; i < y.numbers.size(); ++i)
      y.numbers[i] = x.numbers[3 * i] + x.numbers[3 * i + 1] * x.numbers[3 * i + 2];
  }
  kindling_status train(kindling_trainer trainer) {
    const kindling_array inputs = x.view(), targets = y.view();
    return kindling_train_step(trainer, &inputs, 1, &targets, 1);
  }
  OwnArray<Number> x, y;
};

inline double loss_of(kindling_trainer trainer) {
  double loss = NAN;
  expect_ok(kindling_loss_value(trainer, &loss));
  return loss;
}

}  // namespace kindling::test
