#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/nn.h>

#include <string>
#include <utility>
#include <vector>

#include "kindling/base/file.h"
#include "kindling/interop/export_program.h"
#include "kindling/interop/exported_module.h"
#include "kindling/tensors/batch.h"
#include "support/scratch.h"

// Programs with several outputs.
namespace kindling {
namespace {

// Returns a map with a nested list, a tensor that is returned twice, and an integer.
struct Nested : torch::nn::Module {
  Nested() { register_module("fc", fc); }
  Batch run(const Batch& batch) {
    const at::Tensor logits = fc(batch[0]), hidden = logits.tanh();
    const Batch past = Batch::list({Batch({hidden, hidden + 1}), Batch::leaf(hidden * 2)});
    return Batch::map({{"logits", Batch::leaf(logits)},
                       {"past", past},
                       {"again", Batch::leaf(hidden)},
                       {"best", Batch::leaf(logits.argmax(1))}});
  }
  torch::nn::Linear fc{3, 5};
};

at::Tensor samples_of(std::int64_t count) { return at::linspace(-2, 3, count * 3).view({count, 3}).sin(); }

void expect_same(const Batch& found, const Batch& wanted) {
  ASSERT_EQ(found.tensors().size(), wanted.tensors().size());
  for (std::size_t i = 0; i < found.tensors().size(); ++i)
    EXPECT_TRUE(at::equal(found.tensors()[i], wanted.tensors()[i])) << i;
}

TEST(ProgramOutputs, KeepTheirNestingAndAreExportedAgain) {
  const Scratch scratch;
  Nested model;
  const auto forward = [&](const Batch& batch) { return model.run(batch); };
  export_program(model, forward, Batch{samples_of(4)}, {.path = scratch / "nested.pt2"});
  ExportedModule first({.file = scratch / "nested.pt2"});
  export_program(first, Batch{samples_of(4)}, {.path = scratch / "again.pt2"});
  export_program(first, Batch{samples_of(4)}, {.path = scratch / "again.onnx"});
  ExportedModule again({.file = scratch / "again.pt2"});
  const at::NoGradGuard no_grad;
  for (ExportedModule* const program : {&first, &again}) {
    program->eval();
    const Batch outputs = program->predict_outputs(Batch{samples_of(6)});
    EXPECT_EQ(outputs.structure()->names, (std::vector<std::string>{"logits", "past", "again", "best"}));
    expect_same(outputs, model.run(Batch{samples_of(6)}));
    EXPECT_TRUE(at::equal(outputs.part("past").part(1).tensors()[0], outputs["again"] * 2));
  }
  const std::string onnx = read_file(scratch / "again.onnx", 1'000'000);
  for (const char* name : {"logits", "past.0.0", "past.0.1", "past.1", "again", "best"})
    EXPECT_NE(onnx.find(name), std::string::npos) << name;
}

TEST(ProgramOutputs, WithoutTheLossAreExportedForEvaluation) {
  const Scratch scratch;
  Nested model;
  const auto forward = [&](const Batch& batch) {
    const at::Tensor logits = model.fc(batch[0]);
    return Batch({at::mse_loss(logits, batch[1]), logits, logits.tanh()});
  };
  const Batch batch{samples_of(4), at::ones({4, 5})};
  export_program(model, forward, batch, {.path = scratch / "train.pt2", .train = true});
  ExportedModule program({.file = scratch / "train.pt2", .loss = "output"});
  export_program(program, batch, {.path = scratch / "eval.pt2"});
  export_program(program, batch, {.path = scratch / "again.pt2", .train = true});
  const at::NoGradGuard no_grad;
  ExportedModule predicts({.file = scratch / "eval.pt2"}), trains({.file = scratch / "again.pt2"});
  const at::Tensor logits = model.fc(samples_of(4));
  expect_same(Batch(predicts.run(std::vector{samples_of(4)})), Batch({logits, logits.tanh()}));
  const std::vector<at::Tensor> inputs{samples_of(4), at::ones({4, 5})};
  expect_same(Batch(trains.run(inputs)), forward(batch));
}

}  // namespace
}  // namespace kindling
