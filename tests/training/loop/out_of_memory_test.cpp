// Running out of memory is an error with the batch size and the bytes.
#include <ATen/ops/empty.h>

#include "kindling/base/error.h"
#include "support/device_under_test.h"
#include "support/memory_limit.h"
#include "support/scratch.h"
#include "training/loop/small_fit.h"

namespace kindling {
namespace {

class Hungry : public Slope {
 public:
  explicit Hungry(std::int64_t size) : size_(size) {}
  at::Tensor forward(const at::Tensor& x) override {
    if (throws_bad_alloc) throw std::bad_alloc();
    if (size_ > 0) (void)at::empty({size_}, at::kFloat);
    return Slope::forward(x);
  }
  bool throws_bad_alloc = false;

 private:
  std::int64_t size_;
};

class OutOfMemory : public OnDevice {};
KINDLING_RUN_ON_TRAINER_DEVICES(OutOfMemory);

// 2^47 bytes are more than a process can address.
TEST_P(OutOfMemory, ReportsBytesAndBatchSize) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer ends the process instead";
#endif
  TensorData data = ramp(9, 4, 3);
  Trainer trainer({.max_epochs = 1, .num_gpus = num_gpus_wanted(), .num_sanity_val_steps = 0});
  const auto hungry = std::make_shared<Hungry>(std::int64_t{1} << 45);
  const std::string rest =
      ": host memory is exhausted: 140737488355328 bytes were requested, with a batch of 3 samples; "
      "use a smaller batch_size or a smaller model, or check what else uses memory";
  EXPECT_EQ(error_text<Error>([&] { trainer.fit(hungry, data); }), "training step 1" + rest);
  EXPECT_EQ(error_text<Error>([&] { trainer.validate(hungry, data); }), "evaluation batch 1" + rest);
  try {
    trainer.fit(hungry, data);
  } catch (const Error& error) {
    EXPECT_THROW(std::rethrow_if_nested(error), c10::Error);  // LibTorch's own is inside
  }
}

TEST_P(OutOfMemory, ReportsBadAllocAlike) {
  TensorData data = ramp(9, 4, 3);
  Trainer trainer({.max_epochs = 1, .num_gpus = num_gpus_wanted(), .num_sanity_val_steps = 0});
  const auto hungry = std::make_shared<Hungry>(0);
  hungry->throws_bad_alloc = true;
  EXPECT_NE(error_text<Error>([&] {
              trainer.fit(hungry, data);
            }).find("training step 1: host memory is exhausted, with a batch of 3 samples"),
            std::string::npos);
}

// oneDNN has an error of its own, without bytes.
TEST_P(OutOfMemory, ReportsOneDnnErrorsAlike) {
  class OneDnn : public Slope {
   public:
    explicit OneDnn(const char* says) : says_(says) {}
    at::Tensor forward(const at::Tensor&) override { throw std::runtime_error(says_); }

   private:
    const char* says_;
  };
  TensorData data = ramp(9, 4, 3);
  Trainer trainer({.max_epochs = 1, .num_gpus = num_gpus_wanted(), .num_sanity_val_steps = 0});
  const auto text_of = [&](const char* says) {
    return error_text<std::exception>([&] { trainer.fit(std::make_shared<OneDnn>(says), data); });
  };
  for (const char* says :
       {"could not create a primitive", "could not create a memory object", "could not execute a primitive"})
    EXPECT_EQ(text_of(says), std::string("training step 1: host memory is exhausted: oneDNN ") + says +
                                 ", with a batch of 3 samples; use a smaller batch_size or a smaller model, "
                                 "or check what else uses memory");
  EXPECT_EQ(text_of("could not create a primitive descriptor"), "could not create a primitive descriptor");
  const auto own = std::make_shared<OneDnn>("could not create a primitive");
  EXPECT_NE(error_text<Error>([&] { trainer.validate(own, data); }).find("evaluation batch 1: host memory"),
            std::string::npos);
}

TEST(OutOfMemoryTexts, OfAGpuAreParsed) {
  class OnCard : public Slope {
   public:
    at::Tensor forward(const at::Tensor&) override {
      TORCH_CHECK_WITH(OutOfMemoryError, false,
                       "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 79.10 "
                       "GiB of which 1.00 MiB is free.");
    }
  };
  TensorData data = ramp(9, 0, 3);
  EXPECT_NE(error_text<Error>([&] { Trainer({.max_epochs = 1}).fit(std::make_shared<OnCard>(), data); })
                .find("training step 1: GPU memory is exhausted: 20.00 MiB were requested, with a "
                      "batch of 3 samples"),
            std::string::npos);
}

// In a process of its own, whose address space leaves 64 MB.
TEST(OutOfMemoryLimit, OfTheSystemIsReportedAlike) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer needs its own address space";
#endif
  const std::string text = text_of_limited_child(64U << 20U, [] {
    TensorData data = ramp(9, 0, 3);
    return error_text<Error>(
        [&] { Trainer({.max_epochs = 1}).fit(std::make_shared<Hungry>(std::int64_t{1} << 26), data); });
  });
  EXPECT_NE(
      text.find(
          "training step 1: host memory is exhausted: 268435456 bytes were requested, with a batch of 3"),
      std::string::npos)
      << text;
}

}  // namespace
}  // namespace kindling
