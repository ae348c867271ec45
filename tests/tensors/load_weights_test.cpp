#include <gtest/gtest.h>
#include <torch/nn.h>

#include <fstream>

#include "kindling/base/error.h"
#include "kindling/device/transfer_counts.h"
#include "kindling/nn/lazy_conv2d.h"
#include "kindling/nn/lazy_linear.h"
#include "kindling/tensors/checkpoint_file.h"
#include "kindling/tensors/move.h"
#include "kindling/tensors/state_comparison.h"
#include "kindling/tensors/state_dict.h"
#include "support/device_under_test.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

torch::nn::Sequential four_layers() {
  torch::nn::Sequential net;
  for (int i = 0; i < 4; ++i) net->push_back(torch::nn::Linear(64, 64));
  return net;
}

// Counts what LibTorch holds of host memory: the most at a time while the object lives.
class HostMemoryWatch final : public c10::Allocator {
 public:
  HostMemoryWatch() : real_(c10::GetAllocator(c10::kCPU)) {
    only_ = this;
    c10::SetAllocator(c10::kCPU, this);
  }
  ~HostMemoryWatch() override {
    c10::SetAllocator(c10::kCPU, real_);
    only_ = nullptr;
  }

  std::size_t peak_bytes() const { return peak_bytes_; }

  at::DataPtr allocate(std::size_t size) override {
    auto* block = new Block{real_->allocate(size), size};
    live_bytes_ += size;
    peak_bytes_ = std::max(peak_bytes_, live_bytes_);
    return {block->memory.get(), block, &release, c10::kCPU};
  }
  void copy_data(void* to, const void* from, std::size_t size) const override {
    real_->copy_data(to, from, size);
  }

 private:
  struct Block {
    at::DataPtr memory;
    std::size_t size;
  };
  static void release(void* context) {
    const std::unique_ptr<Block> block(static_cast<Block*>(context));
    if (only_ != nullptr) only_->live_bytes_ -= block->size;
  }

  inline static HostMemoryWatch* only_ = nullptr;
  c10::Allocator* real_;
  std::size_t live_bytes_ = 0, peak_bytes_ = 0;
};

class LoadedWeights : public OnDevice {
 protected:
  Scratch scratch_;
};
KINDLING_RUN_ON_DEVICES(LoadedWeights);

TEST_P(LoadedWeights, GoStraightToTheParameters) {
  torch::nn::Sequential source = four_layers(), target = four_layers();
  save_safetensors(state_dict(*source), scratch_ / "w.safetensors");
  move_to(*target, device_);
  const at::Tensor weight = target->parameters()[0];
  const void* place = weight.const_data_ptr();
  const TransferCounts before = transfer_counts();
  load_weights(*target, scratch_ / "w.safetensors");
  const TransferCounts once_each{8, 4 * (64 * 64 + 64) * 4, 0, 0, 8};
  EXPECT_EQ(transfer_counts() - before, device_.is_cpu() ? TransferCounts{} : once_each);
  EXPECT_EQ(weight.const_data_ptr(), place);
  EXPECT_TRUE(weight.requires_grad());
  const StateComparison comparison = compare(*target, *source);
  EXPECT_TRUE(comparison.is_equal()) << comparison.text();
}

TEST_P(LoadedWeights, NeedNoMoreHostMemoryThanOneTensor) {
  torch::nn::Sequential source = four_layers(), target = four_layers();
  save_safetensors(state_dict(*source), scratch_ / "w.safetensors");
  move_to(*target, device_);
  const std::size_t largest = 64 * 64 * 4;
  std::size_t peak = 0;
  {
    const HostMemoryWatch watch;
    load_weights(*target, scratch_ / "w.safetensors");
    peak = watch.peak_bytes();
  }
  EXPECT_EQ(peak, device_.is_cpu() ? 0 : largest);
  EXPECT_TRUE(compare(*target, *source).is_equal());
}

TEST_P(LoadedWeights, AreConvertedToTheDtypeOfTheParameter) {
  torch::nn::Sequential source = four_layers(), target = four_layers();
  save_safetensors(state_dict(*source), scratch_ / "w.safetensors");
  move_to(*target, device_);
  target->to(at::kDouble);
  load_weights(*target, scratch_ / "w.safetensors");
  EXPECT_EQ(target->parameters()[0].device(), device_);
  EXPECT_TRUE(same(target->parameters()[0], source->parameters()[0].to(at::kDouble)));
}

TEST_P(LoadedWeights, ReachParametersOfAnyLayout) {
  torch::nn::Sequential source{torch::nn::Linear(3, 2)}, target{torch::nn::Linear(3, 2)};
  save_safetensors(state_dict(*source), scratch_ / "w.safetensors");
  move_to(*target, device_);
  const at::Tensor weight = target->parameters()[0];
  weight.set_data(at::zeros({3, 2}, at::device(device_)).t());
  load_weights(*target, scratch_ / "w.safetensors");
  EXPECT_FALSE(weight.is_contiguous());
  EXPECT_TRUE(same(weight, source->parameters()[0]));
}

TEST_P(LoadedWeights, ThatDoNotMatchChangeNothing) {
  torch::nn::Sequential source{torch::nn::Linear(3, 2), torch::nn::Linear(2, 2)};
  torch::nn::Sequential target{torch::nn::Linear(3, 2), torch::nn::Linear(2, 5)};
  save_safetensors(state_dict(*source), scratch_ / "w.safetensors");
  move_to(*target, device_);
  const auto before = copy_to(*target, device_);
  const std::string text =
      error_text<CheckpointError>([&] { load_weights(*target, scratch_ / "w.safetensors"); });
  EXPECT_TRUE(
      text.ends_with("check the model's options\n  '1.weight' has the shape [2, 2], the model's is [5, 2]\n"
                     "  '1.bias' has the shape [2], the model's is [5]"))
      << text;
  EXPECT_TRUE(compare(*target, *before).is_equal());
}

TEST_P(LoadedWeights, PartlyLoadWhatFits) {
  torch::nn::Sequential source{torch::nn::Linear(3, 2), torch::nn::Linear(2, 2), torch::nn::BatchNorm1d(1)};
  torch::nn::Sequential target{torch::nn::Linear(3, 2), torch::nn::Linear(2, 5)};
  target->push_back("last", torch::nn::Linear(5, 1));
  save_safetensors(state_dict(*source), scratch_ / "w.safetensors");
  move_to(*target, device_);
  const StateDict before = copy_to(state_dict(*target), device_);
  const LoadReport report = load_weights(*target, scratch_ / "w.safetensors", {.strict = false});
  EXPECT_EQ(report.loaded, (std::vector<std::string>{"0.weight", "0.bias"}));
  EXPECT_EQ(report.text(),
            "2 tensors loaded\n"
            "  '1.weight' has the shape [2, 2], the model's is [5, 2]\n"
            "  '1.bias' has the shape [2], the model's is [5]\n"
            "  'last.weight' is missing\n"
            "  'last.bias' is missing\n"
            "  '2.bias' is not in the model\n"
            "  '2.num_batches_tracked' is not in the model\n"
            "  '2.running_mean' is not in the model\n"
            "  '2.running_var' is not in the model\n"
            "  '2.weight' is not in the model");
  EXPECT_TRUE(same(target->parameters()[0], source->parameters()[0]));
  for (const char* name : {"1.weight", "1.bias", "last.weight", "last.bias"})
    EXPECT_TRUE(same(*state_dict(*target).find(name), *before.find(name))) << name;
}

TEST_P(LoadedWeights, NeedNoMoreHostMemoryInParts) {
  torch::nn::Sequential source = four_layers(), target = four_layers();
  target->push_back(torch::nn::Linear(64, 1));
  save_safetensors(state_dict(*source), scratch_ / "w.safetensors");
  move_to(*target, device_);
  const HostMemoryWatch watch;
  load_weights(*target, scratch_ / "w.safetensors", {.strict = false, .map = {{"3.", "9."}}});
  EXPECT_EQ(watch.peak_bytes(), device_.is_cpu() ? 0U : 64U * 64 * 4);
}

TEST(LoadWeights, TakesOffAPrefixAndRenamesBeginnings) {
  const Scratch scratch;
  torch::nn::Sequential target{torch::nn::Linear(2, 1), torch::nn::Linear(1, 1)};
  const StateDict state{.tensors = {{"net.encoder.weight", at::ones({1, 2})},
                                    {"net.encoder.bias", at::ones({1})},
                                    {"net.head.weight", at::full({1, 1}, 2.0)},
                                    {"net.head.bias", at::full({1}, 3.0)},
                                    {"optimizer.step", at::ones({})}},
                        .metadata = {}};
  save_safetensors(state, scratch / "w.safetensors");
  const LoadOptions options{.prefix = "net.", .map = {{"encoder.", "0."}, {"head.", "1."}}};
  EXPECT_EQ(load_weights(*target, scratch / "w.safetensors", options).loaded,
            (std::vector<std::string>{"0.weight", "0.bias", "1.weight", "1.bias"}));
  EXPECT_TRUE(same(target->parameters()[3], at::full({1}, 3.f)));
  EXPECT_EQ(load_state_dict(*target, state, "state", options).text(), "4 tensors loaded");
  EXPECT_EQ(
      error_text<CheckpointError>([&] {
        load_state_dict(*target, state, "state",
                        {.strict = false, .map = {{"net.encoder.", "1."}, {"net.head.", "1."}}});
      }),
      "state: 'net.encoder.weight' and 'net.head.weight' would both be loaded as '1.weight'; nothing was "
      "loaded; change the map");
}

TEST(LoadWeights, LeavesLazyLayersThatDoNotFitWithoutShape) {
  const auto convolution = [](std::int64_t size) {
    return torch::nn::Sequential{
        LazyConv2d(LazyConv2dOptions{.out_channels = 2, .kernel_size = {size, size}})};
  };
  torch::nn::Sequential source = convolution(5), target = convolution(3);
  source->forward(at::rand({1, 1, 9, 9}));
  EXPECT_EQ(load_state_dict(*target, state_dict(*source), "state", {.strict = false}).text(),
            "0 tensors loaded\n"
            "  '0.weight' has the shape [2, 1, 5, 5], the model's is [2, 1, 3, 3]\n"
            "  '0.bias' has the shape [2], which its layer cannot take");
  EXPECT_TRUE(state_dict(*target).tensors.empty());
}

TEST(LoadWeights, GivesLazyLayersTheirShape) {
  const Scratch scratch;
  torch::nn::Sequential source{LazyLinear(2)}, target{LazyLinear(2)};
  const at::Tensor x = at::rand({1, 3});
  const at::Tensor output = source->forward(x);
  save_safetensors(state_dict(*source), scratch / "w.safetensors");
  load_weights(*target, scratch / "w.safetensors");
  EXPECT_TRUE(same(target->forward(x), output));
}

TEST(LoadWeights, RefusesACutFileBeforeTheFirstWrite) {
  const Scratch scratch;
  torch::nn::Sequential source = four_layers(), target = four_layers();
  const auto path = scratch / "w.safetensors";
  save_safetensors(state_dict(*source), path);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  const auto before = copy_to(*target, cpu());
  const std::string text = error_text<CheckpointError>([&] { load_weights(*target, path); });
  EXPECT_NE(text.find("are outside the file"), std::string::npos) << text;
  EXPECT_TRUE(compare(*target, *before).is_equal());
}

TEST(LoadWeights, TellsAutogradOfTheWrite) {
  const Scratch scratch;
  torch::nn::Sequential net{torch::nn::Linear(2, 2)};
  save_safetensors(state_dict(*net), scratch / "w.safetensors");
  const at::Tensor loss = net->forward(net->forward(at::ones({1, 2}).requires_grad_())).sum();
  load_weights(*net, scratch / "w.safetensors");
  EXPECT_THROW(loss.backward(), c10::Error);  // its weights are not those of the forward pass
}

struct OnTheStack : torch::nn::Module {
  OnTheStack() {
    register_module("known", known);
    register_module("lazy", lazy);
  }
  torch::nn::Linear known{2, 2};
  LazyLinear lazy{3};
};

TEST(LoadWeights, FillsAModelThatNoPointerOwns) {
  const Scratch scratch;
  const at::Tensor weight = at::arange(4, at::kFloat).view({2, 2}),
                   wide = at::arange(6, at::kFloat).view({3, 2});
  StateDict state;
  state.tensors = {{"known.weight", weight},
                   {"known.bias", at::ones({2})},
                   {"lazy.weight", wide},
                   {"lazy.bias", at::zeros({3})}};
  save_safetensors(state, scratch / "weights.safetensors");
  OnTheStack model;
  EXPECT_EQ(load_weights(model, scratch / "weights.safetensors").loaded.size(), 4U);
  EXPECT_TRUE(same(model.known->weight.detach(), weight));
  EXPECT_TRUE(model.lazy->is_materialized());
}

TEST(LoadWeights, NamesAnEmptyPath) {
  OnTheStack model;
  EXPECT_EQ(
      error_text<CheckpointError>([&] { load_weights(model, ""); }),
      "load_weights: the path is empty; expected: a file; FitResult::best_checkpoint is empty if the fit "
      "has saved no checkpoint with the monitored value");
  EXPECT_EQ(error_text<CheckpointError>([&] {
              load_validated_weights(model, "");
            }).find("load_validated_weights: the path is empty"),
            0U);
}

}  // namespace
}  // namespace kindling
