#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/nn.h>

#include <functional>
#include <memory>
#include <string>

#include "kindling/base/error.h"
#include "kindling/interop/export_program.h"
#include "kindling/interop/exported_module.h"
#include "kindling/nn/module.h"
#include "support/scratch.h"

// Programs that were exported for one batch size.
namespace kindling {
namespace {

constexpr std::int64_t kFixed = 4;

struct Normed : Module {
  Normed() {
    register_module("fc", fc);
    register_module("norm", norm);
  }
  at::Tensor forward(const at::Tensor& x) override { return norm(fc(x)).relu(); }
  torch::nn::Linear fc{3, 5};
  torch::nn::BatchNorm1d norm{5};
};

struct Applied : Module {
  explicit Applied(std::function<at::Tensor(const at::Tensor&)> of_rows) : function(std::move(of_rows)) {}
  at::Tensor forward(const at::Tensor& x) override { return function(x); }
  std::function<at::Tensor(const at::Tensor&)> function;
};

at::Tensor rows(std::int64_t count) { return at::linspace(-2, 3, count * 3).view({count, 3}).sin(); }

ExportedModule exported(Module& model, const Scratch& scratch, bool train = false) {
  export_program(model, Batch{rows(kFixed)},
                 {.path = scratch / "fixed.pt2", .dynamic_batch = false, .train = train});
  return ExportedModule({.file = scratch / "fixed.pt2", .loss = "mse"});
}

TEST(FixedBatch, EvaluatesBatchesOfOtherSizes) {
  const Scratch scratch;
  Normed model;
  model.train();
  for (std::int64_t i = 0; i < 3; ++i) model.forward(rows(20 + i));  // running statistics
  ExportedModule program = exported(model, scratch, /*train=*/true);
  EXPECT_EQ(program.fixed_batch_size(/*train=*/true), kFixed);
  model.eval();
  program.eval();
  const at::NoGradGuard no_grad;
  for (const std::int64_t count : {1, 3, 4, 5, 8, 11}) {
    const at::Tensor found = program.forward(rows(count)), wanted = model.forward(rows(count));
    ASSERT_EQ(found.sizes(), wanted.sizes());
    EXPECT_TRUE(at::allclose(found, wanted, 1e-6, 1e-6)) << count;  // another blocking of the same sums
  }
}

TEST(FixedBatch, TrainsWithItsOwnSizeOnly) {
  const Scratch scratch;
  Normed model;
  ExportedModule program = exported(model, scratch, /*train=*/true);
  program.train();
  program.training_step({rows(kFixed), at::ones({kFixed, 5})}).backward();
  EXPECT_TRUE(program.parameters()[0].grad().defined());
  EXPECT_NE(
      error_text<DataError>([&] {
        program.training_step({rows(3), at::ones({3, 5})});
      })
          .find("it is Float [3, 3]; expected: Float [4, 3], as it was exported; set batch_size = 4 and "
                "drop_last = true, or export the model with a dynamic batch size"),
      std::string::npos);
}

TEST(FixedBatch, RefusesOutputsThatAreNotOneRowPerSample) {
  const auto refusal = [](std::function<at::Tensor(const at::Tensor&)> function, std::int64_t count) {
    const Scratch scratch;
    Applied model(std::move(function));
    ExportedModule program = exported(model, scratch);
    program.eval();
    program.forward(rows(kFixed));
    return error_text<DataError>([&] { program.forward(rows(count)); });
  };
  constexpr const char* kDepends = "a row of its output 1 depends on the other rows";
  for (const std::int64_t count : {1, 3, 9}) {
    EXPECT_NE(refusal([](const at::Tensor& x) { return x - x.mean(0, true); }, count).find(kDepends),
              std::string::npos);
    EXPECT_NE(refusal([](const at::Tensor& x) { return x / x.abs().amax(); }, count).find(kDepends),
              std::string::npos);
    EXPECT_NE(refusal([](const at::Tensor& x) { return x.cumsum(0).flip(0); }, count).find(kDepends),
              std::string::npos);
  }
  const std::string sum = refusal([](const at::Tensor& x) { return x.sum(); }, 3);
  EXPECT_NE(
      sum.find("the batch has 3 samples, and its output 1 has no row per sample; expected: batches of 4 "
               "samples; set batch_size = 4"),
      std::string::npos)
      << sum;
}

TEST(FixedBatch, StaysFixedInExports) {
  const Scratch scratch;
  Normed model;
  ExportedModule program = exported(model, scratch);
  for (const std::int64_t count : {2, 6}) {
    export_program(program, Batch{rows(count)}, {.path = scratch / "again.pt2"});
    ExportedModule again({.file = scratch / "again.pt2"});
    EXPECT_EQ(again.fixed_batch_size(/*train=*/false), kFixed);
    again.eval();
    program.eval();
    EXPECT_TRUE(at::equal(again.forward(rows(count)), program.forward(rows(count))));
  }
}

// Exports of a run try sizes, and those must be in the range that the program has from Python.
TEST(BatchSizes, StayInExports) {
  const Scratch scratch;
  Normed model;
  const auto path = scratch / "some.pt2";
  export_program(model, Batch{rows(8)},
                 {.path = path,
                  .dynamic_batch = false,
                  .dynamic_sizes = {{.name = "rows", .places = {{0, 0}}, .min = 6, .max = 12}}});
  ExportedModule program({.file = path, .loss = "mse"});
  EXPECT_FALSE(program.fixed_batch_size(/*train=*/false));
  for (const std::int64_t count : {2, 7, 30}) {
    export_program(program, Batch{rows(count)}, {.path = scratch / "again.pt2"});
    ExportedModule again({.file = scratch / "again.pt2"});
    EXPECT_EQ(again.batch_sizes(/*train=*/false)->min, 6);
    EXPECT_EQ(again.batch_sizes(/*train=*/false)->max, 12);
    again.eval();
    program.eval();
    for (const std::int64_t size : {6, 12})
      EXPECT_TRUE(at::equal(again.forward(rows(size)), program.forward(rows(size))));
    EXPECT_NE(error_text<DataError>([&] { again.forward(rows(13)); }).find("sizes from 6 to 12"),
              std::string::npos);
  }
}

TEST(BatchSizes, MayBeMultiples) {
  const Scratch scratch;
  Applied model([](const at::Tensor& x) { return x.view({2, -1, 3}).sum(0).repeat({2, 1}); });
  export_program(model, Batch{rows(8)},
                 {.path = scratch / "even.pt2",
                  .dynamic_batch = false,
                  .dynamic_sizes = {{.name = "rows", .places = {{0, 0}}, .multiple_of = 2}}});
  ExportedModule program({.file = scratch / "even.pt2", .loss = "mse"});
  export_program(program, Batch{rows(5)}, {.path = scratch / "again.pt2"});
  EXPECT_EQ(ExportedModule({.file = scratch / "again.pt2"}).batch_sizes(/*train=*/false)->multiple_of, 2);
}

}  // namespace
}  // namespace kindling
