#include "training/state/batch_source.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>

#include "device/random_state.h"
#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "kindling/tensors/move.h"

namespace kindling {
namespace {

void require_interval(const CountOrFraction& option, std::int64_t num_batches) {
  const std::int64_t interval = option.of(num_batches);
  if (option.is_fraction() || interval <= num_batches) return;
  throw ConfigError({.place = "Trainer",
                     .found = "val_check_interval = " + std::to_string(interval) + ", but an epoch has " +
                              std::to_string(num_batches) + " training batches",
                     .wanted = "at most that many",
                     .remedy = "to validate less than once per epoch, set check_val_every_n_epoch"});
}

// NaN equals itself.
bool has_same_bytes(const Batch& a, const Batch& b) {
  return std::ranges::equal(a.tensors(), b.tensors(), [](const at::Tensor& x, const at::Tensor& y) {
    if (x.sizes() != y.sizes()) return false;  // resized in place
    if (!x.is_contiguous() || !y.is_contiguous()) return x.equal(y);
    return std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
  });
}

}  // namespace

Batch prepared_batch(Batch batch, DataModule* data, Stage stage, const Placement& placement) {
  if (!placement.gpus.empty()) batch = move_to(std::move(batch), placement.device());
  if (data != nullptr) batch = data->on_after_batch_transfer(std::move(batch), stage);
  return placement.convert(std::move(batch));
}

std::optional<std::int64_t> limit_of_epoch(const DataLoader& loader, Stage stage,
                                           std::optional<std::int64_t> limit,
                                           std::optional<std::int64_t> enough) {
  if (!loader.is_endless() || limit) return limit;
  if (enough) return enough;
  constexpr const char* kOptions[] = {"limit_train_batches", "limit_val_batches", "limit_test_batches",
                                      "limit_predict_batches"};
  const std::string option = kOptions[static_cast<std::size_t>(stage)];
  throw ConfigError({.place = "trainer." + option,
                     .found = "the data has no end, and nothing says how many batches to take",
                     .wanted = "a number of batches",
                     .remedy = "set " + option + (stage == Stage::train ? " or max_steps" : "")});
}

std::optional<std::int64_t> batches_of_run(const TrainerOptions& options) {
  if (!options.max_steps) return std::nullopt;
  return *options.max_steps * options.accumulate_grad_batches;
}

void require_partition(const TrainerOptions& options, DataModule& data, std::shared_ptr<DataLoader> train,
                       std::int64_t num_ranks) {
  const auto limit =
      limit_of_epoch(*train, Stage::train, options.limit_train_batches, batches_of_run(options));
  const Placement on_cpu;
  BatchSource(data, std::move(train), Stage::train, on_cpu, limit).partition(options, /*rank=*/0, num_ranks);
}

BatchSource::BatchSource(DataModule& data, std::shared_ptr<DataLoader> loader, Stage stage,
                         const Placement& placement, std::optional<std::int64_t> limit)
    : data_(data),
      loader_(std::move(loader)),
      stage_(stage),
      placement_(placement),
      limit_(limit_of_epoch(*loader_, stage, limit)) {
  cursors_.emplace_back(*loader_).stage_for(placement_.device());
  if (limit_) cursors_.front().gather_ahead_up_to(*limit_);
  if (!placement_.device().is_cpu()) copies_ = std::make_shared<CopyStream>(placement_.device());
}

std::int64_t BatchSource::num_batches() const noexcept {
  const std::int64_t all = cursors_.front().num_batches();
  return (limit_ ? std::min(all, *limit_) : all) * num_shards_per_batch();
}

std::int64_t BatchSource::num_samples_in(std::int64_t batches) const noexcept {
  return batches / num_shards_per_batch() * cursors_.front().global_batch_size();
}

void BatchSource::begin_at(std::int64_t sample) noexcept {
  if (repeats_first_) return;
  for (DataLoader::Cursor& cursor : cursors_) cursor.begin_at(sample);
}

void BatchSource::keep_order() noexcept {
  for (DataLoader::Cursor& cursor : cursors_) cursor.keep_order();
}

void BatchSource::limit_to(const CountOrFraction& batches) {
  // Global batches, which do not depend on the number of ranks.
  const std::int64_t all = num_batches() / num_shards_per_batch();
  limit_ = std::min(batches.of(all), all);
  for (DataLoader::Cursor& cursor : cursors_) cursor.gather_ahead_up_to(*limit_);
  repeats_first_ = true;
  keep_order();
}

void BatchSource::split_shards(std::int64_t first, std::int64_t count, std::int64_t size) {
  const std::int64_t batch_size = loader_->options().batch_size;
  if (batch_size % count != 0)
    throw ConfigError({.place = "trainer.gradient_shards",
                       .found = "batch_size " + std::to_string(batch_size) + " is to be split into " +
                                std::to_string(count) + " shards on each rank",
                       .wanted = "a batch_size that is a multiple of the number of shards"});
  cursors_.resize(static_cast<std::size_t>(count), cursors_.front());
  for (DataLoader::Cursor& cursor : cursors_) {
    cursor.shard(first++, size);
    cursor.take_batches_of(batch_size / count);
  }
  watches_draws_ = true;
}

void BatchSource::partition(const TrainerOptions& options, std::int64_t rank, std::int64_t num_ranks) {
  const std::int64_t shards = options.gradient_shards, own = shards / num_ranks;
  if (shards > 1)
    split_shards(rank * own, own, shards);
  else if (num_ranks > 1)
    shard(rank, num_ranks);
  if (num_batches() == 0)
    throw DataError({.place = "DataLoader",
                     .found = "drop_last leaves no batch of " +
                              std::to_string(loader().options().batch_size) + " for each of " +
                              std::to_string(num_ranks) + " ranks among " +
                              std::to_string(loader().num_samples()) + " samples",
                     .wanted = "a smaller batch_size"});
  if (options.overfit_batches) limit_to(*options.overfit_batches);
  require_interval(options.val_check_interval, num_batches() / num_shards_per_batch());
}

// Copying a whole data set does not pay off for a few of its batches, unless it was requested.
void BatchSource::cache_on_device() {
  const bool takes_all = num_batches() == cursors_.front().num_batches() * num_shards_per_batch();
  if (takes_all || (num_batches() > 0 && loader_->options().resident == "on"))
    for (DataLoader::Cursor& cursor : cursors_) cursor.cache_on_device();
}

void BatchSource::seek(std::int64_t epoch, std::int64_t batch) {
  Order order = batch > 0 && order_.epoch == epoch ? order_ : Order{.epoch = epoch};
  for (std::int64_t i = 0; i < num_shards_per_batch(); ++i) {  // each cursor's next batch
    DataLoader::Cursor& cursor = cursors_[static_cast<std::size_t>(i)];
    cursor.seek(is_endless() ? 0 : epoch, (batch + num_shards_per_batch() - 1 - i) / num_shards_per_batch());
    require_order(order, cursor.order_fingerprint());
    order = {.epoch = epoch, .fingerprint = cursor.order_fingerprint()};
  }
  order_ = std::move(order);
  batch_ = batch;
}

void BatchSource::require_order(const Order& known, const std::string& now) {
  const std::string &before = known.fingerprint, epoch = std::to_string(known.epoch + 1);
  if (before.empty() || now.empty() || before == now) return;
  const auto num_samples = [](const std::string& order) { return order.substr(0, order.find(' ')); };
  if (!known.is_saved)
    throw DataError({.place = "Sampler::order in epoch " + epoch,
                     .found = "it has returned two orders for the same epoch",
                     .wanted =
                         "a function of the epoch alone, so that each rank, each shard and a resumed run "
                         "take the same samples",
                     .remedy = "draw from a generator that is seeded with a fixed seed and the epoch"});
  if (num_samples(before) != num_samples(now)) return;
  throw CheckpointError(
      {.place = "the training data in epoch " + epoch,
       .found = "the order of the " + num_samples(now) + " samples differs from that of the saved run",
       .wanted = "the same order, because the run was saved within the epoch",
       .remedy =
           "resume with the same seed, order_seed, sampler, and labels or weights that it draws by, and "
           "let Sampler::order() depend on the epoch alone; or resume from the end of an epoch"});
}

bool BatchSource::next(Batch& batch) {
  const auto start = std::chrono::steady_clock::now();
  // Data that draws random numbers does so in its first batches.
  const bool found =
      watches_draws_ && batch_ < 2 * num_shards_per_batch() ? read_and_watch_draws(batch) : read(batch);
  wait_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return found;
}

void BatchSource::protect_view(Batch& batch, std::size_t cursor) {
  if (!cursors_[cursor].gives_views()) return;
  if (has_tried_copy_ && !copies_views_) {
    watched_ = cursor;
    return;
  }
  Batch copy = copy_to(batch, cpu());
  if (!std::exchange(has_tried_copy_, true)) {
    first_view_ = std::move(batch);
    copy_of_first_ = copy;
  }
  batch = std::move(copy);
}

void BatchSource::end_batch() {
  if (!first_view_.empty()) {
    copies_views_ = !has_same_bytes(first_view_, copy_of_first_);
    first_view_ = copy_of_first_ = Batch();
  }
  if (const auto cursor = std::exchange(watched_, std::nullopt)) cursors_[*cursor].require_unwritten();
}

bool BatchSource::read(Batch& batch) {
  end_batch();
  if (batch_ >= num_batches()) return false;
  const auto cursor = static_cast<std::size_t>(batch_ % num_shards_per_batch());
  if (!cursors_[cursor].next(batch)) return false;
  protect_view(batch, cursor);
  const bool is_valid = batch.is_valid();
  if (copies_) batch = copies_->move(std::move(batch));
  batch = prepared_batch(std::move(batch), &data_, stage_, placement_);
  if (!is_valid) batch.mark_padding();
  ++batch_;
  return true;
}

bool BatchSource::read_and_watch_draws(Batch& batch) {
  const auto before = random_state(placement_.device());
  const bool found = read(batch);
  const auto after = random_state(placement_.device());
  const auto is_same = [](const at::Tensor& a, const at::Tensor& b) {
    return a.nbytes() == b.nbytes() && std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
  };
  if (!std::ranges::equal(before, after, is_same)) {
    watches_draws_ = false;
    log_warning(
        "trainer.gradient_shards: the data draws random numbers while it creates batches, so another number "
        "of "
        "ranks gives other batches and other weights; use the random numbers of the samples, "
        "kindling::sample_random(index) or DataModule::num_random_numbers");
  }
  return found;
}

at::Tensor BatchSource::indices() const {
  const std::int64_t latest = std::max<std::int64_t>(batch_ - 1, 0);
  return cursors_[static_cast<std::size_t>(latest % num_shards_per_batch())].indices();
}

}  // namespace kindling
