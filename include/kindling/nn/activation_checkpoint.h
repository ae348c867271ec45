#pragma once

#include <torch/nn/pimpl.h>

#include <concepts>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/nn/tensors_in.h"

namespace kindling {

// Activation checkpointing: forward keeps what a part of a model is given and not what it computes on the
// way; backward computes that once more. Memory for time: of a deep net in segments, only the inputs of all
// segments and the insides of one are there at a time.
//
// The gradients are the same to the bit as without it. Backward puts back, for the second computation and
// only for it: the default random generators of the CPU and of the devices of the inputs, the parameters and
// the buffers; autocast; the buffers (running statistics are updated once); carried hidden states within the
// part. Parameters learn also where no input needs a gradient. Without gradients, and while a lazy layer has
// no parameters yet, the part is simply computed.
//
// What the part computes must hang on these alone. Throws Error for a part that changes an input in place,
// for one that uses a tensor with a gradient function that is no input of it, and, from backward, for one
// that gives other shapes or uses other parameters the second time, and for second derivatives.

// One tensor function as backward is to repeat it; `module` is the part at work, owned by a shared_ptr.
using TensorFunction = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;
KINDLING_API std::vector<at::Tensor> recompute_in_backward(torch::nn::Module& module, TensorFunction forward,
                                                           std::vector<at::Tensor> inputs);

// forward(arguments...), for parts that stand in a model already:
//
//   x = kd::activation_checkpoint(*block, [this](const torch::Tensor& x) { return block->forward(x); }, x);
//
// Backward calls `forward` again: it must not refer to what is gone by then. The result is a tensor, or a
// tuple of tensors and tuples.
template <class Forward, class... Arguments>
requires std::invocable < Forward&, std::decay_t<Arguments>
&... > auto activation_checkpoint(torch::nn::Module& module, Forward forward, Arguments&&... arguments) {
  using Result = std::decay_t<std::invoke_result_t<Forward&, std::decay_t<Arguments>&...>>;
  static_assert(kIsTensors<Result>, "forward() gives a tensor, or a tuple of tensors and tuples");
  std::tuple<std::decay_t<Arguments>...> values(std::forward<Arguments>(arguments)...);
  std::vector<at::Tensor> inputs = tensors_in(values);
  put_tensors({}, values);  // they are kept by backward, not by the function
  const std::vector<at::Tensor> outputs = recompute_in_backward(
      module,
      [forward = std::move(forward),
       values = std::move(values)](const std::vector<at::Tensor>& given) mutable {
        auto filled = values;
        put_tensors(given, filled);
        return tensors_in(Result(std::apply(forward, filled)));
      },
      std::move(inputs));
  Result result;
  put_tensors(outputs, result);
  return result;
}

// `Layer` with its forward() checkpointed, or at::Tensor(const at::Tensor&) where that is a template, as
// Sequential's is. It is a Layer in all else: constructors, parameter names, weights that load both ways.
template <class Layer, class Signature>
class CheckpointedForward;

// The one that there is: of a layer whose forward() gives Result.
template <class Layer, class Result, class... Arguments>
class CheckpointedForward<Layer, Result(Arguments...)> : public Layer {
 public:
  using Layer::Layer;
  Result forward(Arguments... arguments) {
    return activation_checkpoint(
        *this, [this](auto&... values) -> Result { return Layer::forward(values...); }, arguments...);
  }
};

// The signature of a layer's forward(); of a template, which has none, that for one tensor.
template <class Layer>
struct ForwardOf {
  using Signature = at::Tensor(const at::Tensor&);
};
// Where forward() is one function.
template <class Layer>
requires requires { &Layer::forward; }
struct ForwardOf<Layer> {
  template <class Of, class Result, class... Arguments>
  static auto signature(Result (Of::*)(Arguments...)) -> Result (*)(Arguments...);
  template <class Of, class Result, class... Arguments>
  static auto signature(Result (Of::*)(Arguments...) const) -> Result (*)(Arguments...);
  using Signature = std::remove_pointer_t<decltype(signature(&Layer::forward))>;
};

// The class behind a holder such as torch::nn::Sequential; others stay what they are.
template <class Layer>
struct LayerOf {
  using Type = Layer;
};
// Of a holder.
template <class Holder>
requires requires { typename Holder::ContainedType; }
struct LayerOf<Holder> {
  using Type = typename Holder::ContainedType;
};

// What an ActivationCheckpoint holds.
template <class Layer>
using ActivationCheckpointImpl = CheckpointedForward<Layer, typename ForwardOf<Layer>::Signature>;

// A layer or a block in place of which it stands, made with the arguments of its constructor:
//
//   net->push_back(kd::ActivationCheckpoint<Block>(64));
//   kd::ActivationCheckpoint<torch::nn::Sequential> segment{torch::nn::Linear(8, 8), torch::nn::Tanh()};
template <class Layer>
class ActivationCheckpoint
    : public torch::nn::ModuleHolder<ActivationCheckpointImpl<typename LayerOf<Layer>::Type>> {
 public:
  using torch::nn::ModuleHolder<ActivationCheckpointImpl<typename LayerOf<Layer>::Type>>::ModuleHolder;
};

}  // namespace kindling
