// Values of another shape with as many elements: their bytes would fit, their places would not.
#include <gtest/gtest.h>
#include <torch/nn.h>

#include "kindling/base/error.h"
#include "kindling/tensors/parameters.h"
#include "kindling/tensors/state_dict.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

class FittingShapes : public testing::Test {
 protected:
  torch::nn::Linear layer_{torch::nn::LinearOptions(3, 2).bias(false)};
  const at::Tensor before_ = layer_->weight.detach().clone();
  const at::Tensor turned_ = at::arange(6, at::kFloat).view({3, 2});
};

TEST_F(FittingShapes, StateDictOfEquallyManyElementsIsRefused) {
  for (const at::Tensor& other : {turned_, turned_.view({1, 2, 3}), turned_.flatten()}) {
    StateDict state;
    state.tensors = {{"weight", other}};
    const std::string text = error_text<CheckpointError>([&] { load_state_dict(*layer_, state); });
    EXPECT_NE(text.find(", the model's is [2, 3]"), std::string::npos) << text;
    EXPECT_TRUE(same(layer_->weight, before_));
  }
}

TEST_F(FittingShapes, FileOfEquallyManyElementsIsRefused) {
  const Scratch scratch;
  StateDict state;
  state.tensors = {{"weight", turned_}};
  save_safetensors(state, scratch / "turned");
  const std::string text = error_text<CheckpointError>([&] { load_weights(*layer_, scratch / "turned"); });
  EXPECT_NE(text.find("'weight' has the shape [3, 2], the model's is [2, 3]"), std::string::npos) << text;
  EXPECT_TRUE(same(layer_->weight, before_));
}

TEST_F(FittingShapes, ParameterOfEquallyManyElementsIsRefused) {
  EXPECT_EQ(error_text<Error>([&] { set_parameter(*layer_, "weight", turned_); }),
            "set_parameter(\"weight\"): the values have the shape [3, 2]; expected: [2, 3]");
  EXPECT_TRUE(same(layer_->weight, before_));
}

}  // namespace
}  // namespace kindling
