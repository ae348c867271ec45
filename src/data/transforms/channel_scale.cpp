#include "data/transforms/channel_scale.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/div.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <system_error>

#include "base/joined.h"
#include "kindling/base/error.h"
#include "kindling/base/number_text.h"
#include "kindling/tensors/batch.h"
#include "tensors/channel_statistics.h"

namespace kindling {
namespace {

constexpr std::int64_t kRowsOfFirstPart = 1;
constexpr std::int64_t kBytesOfPart = std::int64_t{1} << 24;  // of the rows that are read at once
constexpr const char* kStart = R"({"kind":"channels","channels":)";
constexpr const char* kFill = R"(,"fill_missing":)";

}  // namespace

ChannelScale::ChannelScale(std::int64_t num_channels, std::optional<double> fill)
    : mean_(register_buffer("mean", at::zeros({num_channels}, at::kDouble))),
      std_(register_buffer("std", at::ones({num_channels}, at::kDouble))),
      fill_(fill) {}

std::shared_ptr<ChannelScale> ChannelScale::from_description(const std::string& description) {
  const std::string start = kStart, fill_start = kFill;
  const char* const end = description.data() + description.size();
  std::int64_t channels = 0;
  if (description.starts_with(start)) std::from_chars(description.data() + start.size(), end, channels);
  std::optional<double> fill;
  if (const std::size_t at = description.find(fill_start); at != std::string::npos)
    std::from_chars(description.data() + at + fill_start.size(), end, fill.emplace());
  auto scale = std::make_shared<ChannelScale>(std::max<std::int64_t>(channels, 1), fill);
  if (channels >= 1 && scale->description() == description) return scale;
  throw CheckpointError({.place = kInputTransform,
                         .found = "the weights belong to inputs of another kind",
                         .wanted = "weights of a run whose data have normalize_by"});
}

void ChannelScale::fit(const Dataset& samples, const std::vector<std::int64_t>& rows,
                       const std::string& place) {
  const at::NoGradGuard no_grad;
  const std::int64_t channels = mean_.size(0), count = std::ssize(rows);
  ChannelStatistics statistics(channels, fill_.has_value());
  Batch batch;
  for (std::int64_t begin = 0, num_rows = kRowsOfFirstPart; begin < count; begin += num_rows) {
    if (begin > 0)
      num_rows = std::max<std::int64_t>(
          1, kBytesOfPart /
                 std::max<std::int64_t>(1, static_cast<std::int64_t>(batch.tensors()[0][0].nbytes())));
    num_rows = std::min(num_rows, count - begin);
    auto* const first = const_cast<std::int64_t*>(rows.data()) + begin;  // is read only
    samples.gather(at::from_blob(first, {num_rows}, at::kLong), batch);
    statistics.add(batch.tensors()[0]);
  }
  if (const auto wrong = statistics.wrong_channel())
    throw DataError({.place = place,
                     .found = "channel " + std::to_string(*wrong) + " of the training samples has " +
                              (fill_ ? "no numbers, or infinite ones" : "numbers that are not finite"),
                     .wanted = "finite numbers for data.normalize_by",
                     .remedy = fill_ ? "" : "if they are missing values, set data.fill_missing = 0"});
  mean_.copy_(statistics.mean());
  std_.copy_(statistics.deviation());
}

// [1, channels, 1, …] for values [batch, channels, …].
at::Tensor ChannelScale::like(const at::Tensor& statistics, const at::Tensor& values) const {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(values.dim()), 1);
  if (sizes.size() > 1) sizes[1] = statistics.size(0);
  return statistics.view(sizes);
}

at::Tensor ChannelScale::forward(const at::Tensor& raw) {
  return fill_ ? with_missing_filled(scaled(raw), *fill_) : scaled(raw);
}

at::Tensor ChannelScale::scaled(const at::Tensor& raw) const {
  return at::div(at::sub(raw.to(at::kDouble), like(mean_, raw)), like(std_, raw)).to(at::kFloat);
}

at::Tensor ChannelScale::inverse(const at::Tensor& scaled) const {
  return at::add(at::mul(scaled.to(at::kDouble), like(std_, scaled)), like(mean_, scaled)).to(at::kFloat);
}

std::string ChannelScale::description() const {
  return kStart + std::to_string(mean_.size(0)) + (fill_ ? kFill + number_text(*fill_) : "") + "}";
}

bool ChannelScale::adopt(const std::string& saved) {
  if (saved == description()) return true;
  if (!saved.starts_with(kStart)) return false;
  const std::shared_ptr<ChannelScale> other = from_description(saved);
  const bool has_other_fill = other->mean_.size(0) == mean_.size(0);
  const auto fill = [](const ChannelScale& scale) {
    return scale.fill_ ? number_text(*scale.fill_) : std::string("absent");
  };
  throw CheckpointError(
      {.place = kInputTransform,
       .found =
           has_other_fill
               ? "data.fill_missing is " + fill(*this) + ", and was " + fill(*other) + " when it was saved"
               : "the training data have " + counted(mean_.size(0), "channel") + ", and had " +
                     std::to_string(other->mean_.size(0)) + " when it was saved",
       .wanted = "the same training data",
       .remedy = "restore the data and the keys of [data], or start a new run"});
}

void ChannelScale::follow(const at::Tensor& raw) {
  if (mean_.device() != raw.device()) to(raw.device());
}

at::Tensor with_missing_filled(const at::Tensor& values, double fill) {
  return values.is_floating_point() ? values.masked_fill(at::isnan(values), fill) : values;
}

}  // namespace kindling
