#include "training/capture/model_fingerprint.h"

#include <torch/csrc/autograd/variable.h>
#include <torch/nn/modules.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <unordered_set>

#include "kindling/nn/lazy_conv2d.h"
#include "kindling/nn/lazy_linear.h"

namespace kindling {
namespace {

using Tensors = torch::OrderedDict<std::string, at::Tensor>;
using Children = torch::OrderedDict<std::string, std::shared_ptr<torch::nn::Module>>;

// A module returns only copies of its lists, which take longer than a small step. C++ allows explicit
// instantiations to name private members, which gives access to the lists themselves.
const Tensors& parameters_of(const torch::nn::Module& module);
const Tensors& buffers_of(const torch::nn::Module& module);
const Children& children_of(const torch::nn::Module& module);
template <auto parameters, auto buffers, auto children>
struct ListsOfModules {
  friend const Tensors& parameters_of(const torch::nn::Module& module) { return module.*parameters; }
  friend const Tensors& buffers_of(const torch::nn::Module& module) { return module.*buffers; }
  friend const Children& children_of(const torch::nn::Module& module) { return module.*children; }
};
template struct ListsOfModules<&torch::nn::Module::parameters_, &torch::nn::Module::buffers_,
                               &torch::nn::Module::children_>;

// Calls `visit` with the address of each parameter, buffer and child until it returns false.
template <class Visit>
bool visit_registered(const torch::nn::Module& module, Visit visit) {
  for (const auto& item : parameters_of(module).items())
    if (!visit(item.value().unsafeGetTensorImpl())) return false;
  for (const auto& item : buffers_of(module).items())
    if (!visit(item.value().unsafeGetTensorImpl())) return false;
  for (const auto& item : children_of(module).items())
    if (!visit(item.value().get())) return false;
  return true;
}

// Calls `take` with each member of a `Layer` that holds a parameter or a buffer.
template <class Layer, class Take>
bool visit_members(const torch::nn::Module& module, Take take) {
  const auto* const layer = dynamic_cast<const Layer*>(&module);
  if (layer == nullptr) return false;
  if constexpr (requires { layer->weight; }) take(layer->weight);
  if constexpr (requires { layer->bias; }) take(layer->bias);
  if constexpr (requires { layer->running_mean; }) {
    take(layer->running_mean);
    take(layer->running_var);
    take(layer->num_batches_tracked);
  }
  if constexpr (requires { layer->weight_ih; }) {
    take(layer->weight_ih);
    take(layer->weight_hh);
    take(layer->bias_ih);
    take(layer->bias_hh);
  }
  if constexpr (requires { layer->in_proj_weight; })
    for (const at::Tensor* member :
         {&layer->in_proj_weight, &layer->in_proj_bias, &layer->bias_k, &layer->bias_v, &layer->q_proj_weight,
          &layer->k_proj_weight, &layer->v_proj_weight})
      take(*member);
  if constexpr (requires { layer->pos_weight; }) take(layer->pos_weight);
  return true;
}

template <class... Layers, class Take>
void visit_members_of_one(const torch::nn::Module& module, Take take) {
  (visit_members<Layers>(module, take) || ...);
}

bool is_plain(const at::Tensor& tensor) { return tensor.layout() == at::kStrided && tensor.has_storage(); }

const void* data_of(const at::Tensor& tensor) { return is_plain(tensor) ? tensor.const_data_ptr() : nullptr; }

bool has_hooks(const at::Tensor& tensor) {
  return tensor.requires_grad() && (!torch::autograd::impl::hooks(tensor).empty() ||
                                    torch::autograd::impl::post_acc_grad_hooks(tensor) != nullptr);
}

// Returns each tensor once, even if the model has several names for it.
std::vector<at::Tensor> distinct(std::vector<at::Tensor> tensors) {
  std::unordered_set<const c10::TensorImpl*> known;
  std::erase_if(tensors,
                [&](const at::Tensor& tensor) { return !known.insert(tensor.unsafeGetTensorImpl()).second; });
  return tensors;
}

// The type, sizes and strides of a tensor may change while its memory stays the same.
std::uint64_t layout_of(const at::Tensor& tensor) {
  auto hash = static_cast<std::uint64_t>(tensor.scalar_type());
  if (tensor.layout() != at::kStrided) return hash;
  const auto take = [&hash](std::int64_t number) {
    hash = (hash ^ static_cast<std::uint64_t>(number)) * 0x9e3779b97f4a7c15U;
  };
  for (const std::int64_t size : tensor.sizes()) take(size);
  for (const std::int64_t stride : tensor.strides()) take(stride);
  return hash;
}

}  // namespace

ModelFingerprint::Seen ModelFingerprint::seen(const at::Tensor& tensor) {
  return {.data = data_of(tensor),
          .layout = layout_of(tensor),
          .requires_grad = tensor.requires_grad(),
          .has_hooks = has_hooks(tensor)};
}

ModelFingerprint::ModelFingerprint(const torch::nn::Module& model)
    : parameters_(distinct(model.parameters())), buffers_(distinct(model.buffers())) {
  std::ranges::transform(parameters_, std::back_inserter(seen_parameters_), seen);
  std::ranges::transform(buffers_, std::back_inserter(seen_buffers_), seen);
  for (const auto& module : model.modules()) {
    layers_.push_back({.module = module,
                       .is_training = module->is_training(),
                       .num_parameters = parameters_of(*module).size(),
                       .num_buffers = buffers_of(*module).size(),
                       .num_children = children_of(*module).size()});
    visit_registered(*module, [&](const void* part) {
      registered_.push_back(part);
      return true;
    });
    for (const auto& item : parameters_of(*module).items()) registered_tensors_.push_back(item.value());
    for (const auto& item : buffers_of(*module).items()) registered_tensors_.push_back(item.value());
    take_members_of(*module);
    take_options_of(*module);
    if (const auto* const own = dynamic_cast<const Module*>(module.get()))
      change_counts_.push_back({.module = own, .num_changes = own->num_changes()});
  }
}

void ModelFingerprint::take_members_of(const torch::nn::Module& layer) {
  using namespace torch::nn;
  const auto take = [&](const at::Tensor& member) {
    members_.push_back({.place = &member, .tensor = member});
  };
  visit_members_of_one<LinearImpl, BilinearImpl, Conv1dImpl, Conv2dImpl, Conv3dImpl, ConvTranspose1dImpl,
                       ConvTranspose2dImpl, ConvTranspose3dImpl, BatchNorm1dImpl, BatchNorm2dImpl,
                       BatchNorm3dImpl, InstanceNorm1dImpl, InstanceNorm2dImpl, InstanceNorm3dImpl,
                       LayerNormImpl, GroupNormImpl, EmbeddingImpl, EmbeddingBagImpl, PReLUImpl, RNNCellImpl,
                       LSTMCellImpl, GRUCellImpl, MultiheadAttentionImpl, NLLLossImpl, CrossEntropyLossImpl,
                       BCELossImpl, BCEWithLogitsLossImpl, LazyLinearImpl, LazyConv2dImpl>(layer, take);
}

void ModelFingerprint::add_options(const void* place, std::size_t size) {
  options_.push_back({.place = place, .size = size});
  const auto* const bytes = static_cast<const std::byte*>(place);
  option_bytes_.insert(option_bytes_.end(), bytes, bytes + size);
}

// Bytes between the members of a struct may differ without a change, which costs a recording.
template <class Layer>
bool ModelFingerprint::take_options(const torch::nn::Module& layer) {
  const auto* const own = dynamic_cast<const Layer*>(&layer);
  if (own == nullptr) return false;
  if constexpr (requires { own->options; }) add_options(&own->options, sizeof own->options);
  if constexpr (requires { own->options_base; }) add_options(&own->options_base, sizeof own->options_base);
  return true;
}

void ModelFingerprint::take_options_of(const torch::nn::Module& layer) {
  using namespace torch::nn;
  const auto take = [&]<class... Layers>() { (take_options<Layers>(layer) || ...); };
  take.operator()<
      DropoutImpl, ReLUImpl, LinearImpl, Conv2dImpl, BatchNorm2dImpl, LayerNormImpl, EmbeddingImpl, GELUImpl,
      BatchNorm1dImpl, Conv1dImpl, Conv3dImpl, BatchNorm3dImpl, GroupNormImpl, Dropout2dImpl, Dropout3dImpl,
      AlphaDropoutImpl, FeatureAlphaDropoutImpl, ConvTranspose1dImpl, ConvTranspose2dImpl,
      ConvTranspose3dImpl, InstanceNorm1dImpl, InstanceNorm2dImpl, InstanceNorm3dImpl, LocalResponseNormImpl,
      CrossMapLRN2dImpl, EmbeddingBagImpl, BilinearImpl, FlattenImpl, UnflattenImpl, FoldImpl, UnfoldImpl,
      RNNImpl, LSTMImpl, GRUImpl, RNNCellImpl, LSTMCellImpl, GRUCellImpl, MultiheadAttentionImpl,
      TransformerImpl, TransformerEncoderImpl, TransformerDecoderImpl, TransformerEncoderLayerImpl,
      TransformerDecoderLayerImpl, UpsampleImpl, PixelShuffleImpl, PixelUnshuffleImpl>();
  take.operator()<ELUImpl, SELUImpl, HardshrinkImpl, HardtanhImpl, LeakyReLUImpl, SoftmaxImpl, SoftminImpl,
                  LogSoftmaxImpl, PReLUImpl, ReLU6Impl, RReLUImpl, CELUImpl, GLUImpl, SoftplusImpl,
                  SoftshrinkImpl, ThresholdImpl, CosineSimilarityImpl, PairwiseDistanceImpl>();
  take.operator()<AvgPool1dImpl, AvgPool2dImpl, AvgPool3dImpl, MaxPool1dImpl, MaxPool2dImpl, MaxPool3dImpl,
                  AdaptiveAvgPool1dImpl, AdaptiveAvgPool2dImpl, AdaptiveAvgPool3dImpl, AdaptiveMaxPool1dImpl,
                  AdaptiveMaxPool2dImpl, AdaptiveMaxPool3dImpl, MaxUnpool1dImpl, MaxUnpool2dImpl,
                  MaxUnpool3dImpl, LPPool1dImpl, LPPool2dImpl, LPPool3dImpl, FractionalMaxPool2dImpl,
                  FractionalMaxPool3dImpl, ReflectionPad1dImpl, ReflectionPad2dImpl, ReflectionPad3dImpl,
                  ReplicationPad1dImpl, ReplicationPad2dImpl, ReplicationPad3dImpl, ZeroPad1dImpl,
                  ZeroPad2dImpl, ZeroPad3dImpl, ConstantPad1dImpl, ConstantPad2dImpl, ConstantPad3dImpl>();
  take.
  operator()<L1LossImpl, KLDivLossImpl, MSELossImpl, BCELossImpl, HingeEmbeddingLossImpl, MultiMarginLossImpl,
             CosineEmbeddingLossImpl, SmoothL1LossImpl, HuberLossImpl, MultiLabelMarginLossImpl,
             SoftMarginLossImpl, MultiLabelSoftMarginLossImpl, TripletMarginLossImpl,
             TripletMarginWithDistanceLossImpl, CTCLossImpl, PoissonNLLLossImpl, MarginRankingLossImpl,
             NLLLossImpl, CrossEntropyLossImpl, BCEWithLogitsLossImpl, AdaptiveLogSoftmaxWithLossImpl>();
  // Lists keep their numbers elsewhere.
  if (const auto* const norm = dynamic_cast<const LayerNormImpl*>(&layer))
    sizes_.push_back({&norm->options.normalized_shape(), norm->options.normalized_shape()});
  if (const auto* const upsample = dynamic_cast<const UpsampleImpl*>(&layer)) {
    upsampled_sizes_.push_back({&upsample->options.size(), upsample->options.size()});
    scales_.push_back({&upsample->options.scale_factor(), upsample->options.scale_factor()});
  }
}

bool ModelFingerprint::has_same_options() const {
  const std::byte* kept = option_bytes_.data();
  for (const auto& [place, size] : options_) {
    if (std::memcmp(place, kept, size) != 0) return false;
    kept += size;
  }
  const auto is_same = [](const auto& list) { return *list.place == list.numbers; };
  return std::ranges::all_of(sizes_, is_same) && std::ranges::all_of(upsampled_sizes_, is_same) &&
         std::ranges::all_of(scales_, is_same) && std::ranges::all_of(change_counts_, [](const auto& one) {
           return one.module->num_changes() == one.num_changes;
         });
}

std::string ModelFingerprint::capture_obstacle() const {
  if (std::ranges::any_of(seen_parameters_, &Seen::has_hooks)) return "a parameter has a hook";
  if (!std::ranges::all_of(parameters_, is_plain) || !std::ranges::all_of(buffers_, is_plain))
    return "the model has a tensor that is not dense";
  return {};
}

bool ModelFingerprint::holds() const {
  return has_same_parts() && has_same_options() &&
         std::ranges::equal(seen_parameters_, parameters_, {}, {}, seen) &&
         std::ranges::equal(seen_buffers_, buffers_, {}, {}, seen);
}

bool ModelFingerprint::has_same_parts() const {
  auto next = registered_.begin();
  for (const Layer& layer : layers_) {
    const torch::nn::Module& module = *layer.module;
    if (module.is_training() != layer.is_training || parameters_of(module).size() != layer.num_parameters ||
        buffers_of(module).size() != layer.num_buffers || children_of(module).size() != layer.num_children ||
        !visit_registered(module, [&](const void* part) { return part == *next++; }))
      return false;
  }
  return std::ranges::all_of(members_,
                             [](const Member& member) { return member.place->is_same(member.tensor); });
}

}  // namespace kindling
