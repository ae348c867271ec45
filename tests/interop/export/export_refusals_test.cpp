#include <ATen/Functions.h>
#include <ATen/ScalarOps.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include <cmath>
#include <functional>

#include "formats/pt2/pt2_file.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/interop/export_program.h"
#include "kindling/interop/exported_module.h"
#include "kindling/nn/activation_checkpoint.h"
#include "kindling/nn/lazy_linear.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

// A linear layer, followed by the function of a test.
struct Written : Module {
  using Function = std::function<at::Tensor(const at::Tensor&)>;
  explicit Written(Function the_rest) : rest(std::move(the_rest)) { register_module("l", l); }
  at::Tensor forward(const at::Tensor& x) override { return rest(l(x)); }
  torch::nn::Linear l{4, 4};
  Function rest;
};

// Returns the error; empty if the export succeeded.
std::string exported(Written::Function rest, ExportOptions options = {}) {
  const Scratch scratch;
  Written model(std::move(rest));
  options.path = scratch / "model.pt2";
  const Batch example{at::randn({6, 4})};
  const std::string text = error_text<Error>([&] { export_program(model, example, options); });
  EXPECT_EQ(std::filesystem::exists(options.path), text == "(no error)") << text;
  return text == "(no error)" ? "" : text;
}

testing::AssertionResult says(const std::string& text, const std::string& wanted) {
  if (text.find(wanted) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "'" << text << "' lacks '" << wanted << "'";
}

TEST(ExportRefusal, NamesShapesThatDependOnValues) {
  const std::string shape = "the shape of its result depends on the values of the batch";
  EXPECT_TRUE(says(exported([](const at::Tensor& y) { return y.nonzero(); }), "operator aten::nonzero in"));
  EXPECT_TRUE(says(exported([](const at::Tensor& y) { return y.masked_select(y > 0); }), shape));
  EXPECT_TRUE(
      says(exported([](const at::Tensor& y) { return y.index({y > 0}); }), "operator aten::index.Tensor"));
  EXPECT_TRUE(says(exported([](const at::Tensor& y) { return at::where(y > 0)[0]; }), shape));
  EXPECT_TRUE(says(exported([](const at::Tensor& y) { return at::one_hot(y.argmax(1)); }), shape));
  EXPECT_EQ(exported([](const at::Tensor& y) { return at::one_hot(y.argmax(1), 4); }), "");
  EXPECT_EQ(exported([](const at::Tensor& y) { return at::where(y > 0, y, y.exp()); }), "");
  // Indices that are numbers: the result has their shape.
  EXPECT_EQ(exported([](const at::Tensor& y) { return y.index({at::Tensor(), at::tensor({2, 0, 0})}); }), "");
  EXPECT_EQ(exported([](const at::Tensor& y) { return y.index({y.argmax(1).remainder(2)}); }), "");
}

TEST(ExportRefusal, NamesBranchesOnValues) {
  EXPECT_TRUE(says(exported([](const at::Tensor& y) { return (y.sum() > 0).item<bool>() ? y : -y; }),
                   "operator aten::item in or after layer l: the host reads a value"));
  EXPECT_TRUE(says(exported([](const at::Tensor& y) { return y.equal(y.relu()) ? y : -y; }), "aten::equal"));
  // Whether two tensors are the same object is known without their values.
  EXPECT_EQ(exported([](const at::Tensor& y) { return y.equal(y) ? y * 2 : -y; }), "");
  // Not seen by the dispatcher, but samples differ from recording to recording.
  EXPECT_TRUE(says(
      exported([](const at::Tensor& y) { return y * static_cast<double>(y.const_data_ptr<float>()[0]); }),
      "its argument other depends on the batch"));
  EXPECT_TRUE(says(exported([](const at::Tensor& y) {
                     return y + at::tensor(y.const_data_ptr<float>()[0]).expand({4}).clone();
                   }),
                   "a tensor that the host has filled"));
}

// 3 samples have not been recorded: the check meets the other branch.
TEST(ExportRefusal, FindsABranchOnTheBatchSize) {
  const std::string text = exported([](const at::Tensor& y) { return y.size(0) < 4 ? y * 2 : y * 3; });
  EXPECT_TRUE(says(text, "the program and the model differ with a batch of 3: output 0 differs by")) << text;
  EXPECT_TRUE(
      says(exported([](const at::Tensor& y) { return y.size(0) > 6 ? y.exp() : y.sin(); }),
           "operator aten::sin in or after layer l: whether it is called depends on the batch (its size "
           "or its values): another batch calls aten::exp"));
}

TEST(ExportRefusal, AllowsSizesOfTheBatch) {
  EXPECT_EQ(exported([](const at::Tensor& y) { return y.reshape({2 * y.size(0), 2}).cumsum(0); }), "");
  EXPECT_EQ(exported([](const at::Tensor& y) { return y.new_zeros({y.size(0) * 3 + 2}); }), "");
  EXPECT_EQ(exported([](const at::Tensor& y) { return y * y.size(0); }), "");
  EXPECT_EQ(exported([](const at::Tensor& y) { return at::arange(y.size(0)).unsqueeze(1) + y; }), "");
  EXPECT_EQ(exported([](const at::Tensor& y) { return at::matmul(y, y.t()).softmax(1); }), "");
  EXPECT_EQ(exported([](const at::Tensor& y) { return at::matmul(y, y.t()).reshape({-1}); }), "");
  // For all odd sizes it is one less.
  EXPECT_TRUE(says(exported([](const at::Tensor& y) { return y.narrow(0, 0, y.size(0) / 2 * 2); }),
                   "its argument length is 4 with a batch of 5; 6 with a batch of 7; 12 with a batch of 12"));
}

// They stay numbers in the program: 0.5 converts integers to float32, a float64 tensor would convert them to
// float64.
TEST(ExportRefusal, AllowsHostNumbers) {
  EXPECT_EQ(exported([](const at::Tensor& y) { return y.argmax(1) * 0.5; }), "");
  EXPECT_EQ(exported([](const at::Tensor& y) { return y.argmax(1) * 2 + 1; }), "");
  // As LibTorch's C++ functions create them.
  const at::Tensor half = at::native::wrapped_scalar_tensor(0.5);
  EXPECT_EQ(exported([&](const at::Tensor& y) { return y.argmax(1) * half; }), "");
  EXPECT_EQ(exported([](const at::Tensor& y) { return y.clamp(-INFINITY, 0.1); }), "");
  const at::Tensor weight = at::randn({3, 4}), one = at::randn({1});
  EXPECT_EQ(exported([&](const at::Tensor& y) { return at::matmul(y, weight.t()).add_(one); }), "");
}

TEST(ExportRefusal, AllowsFixedBatchSizes) {
  const auto halved = [](const at::Tensor& y) { return y.narrow(0, 0, y.size(0) / 2); };
  EXPECT_TRUE(says(exported(halved), "its argument length is 2 with a batch of 5; 3 with a batch of 7"));
  EXPECT_EQ(exported(halved, {.dynamic_batch = false}), "");
  EXPECT_TRUE(says(exported([](const at::Tensor& y) { return y * y.const_data_ptr<float>()[0]; },
                            {.dynamic_batch = false}),
                   "depends on the values of the batch"));
}

// Twice the gradient that its operator has.
struct DoubledGradient : torch::autograd::Function<DoubledGradient> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) { return x.exp(); }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 const torch::autograd::variable_list& gradients) {
    return {gradients[0] * 2};
  }
};

TEST(ExportRefusal, ComparesGradientsInTrainingMode) {
  const auto own_backward = [](const at::Tensor& y) { return DoubledGradient::apply(y); };
  EXPECT_EQ(exported(own_backward), "");
  EXPECT_TRUE(says(exported(own_backward, {.train = true}), "parameter gradient 0 is missing"));
  const auto detached = [](const at::Tensor& y) {
    at::NoGradGuard no_grad;
    const at::Tensor scale = y.mean();
    at::AutoGradMode gradients(true);
    return y * scale;
  };
  EXPECT_EQ(exported(detached, {.train = true}), "");
  struct Checkpointed : Module {
    Checkpointed() { register_module("hidden", hidden); }
    at::Tensor forward(const at::Tensor& x) override { return hidden(x).tanh(); }
    ActivationCheckpoint<torch::nn::Linear> hidden{4, 4};
  };
  const Scratch scratch;
  Checkpointed model;
  export_program(model, {at::randn({4, 4})}, {.path = scratch / "model.pt2", .train = true});
  EXPECT_TRUE(std::filesystem::exists(scratch / "model.pt2"));
}

TEST(ExportRefusal, NamesTensorsOutsideTheModel) {
  at::Tensor counter = at::zeros({4}), learning = at::ones({4}).requires_grad_();
  EXPECT_TRUE(says(exported([&](const at::Tensor& y) { return y + counter.add_(1); }),
                   "operator aten::add_.Scalar in or after layer l: it modifies a tensor that is neither an "
                   "input nor part of the model"));
  EXPECT_TRUE(says(exported([&](const at::Tensor& y) { return y * learning; }, {.train = true}),
                   "it takes a tensor that requires gradients and is not a parameter of the model"));
  const at::Tensor constant = at::randn({4});
  EXPECT_EQ(exported([&](const at::Tensor& y) { return y * constant; }), "");
}

TORCH_LIBRARY(kindling_export_test, library) {
  library.def("twice(Tensor x) -> Tensor", [](const at::Tensor& x) { return x * 2; });
}

TEST(ExportRefusal, NamesCustomOperators) {
  const auto twice = c10::Dispatcher::singleton()
                         .findSchemaOrThrow("kindling_export_test::twice", "")
                         .typed<at::Tensor(const at::Tensor&)>();
  EXPECT_TRUE(says(
      exported([&](const at::Tensor& y) { return twice.call(y); }),
      "operator kindling_export_test::twice in or after layer l: it is not a built-in PyTorch operator"));
}

TEST(ExportRefusal, RefusesNestedExports) {
  const Scratch scratch;
  Written inner([](const at::Tensor& y) { return y; });
  const std::string text = exported([&](const at::Tensor& y) {
    export_program(inner, {at::randn({4, 4})}, {.path = scratch / "inner.pt2"});
    return y;
  });
  EXPECT_TRUE(says(text, "it was called during another export")) << text;
}

TEST(ExportRefusal, RefusesLazyLayersAndOtherExtensions) {
  struct Lazy : Module {
    Lazy() { register_module("lazy", lazy); }
    at::Tensor forward(const at::Tensor& x) override { return lazy(x); }
    LazyLinear lazy{3};
  };
  const Scratch scratch;
  Lazy model;
  Batch example{at::randn({4, 4})};
  const auto export_to = [&](const char* name) {
    return error_text<Error>([&] { export_program(model, example, {.path = scratch / name}); });
  };
  EXPECT_TRUE(says(export_to("model.pt2"), "the lazy layer lazy has no parameters yet"));
  EXPECT_TRUE(says(export_to("model.bin"), "model.bin: unsupported extension"));
  model.apply_init(example);
  EXPECT_EQ(export_to("model.pt2"), "(no error)");
  example = Batch{at::empty({4, 4}, at::kMeta)};
  EXPECT_TRUE(
      says(export_to("model.pt2"), "the example is on meta; expected: a model and an example in host"));
}

TEST(ExportProgram, KeepsNamesAndTiedWeights) {
  struct Tied : Module {
    Tied() {
      register_module("in", in);
      register_module("norm", norm);
      register_parameter("out", in->weight);
    }
    at::Tensor forward(const at::Tensor& x) override { return at::matmul(norm(in(x)), in->weight); }
    torch::nn::Linear in{4, 6};
    torch::nn::BatchNorm1d norm{6};
  };
  const Scratch scratch;
  const auto model = std::make_shared<Tied>();
  const Batch example{at::randn({4, 4})};
  export_program(*model, example, {.path = scratch / "model.pt2"});
  const Pt2File file(scratch / "model.pt2");
  std::map<std::string, std::size_t> storages;
  for (const ProgramWeight& weight : file.weights()) storages[weight.name] = weight.storage;
  EXPECT_EQ(storages.at("in.weight"), storages.at("out"));
  EXPECT_NE(storages.at("in.weight"), storages.at("in.bias"));
  EXPECT_EQ(storages.size(), state_dict(*model).tensors.size());
  EXPECT_EQ(file.program().nodes[0].target, "torch.ops.aten.linear.default");
  // The same model gives the same file.
  export_program(*model, example, {.path = scratch / "again.pt2"});
  EXPECT_EQ(read_file(scratch / "model.pt2", 1'000'000), read_file(scratch / "again.pt2", 1'000'000));
  ExportedModule read({.file = scratch / "model.pt2"});
  read.eval();
  model->eval();
  const at::Tensor x = at::randn({13, 4});
  EXPECT_TRUE(same(read.forward(x), model->forward(x)));
}

}  // namespace
}  // namespace kindling
