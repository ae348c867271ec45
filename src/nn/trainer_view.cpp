#include "kindling/nn/trainer_view.h"

namespace kindling {

std::vector<Device> TrainerView::gpus() const {
  const auto state = state_.lock();
  return state ? state->gpus : std::vector<Device>{};
}

Device TrainerView::device() const {
  const auto state = state_.lock();
  return state && !state->gpus.empty() ? state->gpus.front() : cpu();
}

std::optional<std::int64_t> TrainerView::max_epochs() const {
  const auto state = state_.lock();
  return state ? state->max_epochs : std::nullopt;
}

std::int64_t TrainerView::epoch() const {
  const auto state = state_.lock();
  return state ? state->epoch : 0;
}

std::int64_t TrainerView::batch_index() const {
  const auto state = state_.lock();
  return state ? state->batch_index : 0;
}

std::int64_t TrainerView::num_train_batches() const {
  const auto state = state_.lock();
  return state ? state->num_train_batches : 0;
}

std::int64_t TrainerView::global_step() const {
  const auto state = state_.lock();
  return state ? state->global_step : 0;
}

void TrainerView::log(std::string_view name, const at::Tensor& value) const {
  const auto state = state_.lock();
  if (state && state->log != nullptr) state->log->mark(name, value);
}

}  // namespace kindling
