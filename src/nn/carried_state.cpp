#include "kindling/nn/carried_state.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/nan_to_num.h>

#include <ostream>
#include <utility>

#include "graph/recording/operator_recorder.h"
#include "kindling/base/error.h"
#include "kindling/tensors/move.h"
#include "nn/checkpoint_scopes.h"
#include "tensors/saved_number.h"

namespace kindling {
namespace {

constexpr std::array<const char*, 2> kModes{"training", "evaluation"};

}  // namespace

CarriedStateImpl::CarriedStateImpl(CarriedStateOptions options) : options_(options) {
  if (options_.batch_dim < 0 || options_.reset_every_n_batches < 0)
    throw ConfigError({.place = "CarriedState",
                       .found = "a batch_dim of " + std::to_string(options_.batch_dim) +
                                ", a reset_every_n_batches of " +
                                std::to_string(options_.reset_every_n_batches),
                       .wanted = "at least 0"});
}

// The second computation of a part would find the state that the first one has left.
void CarriedStateImpl::require_within_part() const {
  OperatorRecorder::refuse("it keeps a hidden state between batches");
  const torch::nn::Module* const part = PartAtWork::innermost();
  if (part == nullptr || part == this) return;
  for (const auto& layer : part->modules(/*include_self=*/false))
    if (layer.get() == this) return;
  throw Error({.place = "CarriedState",
               .found = "a part under an activation checkpoint uses it without registering it",
               .wanted = "hidden() and carry() outside of the part, or the state registered in it",
               .remedy = "pass the hidden state to the part as an input"});
}

const std::vector<at::Tensor>& CarriedStateImpl::given_to(std::int64_t batch_size) const {
  require_within_part();
  static const std::vector<at::Tensor> kNone;
  const auto& [tensors, num_batches] = carried_[is_training() ? 0 : 1];
  const std::int64_t n = options_.reset_every_n_batches;
  if (n > 0 && num_batches % n == 0) return kNone;
  for (const at::Tensor& tensor : tensors)
    if (tensor.size(options_.batch_dim) != batch_size)
      throw DataError(
          {.place = "CarriedState",
           .found = "a batch of " + std::to_string(batch_size) + " samples after one of " +
                    std::to_string(tensor.size(options_.batch_dim)),
           .wanted = "batches of one size, in which each row continues the row of the batch before",
           .remedy = "skip an incomplete last batch (drop_last), or call reset_state()"});
  return tensors;
}

at::Tensor CarriedStateImpl::hidden(std::int64_t batch_size) const {
  const std::vector<at::Tensor>& given = given_to(batch_size);
  return given.empty() ? at::Tensor() : given.front();
}

std::optional<std::tuple<at::Tensor, at::Tensor>> CarriedStateImpl::hidden_and_cell(
    std::int64_t batch_size) const {
  const std::vector<at::Tensor>& given = given_to(batch_size);
  if (given.size() != 2) return std::nullopt;
  return std::tuple{given[0], given[1]};
}

void CarriedStateImpl::carry(const at::Tensor& hidden) { keep({hidden}); }

void CarriedStateImpl::carry(const std::tuple<at::Tensor, at::Tensor>& hidden_and_cell) {
  keep({std::get<0>(hidden_and_cell), std::get<1>(hidden_and_cell)});
}

void CarriedStateImpl::keep(std::vector<at::Tensor> tensors) {
  require_within_part();
  const at::NoGradGuard no_grad;
  for (at::Tensor& tensor : tensors) {
    if (tensor.dim() <= options_.batch_dim)
      throw DataError(
          {.place = "CarriedState",
           .found = "a state of rank " + std::to_string(tensor.dim()),
           .wanted = "the samples along dimension " + std::to_string(options_.batch_dim) + " (batch_dim)"});
    tensor = at::nan_to_num(tensor, 0, 0, 0);
  }
  OfMode& carried = of_mode();
  carried = {std::move(tensors), carried.num_batches + 1};
}

void CarriedStateImpl::reset_state() { of_mode() = {}; }

void CarriedStateImpl::save_state(StateDict& state) const {
  for (std::size_t mode = 0; mode < kModes.size(); ++mode) {
    const std::string prefix = std::string(kModes[mode]) + ".";
    for (std::size_t i = 0; i < carried_[mode].tensors.size(); ++i)
      state.tensors.emplace_back(prefix + std::to_string(i), carried_[mode].tensors[i]);
    if (carried_[mode].num_batches > 0)
      state.metadata[prefix + "batches"] = std::to_string(carried_[mode].num_batches);
  }
}

void CarriedStateImpl::load_state(const StateDict& state, Device device) {
  Carried loaded;
  for (std::size_t mode = 0; mode < kModes.size(); ++mode) {
    const std::string prefix = std::string(kModes[mode]) + ".";
    const auto num_batches = find_number<std::int64_t>(state.metadata, prefix + "batches", {.min = 0});
    if (!num_batches) continue;
    loaded[mode].num_batches = *num_batches;
    for (std::size_t i = 0; const at::Tensor* one = state.find(prefix + std::to_string(i)); ++i) {
      if (one->dim() <= options_.batch_dim)
        throw CheckpointError(
            {.place = "'" + prefix + std::to_string(i) + "'",
             .found = "a tensor of rank " + std::to_string(one->dim()),
             .wanted = "the samples along dimension " + std::to_string(options_.batch_dim)});
      loaded[mode].tensors.push_back(copy_to(*one, device));
    }
  }
  carried_ = std::move(loaded);
}

void CarriedStateImpl::pretty_print(std::ostream& stream) const { stream << "kindling::CarriedState"; }

}  // namespace kindling
