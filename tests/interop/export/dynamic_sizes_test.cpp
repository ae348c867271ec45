#include "interop/export/dynamic_sizes.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/nn.h>

#include <algorithm>
#include <functional>

#include "formats/pt2/pt2_file.h"
#include "interop/run/exported_models.h"
#include "interop/run/in_python.h"
#include "kindling/base/error.h"
#include "kindling/interop/exported_module.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

using Numbers = std::vector<std::int64_t>;
using NumberOf = std::function<std::int64_t(const Numbers&)>;

Numbers numbers_at(const RecordedSizes& sizes, const NumberOf& number) {
  Numbers numbers;
  for (const Numbers& each : sizes.all()) numbers.push_back(number(each));
  return numbers;
}

const std::vector<RecordedSizes::Values> kThreeSizes{
    {5, 7, 12, 10, 11}, {6, 8, 13, 11, 12}, {16, 18, 23, 21, 22}};

TEST(RecordedSizes, FindsPolynomials) {
  const RecordedSizes sizes(kThreeSizes);
  EXPECT_EQ(sizes.all().size(), 21u);  // 17 products of up to three, and four more
  const auto found = sizes.polynomial_through(numbers_at(
      sizes, [](const Numbers& n) { return 3 * n[0] * n[1] * n[2] - 2 * n[1] * n[1] + 7 * n[2] - 4; }));
  ASSERT_TRUE(found);
  const std::map<std::vector<int>, std::int64_t> terms{
      {{1, 1, 1}, 3}, {{0, 2, 0}, -2}, {{0, 0, 1}, 7}, {{0, 0, 0}, -4}};
  EXPECT_EQ(found->terms, terms);
  EXPECT_EQ(found->at({2, 3, 4}), 78);
  EXPECT_FALSE(found->constant());
  const auto seven = sizes.polynomial_through(numbers_at(sizes, [](const Numbers&) { return 7; }));
  EXPECT_EQ(seven->constant(), 7);
  EXPECT_EQ(sizes.polynomial_through(numbers_at(sizes, [](const Numbers&) { return 0; }))->constant(), 0);
}

TEST(RecordedSizes, FindsNoPolynomialForOtherFunctions) {
  const RecordedSizes sizes(kThreeSizes);
  const std::vector<NumberOf> others{
      [](const Numbers& n) { return n[0] / 2; },
      [](const Numbers& n) { return n[1] / 2 * 2; },
      [](const Numbers& n) { return (n[2] + 7) / 8; },
      [](const Numbers& n) { return n[0] * n[1] / 2; },
      [](const Numbers& n) { return std::min(n[0], n[1]); },
      [](const Numbers& n) { return n[0] % 3; },
      [](const Numbers& n) { return n[0] * n[0] * n[0]; },
      [](const Numbers& n) { return n[0] * n[0] * n[1] * n[1]; },
      [](const Numbers& n) { return std::max<std::int64_t>(n[1], 9) + n[2]; },
  };
  for (std::size_t i = 0; i < others.size(); ++i)
    EXPECT_FALSE(sizes.polynomial_through(numbers_at(sizes, others[i]))) << i;
}

// For any choice of values: five are recorded, and the first is the one that the program is checked with.
TEST(RecordedSizes, RejectsRoundedQuotients) {
  for (std::int64_t first = 2; first < 40; ++first) {
    const RecordedSizes sizes({{first + 2, first + 4, first + 9, first + 7, first + 8}});
    for (std::int64_t by = 2; by <= 8; ++by)
      for (std::int64_t more = 0; more < by; ++more)
        for (std::int64_t times = 1; times <= 8; ++times) {
          const auto number = [&](const Numbers& n) { return (n[0] + more) / by * times; };
          const auto found = sizes.polynomial_through(numbers_at(sizes, number));
          EXPECT_TRUE(!found || found->at({first}) != number({first}))
              << first << " " << by << " " << more << " " << times;
        }
  }
}

TEST(SizePolynomial, IsWrittenAsSympyReadsIt) {
  const SizePolynomial polynomial{{{{0, 0}, -4}, {{1, 1}, 3}, {{0, 2}, 1}}};
  EXPECT_EQ(expression_of(polynomial),
            "Add(Integer(-4), Pow(Symbol('s1', positive=True, integer=True), Integer(2)), Mul(Integer(3), "
            "Symbol('s0', positive=True, integer=True), Symbol('s1', positive=True, integer=True)))");
  EXPECT_EQ(expression_of({{{{1}, 1}}}), "Symbol('s0', positive=True, integer=True)");
}

Batch tokens_of(std::int64_t batch, std::int64_t length) { return {at::randint(50, {batch, length})}; }

// Explicit attention, with squares of the length and a mask computed from it.
struct WrittenAttention : Module {
  WrittenAttention() {
    register_module("words", words);
    register_module("places", places);
    register_module("qkv", qkv);
    register_module("head", head);
  }
  at::Tensor forward(const at::Tensor& ids) override {
    const auto batch = ids.size(0), length = ids.size(1);
    const at::Tensor x = words(ids) + places(torch::arange(length, ids.options()));
    const auto parts = qkv(x).view({batch, length, 3, 4, 4}).permute({2, 0, 3, 1, 4}).unbind(0);
    at::Tensor scores = torch::matmul(parts[0], parts[1].transpose(2, 3)) * 0.5;
    const at::Tensor later = torch::ones({length, length}, torch::kBool).triu(1);
    scores = torch::softmax(scores.masked_fill(later, -1e9), -1);
    // What a head sees of each place, as one row of all: batch * length * length numbers.
    const at::Tensor seen = scores.mean(1).reshape({batch * length * length}).view({batch, length, length});
    const at::Tensor mixed = torch::matmul(scores, parts[2]).transpose(1, 2).reshape({batch * length, 16});
    return head(mixed).view({batch, length, 50}) + seen.sum(2, true);
  }
  torch::nn::Embedding words{50, 16}, places{16, 16};
  torch::nn::Linear qkv{16, 48}, head{16, 50};
};

// Pieces whose lengths depend on the batch.
struct Halves : Module {
  Halves() { register_module("fc", fc); }
  at::Tensor forward(const at::Tensor& x) override {
    const auto halves = torch::cat({fc(x), x, x + 1, x * 2}).chunk(2, 0);
    const auto thirds = torch::cat({x, fc(x), x}).t().tensor_split(3, -1);
    return halves[0] - halves[1] + torch::cat({thirds[1], thirds[2]}, 1).t();
  }
  torch::nn::Linear fc{8, 8};
};

struct AllOutputs : Module {
  AllOutputs() { register_module("gru", gru); }
  at::Tensor forward(const at::Tensor& series) override {
    const auto [all, last] = gru->forward(series);
    return all + last.sum(0).unsqueeze(1);
  }
  torch::nn::GRU gru{torch::nn::GRUOptions(8, 12).num_layers(2).batch_first(true).bidirectional(false)};
};

struct Translation : Module {
  Translation() {
    register_module("words", words);
    register_module("layer", layer);
    register_module("head", head);
  }
  at::Tensor forward_inputs(const Batch& batch) override {
    const at::Tensor source = words(batch[0]).transpose(0, 1), target = words(batch[1]).transpose(0, 1);
    return head(layer->forward(target, source)).transpose(0, 1);
  }
  torch::nn::Embedding words{50, 16};
  torch::nn::TransformerDecoderLayer layer{
      torch::nn::TransformerDecoderLayerOptions(16, 4).dim_feedforward(32).dropout(0.0)};
  torch::nn::Linear head{16, 50};
};

struct WholeImages : Module {
  WholeImages() { register_module("net", net); }
  at::Tensor forward(const at::Tensor& images) override {
    const at::Tensor features = net->forward(images);
    const at::Tensor rows = features.flatten(2).transpose(1, 2);  // a row per pixel
    return torch::log_softmax(rows, 2).reshape({-1, features.size(1)}).tanh() * features.size(2);
  }
  torch::nn::Sequential net{torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 8, 3).padding(1)),
                            torch::nn::BatchNorm2d(8),
                            torch::nn::ReLU(),
                            torch::nn::Conv2d(torch::nn::Conv2dOptions(8, 8, {3, 2})),
                            torch::nn::AvgPool2d(torch::nn::AvgPool2dOptions(3).stride(1)),
                            torch::nn::Conv2d(torch::nn::Conv2dOptions(8, 5, 1))};
};

struct SmallUNet : Module {
  SmallUNet() {
    register_module("first", first);
    register_module("down", down);
    register_module("up", up);
    register_module("last", last);
  }
  at::Tensor forward(const at::Tensor& images) override {
    const at::Tensor fine = torch::relu(first(images)), half = torch::relu(down(fine));
    const at::Tensor coarse = torch::max_pool2d(half, 2).unsqueeze(3).unsqueeze(5);
    const auto batch = half.size(0), height = half.size(2), width = half.size(3);
    const at::Tensor wide =
        coarse.expand({batch, 6, height / 2, 2, width / 2, 2}).reshape({batch, 6, height, width});
    return last(torch::cat({fine, up(wide + half)}, 1));
  }
  torch::nn::Conv2d first{torch::nn::Conv2dOptions(3, 6, 3).padding(1)};
  torch::nn::Conv2d down{torch::nn::Conv2dOptions(6, 6, 3).padding(1).stride(2)};
  torch::nn::ConvTranspose2d up{torch::nn::ConvTranspose2dOptions(6, 6, 2).stride(2)};
  torch::nn::Conv2d last{torch::nn::Conv2dOptions(12, 2, 1)};
};

// batch × the rest, recorded and not.
template <class Make>
std::vector<Batch> all_cases(const Make& make, const Numbers& sizes) {
  std::vector<Batch> cases;
  for (const std::int64_t batch : {1, 3, 5, 8})
    for (const std::int64_t size : sizes) cases.push_back(make(batch, size));
  return cases;
}

const DynamicSize kSequence{.name = "sequence", .places = {{0, 1}}, .max = 16};

// The program in C++ computes what the model does.
void expect_same_in_cpp(const InPython& python, const std::string& name, Module& model,
                        const std::vector<Batch>& cases) {
  ExportedModule read({.file = python.scratch / (name + ".pt2")});
  read.eval();
  model.eval();
  const at::NoGradGuard no_grad;
  for (const Batch& batch : cases) {
    const at::Tensor wanted = model.forward_inputs(batch), found = read.forward_inputs(batch);
    ASSERT_EQ(found.sizes(), wanted.sizes()) << name;
    // Memory layouts may differ, and then sums are computed in another order.
    EXPECT_TRUE(at::allclose(found, wanted, 1e-6, 1e-6)) << name << " " << batch.tensors()[0].sizes();
  }
}

void add_with_sizes(InPython& python, const std::string& name, const std::shared_ptr<Module>& model,
                    const std::vector<Batch>& cases, const Batch& example,
                    std::vector<DynamicSize> dynamic_sizes) {
  python.add(name, model, example, cases, {.dynamic_sizes = std::move(dynamic_sizes)});
  expect_same_in_cpp(python, name, *model, cases);
}

TEST(DynamicSizes, ProgramsRunWithAllOfThem) {
  if (python_with_torch().empty())
    GTEST_SKIP() << "there is no Python with PyTorch; KINDLING_TORCH_PYTHON can name one";
  torch::manual_seed(4);
  using namespace exported_models;
  InPython python{.with_onnx = true};
  const Numbers lengths{1, 2, 4, 7, 8, 16};
  add_with_sizes(python, "gpt", std::make_shared<Gpt>(), all_cases(tokens_of, lengths), tokens_of(6, 12),
                 {kSequence});
  add_with_sizes(python, "attention", std::make_shared<WrittenAttention>(), all_cases(tokens_of, lengths),
                 tokens_of(6, 12), {kSequence});
  add_with_sizes(python, "lstm", std::make_shared<Lstm>(), all_cases(tokens_of, {1, 4, 6, 40}),
                 tokens_of(6, 12), {{.name = "time", .places = {{0, -1}}}});
  const auto series = [](std::int64_t batch, std::int64_t length) {
    return Batch{at::randn({batch, length, 8})};
  };
  add_with_sizes(python, "gru", std::make_shared<AllOutputs>(), all_cases(series, {1, 4, 6, 40}),
                 series(6, 12), {{.name = "time", .places = {{0, 1}}}});
  const auto rows = [](std::int64_t batch, std::int64_t) { return Batch{at::randn({batch, 8})}; };
  add_with_sizes(python, "halves", std::make_shared<Halves>(), all_cases(rows, {1}), rows(6, 1), {});
  const auto wide = [](std::int64_t batch, std::int64_t length) {
    return Batch{at::randn({batch, length, 32})};
  };
  add_with_sizes(python, "encoder", std::make_shared<Encoder>(), all_cases(wide, lengths), wide(6, 12),
                 {kSequence});
  python.expect_same();
}

TEST(DynamicSizes, SeveralAreIndependent) {
  if (python_with_torch().empty())
    GTEST_SKIP() << "there is no Python with PyTorch; KINDLING_TORCH_PYTHON can name one";
  torch::manual_seed(5);
  InPython python{.with_onnx = true};
  const auto pair_of = [](std::int64_t batch, std::int64_t source, std::int64_t target) {
    return Batch{at::randint(50, {batch, source}), at::randint(50, {batch, target})};
  };
  std::vector<Batch> cases;
  for (const auto& [batch, source, target] :
       {std::tuple{1, 1, 1}, {3, 4, 9}, {5, 6, 16}, {4, 17, 3}, {2, 9, 9}})
    cases.push_back(pair_of(batch, source, target));
  add_with_sizes(python, "translation", std::make_shared<Translation>(), cases, pair_of(6, 8, 10),
                 {{.name = "source", .places = {{0, 1}}}, {.name = "target", .places = {{1, 1}}}});
  const auto images_of = [](std::int64_t batch, std::int64_t height, std::int64_t width) {
    return Batch{at::randn({batch, 3, height, width})};
  };
  cases.clear();
  for (const auto& [batch, height, width] : {std::tuple{1, 6, 6}, {3, 7, 18}, {5, 8, 17}, {2, 31, 9}})
    cases.push_back(images_of(batch, height, width));
  add_with_sizes(
      python, "whole_images", std::make_shared<WholeImages>(), cases, images_of(6, 12, 12),
      {{.name = "height", .places = {{0, 2}}, .min = 6}, {.name = "width", .places = {{0, 3}}, .min = 6}});
  cases.clear();
  for (const auto& [batch, height, width] : {std::tuple{1, 4, 4}, {3, 12, 64}, {5, 24, 8}, {2, 32, 44}})
    cases.push_back(images_of(batch, height, width));
  add_with_sizes(python, "unet", std::make_shared<SmallUNet>(), cases, images_of(6, 16, 16),
                 {{.name = "height", .places = {{0, 2}}, .multiple_of = 4},
                  {.name = "width", .places = {{0, 3}}, .multiple_of = 4}});
  python.expect_same();
}

TEST(DynamicSizes, OneCanHaveSeveralPlaces) {
  if (python_with_torch().empty())
    GTEST_SKIP() << "there is no Python with PyTorch; KINDLING_TORCH_PYTHON can name one";
  torch::manual_seed(6);
  InPython python{.with_onnx = true};
  const auto maps = std::make_shared<exported_models::Dictionaries>();
  const auto run = [&](const Batch& batch) { return maps->run(batch); };
  const auto ids_and_mask_of = [](std::int64_t batch, std::int64_t length) {
    return Batch::map({{"ids", Batch::leaf(at::randint(50, {batch, length}))},
                       {"mask", Batch::leaf(at::randint(2, {batch, length}).to(at::kBool))}});
  };
  python.add("dictionaries", *maps, run, ids_and_mask_of(6, 9), all_cases(ids_and_mask_of, {1, 4, 6, 20}),
             {.dynamic_sizes = {{.name = "sequence", .places = {{0, 1}, {1, 1}}}}});
  python.expect_same();
  // Where the batch has its size alone, as many samples as the example has.
  export_program(*maps, run, ids_and_mask_of(6, 9),
                 {.path = python.scratch / "one.pt2",
                  .dynamic_batch = false,
                  .dynamic_sizes = {{.name = "sequence", .places = {{0, 1}, {1, 1}}}}});
  ExportedModule one({.file = python.scratch / "one.pt2"});
  one.eval();
  maps->eval();
  // ONNX has the names; a .pt2 has symbols alone.
  const std::string onnx = read_file(python.scratch / "dictionaries.onnx", 1 << 20);
  EXPECT_NE(onnx.find("sequence"), std::string::npos);
  EXPECT_NE(onnx.find("batch"), std::string::npos);
  const at::NoGradGuard no_grad;
  const Batch longer = ids_and_mask_of(6, 31);
  EXPECT_TRUE(same(one.forward_inputs(longer), run(longer).tensors()[0]));
  // Other batches are evaluated in parts of 6 samples, and refused in training.
  const Batch more = ids_and_mask_of(7, 9);
  EXPECT_TRUE(at::allclose(one.forward_inputs(more), run(more).tensors()[0], 1e-5, 1e-5));  // other blocking
  one.train();
  EXPECT_THROW(one.forward_inputs(more), DataError);
}

TEST(DynamicSizes, ProgramsInTrainingModeHaveTheModelsGradients) {
  torch::manual_seed(7);
  const Scratch scratch;
  const auto model = std::make_shared<exported_models::Gpt>();
  model->drop->options.p(0);
  export_program(*model, tokens_of(6, 12),
                 {.path = scratch / "gpt.pt2", .train = true, .dynamic_sizes = {kSequence}});
  ExportedModule read({.file = scratch / "gpt.pt2"});
  model->train();
  read.train();
  for (const std::int64_t length : {2, 9, 16}) {
    const Batch batch{at::randint(50, {4, length}), at::randint(50, {4, length})};
    std::map<std::string, at::Tensor> gradients;
    for (Module* each : {static_cast<Module*>(model.get()), static_cast<Module*>(&read)}) {
      each->zero_grad();
      each->training_step(batch).backward();
      for (const auto& parameter : each->named_parameters()) {
        const at::Tensor gradient = parameter.value().grad().clone();
        const auto [known, is_new] = gradients.emplace(parameter.key(), gradient);
        // For numbers below one: sums are computed in another order.
        EXPECT_TRUE(is_new || at::allclose(known->second, gradient, 0, 1e-6)) << parameter.key() << length;
      }
    }
  }
}

// A layer, followed by the function of a test on [batch, sequence, 4].
struct BehindLayer : Module {
  using Function = std::function<at::Tensor(const at::Tensor&)>;
  explicit BehindLayer(Function the_rest) : rest(std::move(the_rest)) { register_module("l", l); }
  at::Tensor forward(const at::Tensor& x) override { return rest(l(x)); }
  torch::nn::Linear l{4, 4};
  Function rest;
};

// Returns the error; empty if the export succeeded.
std::string exported_with(BehindLayer::Function rest, DynamicSize size = kSequence) {
  const Scratch scratch;
  BehindLayer model(std::move(rest));
  const std::filesystem::path path = scratch / "model.pt2";
  const std::string text = error_text<Error>([&] {
    export_program(model, {at::randn({6, 8, 4})}, {.path = path, .dynamic_sizes = {std::move(size)}});
  });
  EXPECT_EQ(std::filesystem::exists(path), text == "(no error)") << text;
  return text == "(no error)" ? "" : text;
}

void expect_in(const std::string& text, const std::string& wanted) {
  EXPECT_NE(text.find(wanted), std::string::npos) << "'" << text << "' lacks '" << wanted << "'";
}

TEST(DynamicSizes, RefuseUnsupportedDependencies) {
  const auto cut_at = [](std::int64_t length) {
    return [=](const at::Tensor& y) { return y.narrow(1, 0, std::min(y.size(1), length)); };
  };
  // 4 is not recorded, and 16 is the bound.
  expect_in(exported_with([](const at::Tensor& y) { return y.size(1) < 5 ? y * 2 : y * 3; }),
            "the program and the model differ with a batch of 3, sequence of 4: output 0 differs by");
  expect_in(exported_with([](const at::Tensor& y) { return y.size(1) > 15 ? y * 2 : y * 3; }),
            "the program and the model differ with a batch of 3, sequence of 16: output 0 differs by");
  expect_in(exported_with([](const at::Tensor& y) { return y.size(1) < 3 ? y * 2 : y * 3; },
                          {.name = "sequence", .places = {{0, 1}}, .min = 2}),
            "the program and the model differ with a batch of 3, sequence of 2: output 0 differs by");
  expect_in(exported_with(cut_at(14)),
            "differ with a batch of 3, sequence of 16: output 0 has a different shape");
  expect_in(exported_with(cut_at(9)),
            "operator aten::narrow in or after layer l: its argument length is 6 with a batch of 5, "
            "sequence of 6; ");
  expect_in(exported_with([](const at::Tensor& y) { return y.size(1) > 9 ? y.exp() : y.sin(); }),
            "operator aten::sin in or after layer l: whether it is called depends on the batch (its sizes "
            "or its values)");
  expect_in(exported_with([](const at::Tensor& y) { return y.narrow(1, 0, y.size(1) / 2 * 2); }),
            "without quotients or powers above 3");
  expect_in(exported_with([](const at::Tensor& y) { return y / static_cast<double>(y.size(1)); }),
            "its argument other depends on the batch (its sizes or its values): 6, 8");
  expect_in(exported_with([](const at::Tensor& y) { return at::stack(y.unbind(1)); }),
            "the number of tensors that it returns depends on the batch");
  expect_in(exported_with([](const at::Tensor& y) {
              return at::conv1d(y.transpose(1, 2), at::ones({1, 4, 9}));
            }),
            "the forward pass fails with a batch of 5, sequence of 6: ");
  const at::Tensor table = at::randn({10, 4});
  expect_in(exported_with([&](const at::Tensor& y) { return y + table.narrow(0, 0, y.size(1)); }),
            "the forward pass fails with a batch of 5, sequence of 13: ");
  expect_in(exported_with([&](const at::Tensor& y) { return y + table.narrow(0, 0, y.size(1)); },
                          {.name = "sequence", .places = {{0, 1}}, .max = 11}),
            "the forward pass fails with a batch of 5, sequence of 11: ");
}

TEST(DynamicSizes, AllowSquaresAndBounds) {
  EXPECT_EQ(exported_with([](const at::Tensor& y) { return y.repeat({1, y.size(1), 1}); }), "");
  EXPECT_EQ(exported_with([](const at::Tensor& y) { return y * (y.size(0) * y.size(1) + 2); }), "");
  const at::Tensor table = at::randn({10, 4});
  EXPECT_EQ(exported_with([&](const at::Tensor& y) { return y + table.narrow(0, 0, y.size(1)); },
                          {.name = "sequence", .places = {{0, 1}}, .max = 10}),
            "");
  EXPECT_EQ(exported_with(
                [](const at::Tensor& y) {
                  return at::conv1d(y.transpose(1, 2), at::ones({1, 4, 5}));
                },
                {.name = "sequence", .places = {{0, 1}}, .min = 5}),
            "");
  EXPECT_EQ(exported_with(
                [](const at::Tensor& y) {
                  return y.unflatten(1, {y.size(1) / 4, 4});
                },
                {.name = "sequence", .places = {{0, 1}}, .multiple_of = 4}),
            "");
}

TEST(DynamicSizes, ProgramsRefuseOtherSizes) {
  const Scratch scratch;
  BehindLayer model([](const at::Tensor& y) { return y.unflatten(1, {y.size(1) / 4, 4}); });
  export_program(
      model, {at::randn({6, 8, 4})},
      {.path = scratch / "model.pt2",
       .dynamic_sizes = {{.name = "sequence", .places = {{0, 1}}, .min = 8, .max = 80, .multiple_of = 4}}});
  ExportedModule read({.file = scratch / "model.pt2"});
  EXPECT_EQ(read.forward(at::randn({2, 80, 4})).size(1), 20);
  const auto refusal = [&](std::int64_t length) {
    return error_text<DataError>([&] { read.forward(at::randn({2, length, 4})); });
  };
  expect_in(refusal(10),
            "expected: Float [s0, 4 * s1, 4], as it was exported; it was exported for multiples of 4");
  expect_in(refusal(4), "it was exported for sizes from 8 to 80");
  expect_in(refusal(84), "it was exported for sizes from 8 to 80");
}

TEST(DynamicSizes, RefuseSizesThatTheExampleDoesNotHave) {
  const auto refusal = [](std::vector<DynamicSize> sizes, bool dynamic_batch = true) {
    const Batch example{at::randn({6, 8}), at::randn({6, 9})};
    ExportOptions options{.dynamic_batch = dynamic_batch, .dynamic_sizes = std::move(sizes)};
    return error_text<ConfigError>([&] { const DynamicSizes made(example, options); });
  };
  expect_in(refusal({{.name = "s", .places = {{2, 1}}}}),
            "dynamic size \"s\": the example has no tensor 2; expected: one of its 2, counted from 0");
  expect_in(refusal({{.name = "s", .places = {{0, 2}}}}), "there is no dimension 2 of tensor 0");
  expect_in(refusal({{.name = "s", .places = {{0, -3}}}}), "there is no dimension -3 of tensor 0");
  expect_in(refusal({{.name = "s"}}), "it has no places");
  expect_in(refusal({{.name = "", .places = {{0, 1}}}}), "it has no name");
  expect_in(refusal({{.name = "s", .places = {{0, 0}}}}),
            "dimension 0 of tensor 0 already belongs to \"batch\"; expected: another dimension; set "
            "dynamic_batch = false");
  EXPECT_EQ(refusal({{.name = "s", .places = {{0, 0}, {1, 0}}}}, false), "(no error)");
  expect_in(refusal({{.name = "batch", .places = {{0, 1}}}}), "two dynamic sizes have this name");
  expect_in(refusal({{.name = "s", .places = {{0, 1}}}, {.name = "t", .places = {{0, -1}}}}),
            "dynamic size \"t\": dimension 1 of tensor 0 already belongs to \"s\"");
  expect_in(refusal({{.name = "s", .places = {{0, 1}, {1, 1}}}}),
            "dimension 1 of tensor 0 is 8, dimension 1 of tensor 1 is 9");
  const std::string bounds =
      "dynamic size \"s\": the size in the example is 8; expected: a positive multiple of multiple_of";
  expect_in(refusal({{.name = "s", .places = {{0, 1}}, .max = 7}}), bounds);
  expect_in(refusal({{.name = "s", .places = {{0, 1}}, .min = 9}}), bounds);
  expect_in(refusal({{.name = "s", .places = {{0, 1}}, .min = 0}}), bounds);
  expect_in(refusal({{.name = "s", .places = {{0, 1}}, .multiple_of = 3}}), bounds);
  expect_in(refusal({{.name = "s", .places = {{0, 1}}, .multiple_of = 0}}), bounds);
  expect_in(refusal({{.name = "s", .places = {{0, 1}}, .min = 4, .max = 8}}),
            "it has too few values from 4 to 8; expected: at least six values to try");
  EXPECT_EQ(refusal({{.name = "s", .places = {{0, 1}}, .min = 4, .max = 9}}), "(no error)");
  expect_in(refusal(std::vector<DynamicSize>(4, {.name = "s", .places = {{0, 1}}})),
            "there are 4 in addition to the batch size; expected: at most 4, including the batch size");
}

}  // namespace
}  // namespace kindling
