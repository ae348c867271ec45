#include "kindling/nn/trainer_view.h"

#include "kindling/tensors/move.h"
#include "training/memory_layout.h"
#include "training/trainer_info.h"

namespace kindling {

void attach(Module& model, const std::shared_ptr<TrainerInfo>& info) {
  model.set_trainer(TrainerView(info));
  if (!info->gpus.empty()) move_to(model, info->device());
}

Batch as_trained(Batch batch, const TrainerInfo& info) {
  batch = in_precision(std::move(batch), info.precision);
  return info.is_channels_last ? in_channels_last(std::move(batch)) : batch;
}

Batch prepared_batch(Batch batch, DataModule* data, const TrainerInfo& info) {
  if (!info.gpus.empty()) batch = move_to(std::move(batch), info.device());
  if (data != nullptr) batch = data->on_after_batch_transfer(std::move(batch));
  return as_trained(std::move(batch), info);
}

std::vector<Device> TrainerView::gpus() const {
  const auto info = info_.lock();
  return info ? info->gpus : std::vector<Device>{};
}

Device TrainerView::device() const {
  const auto info = info_.lock();
  return info ? info->device() : cpu();
}

std::optional<std::int64_t> TrainerView::max_epochs() const {
  const auto info = info_.lock();
  return info ? info->max_epochs : std::nullopt;
}

Progress TrainerView::progress() const {
  const auto info = info_.lock();
  return info ? *info->progress : Progress{};
}

std::int64_t TrainerView::num_train_batches() const {
  const auto info = info_.lock();
  return info ? info->num_train_batches : 0;
}

EpochLog* TrainerView::log() const {
  const auto info = info_.lock();
  return info ? info->log : nullptr;
}

ManualUpdates* TrainerView::updates() const {
  const auto info = info_.lock();
  return info ? info->updates : nullptr;
}

}  // namespace kindling
