#include "training/batch_source.h"

#include <algorithm>
#include <chrono>

namespace kindling {

BatchSource::BatchSource(DataModule& data, std::shared_ptr<DataLoader> loader, const TrainerInfo& info,
                         std::optional<std::int64_t> limit)
    : data_(data), loader_(std::move(loader)), info_(info), limit_(limit), cursor_(*loader_) {
  cursor_.stage_for(info_.device());
  if (!info_.device().is_cpu()) copies_ = std::make_shared<CopyStream>(info_.device());
}

std::int64_t BatchSource::num_batches() const noexcept {
  return limit_ ? std::min(cursor_.num_batches(), *limit_) : cursor_.num_batches();
}

void BatchSource::take_only(std::int64_t num_batches) {
  limit_ = std::min(num_batches, this->num_batches());
  cursor_.keep_order();
}

// A few batches of a set are no reason to copy it whole, unless it is asked for.
void BatchSource::keep_samples_there() {
  const bool takes_all = num_batches() == cursor_.num_batches();
  if (takes_all || (num_batches() > 0 && loader_->options().resident == "on")) cursor_.keep_samples_there();
}

void BatchSource::seek(std::int64_t epoch, std::int64_t batch) {
  cursor_.seek(epoch, batch);
  batch_ = batch;
}

bool BatchSource::next(Batch& batch) {
  const auto start = std::chrono::steady_clock::now();
  const bool found = batch_ < num_batches() && cursor_.next(batch);
  if (found) {
    const bool counts = batch.counts();
    if (copies_) batch = copies_->move(std::move(batch));
    batch = prepared_batch(std::move(batch), &data_, info_);
    if (!counts) batch.count_nothing();
    ++batch_;
  }
  wait_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return found;
}

}  // namespace kindling
