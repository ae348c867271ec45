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

// Activation checkpointing: forward keeps only the inputs of a part of a model, and backward computes the
// part again. This trades compute for memory: for a deep net in segments, memory holds only the inputs of all
// segments and the activations of one.
//
// The gradients are bit-identical to those without it. For the second computation, backward temporarily
// restores the default random generators of the CPU and of the devices of the inputs, the parameters and the
// buffers; autocast; the buffers (running statistics are updated once); and hidden states kept between
// batches within the part. Parameters also learn if no input requires a gradient. Without gradients, and
// while a lazy layer has no parameters yet, the part is simply computed.
//
// The result of the part must depend on these alone. Throws Error for a part that changes an input in place,
// and for one that uses a tensor with a gradient function that is not one of its inputs. Backward throws
// Error if the part returns other shapes or uses other parameters the second time, and for second
// derivatives.

// A tensor function for backward to repeat; `module` is the part being computed, owned by a shared_ptr.
using TensorFunction = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;
KINDLING_API std::vector<at::Tensor> recompute_in_backward(torch::nn::Module& module, TensorFunction forward,
                                                           std::vector<at::Tensor> inputs);

// Checkpoints forward(arguments...), for parts that already belong to a model:
//
//   x = kd::activation_checkpoint(*block, [this](const torch::Tensor& x) { return block->forward(x); }, x);
//
// Backward calls `forward` again, so everything it refers to must still exist then. The result is a tensor,
// or a tuple of tensors and tuples.
template <class Forward, class... Arguments>
requires std::invocable < Forward&, std::decay_t<Arguments>
&... > auto activation_checkpoint(torch::nn::Module& module, Forward forward, Arguments&&... arguments) {
  using Result = std::decay_t<std::invoke_result_t<Forward&, std::decay_t<Arguments>&...>>;
  static_assert(kIsTensors<Result>, "forward() gives a tensor, or a tuple of tensors and tuples");
  std::tuple<std::decay_t<Arguments>...> values(std::forward<Arguments>(arguments)...);
  std::vector<at::Tensor> inputs = tensors_in(values);
  put_tensors({}, values);  // backward keeps them, not the function
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

// `Layer` with a checkpointed forward(). If forward() is a template, as in Sequential, its signature is
// at::Tensor(const at::Tensor&). Otherwise it behaves like a Layer: same constructors, parameter names, and
// compatible weights.
template <class Layer, class Signature>
class CheckpointedForward;

// The only specialization: for a layer whose forward() returns Result.
template <class Layer, class Result, class... Arguments>
class CheckpointedForward<Layer, Result(Arguments...)> : public Layer {
 public:
  using Layer::Layer;
  Result forward(Arguments... arguments) {
    return activation_checkpoint(
        *this, [this](auto&... values) -> Result { return this->Layer::forward(values...); }, arguments...);
  }
};

// The signature of a layer's forward(); for a template, which has none, the one for a single tensor.
template <class Layer>
struct ForwardOf {
  using Signature = at::Tensor(const at::Tensor&);
};
// If forward() is a single function.
template <class Layer>
requires requires { &Layer::forward; }
struct ForwardOf<Layer> {
  template <class Of, class Result, class... Arguments>
  static auto signature(Result (Of::*)(Arguments...)) -> Result (*)(Arguments...);
  template <class Of, class Result, class... Arguments>
  static auto signature(Result (Of::*)(Arguments...) const) -> Result (*)(Arguments...);
  using Signature = std::remove_pointer_t<decltype(signature(&Layer::forward))>;
};

// The implementation class of a holder such as torch::nn::Sequential; other classes are unchanged.
template <class Layer>
struct LayerOf {
  using Type = Layer;
};
// For a holder.
template <class Holder>
requires requires { typename Holder::ContainedType; }
struct LayerOf<Holder> {
  using Type = typename Holder::ContainedType;
};

// The class that an ActivationCheckpoint holds.
template <class Layer>
using ActivationCheckpointImpl = CheckpointedForward<Layer, typename ForwardOf<Layer>::Signature>;

// Replaces a layer or a block; takes the arguments of its constructor:
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
