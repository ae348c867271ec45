#include "data/transforms/channel_scale.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/div.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <system_error>

#include "kindling/base/error.h"
#include "kindling/tensors/batch.h"

namespace kindling {
namespace {

constexpr std::int64_t kRowsOfFirstPart = 1;
constexpr std::int64_t kBytesOfPart = std::int64_t{1} << 24;  // of the rows that are read at once
constexpr const char* kStart = R"({"kind":"channels","channels":)";

// Count, mean, sum of squared differences from the mean, and extremes of each channel.
struct ChannelSums {
  double count = 0;
  at::Tensor mean{}, squares{}, smallest{}, largest{};
};

// `values`: float64 [channels, n].
ChannelSums sums_of(const at::Tensor& values) {
  ChannelSums sums{.count = static_cast<double>(values.size(1)), .mean = values.mean(1)};
  sums.squares = values.sub(sums.mean.unsqueeze(1)).square_().sum(1);
  sums.smallest = values.amin(1);
  sums.largest = values.amax(1);
  return sums;
}

// Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances", 1979.
void add_sums(const ChannelSums& more, ChannelSums& sums) {
  if (sums.count == 0) {
    sums = more;
    return;
  }
  const double count = sums.count + more.count;
  const at::Tensor difference = more.mean - sums.mean;
  sums.mean.add_(difference, more.count / count);
  sums.squares.add_(more.squares).add_(difference.square(), sums.count * more.count / count);
  sums.smallest = at::minimum(sums.smallest, more.smallest);
  sums.largest = at::maximum(sums.largest, more.largest);
  sums.count = count;
}

}  // namespace

ChannelScale::ChannelScale(std::int64_t num_channels)
    : mean_(register_buffer("mean", at::zeros({num_channels}, at::kDouble))),
      std_(register_buffer("std", at::ones({num_channels}, at::kDouble))) {}

std::shared_ptr<ChannelScale> ChannelScale::from_description(const std::string& description) {
  const std::string start = kStart;
  std::int64_t channels = 0;
  if (description.starts_with(start))
    std::from_chars(description.data() + start.size(), description.data() + description.size(), channels);
  auto scale = std::make_shared<ChannelScale>(std::max<std::int64_t>(channels, 1));
  if (channels >= 1 && scale->description() == description) return scale;
  throw CheckpointError({.place = kInputTransform,
                         .found = "the weights belong to inputs of another kind",
                         .wanted = "weights of a run whose data have normalize_by"});
}

void ChannelScale::fit(const Dataset& samples, const std::vector<std::int64_t>& rows,
                       const std::string& place) {
  const at::NoGradGuard no_grad;
  const std::int64_t channels = mean_.size(0), count = std::ssize(rows);
  ChannelSums sums;
  Batch batch;
  for (std::int64_t begin = 0, num_rows = kRowsOfFirstPart; begin < count; begin += num_rows) {
    if (begin > 0)
      num_rows = std::max<std::int64_t>(
          1, kBytesOfPart /
                 std::max<std::int64_t>(1, static_cast<std::int64_t>(batch.tensors()[0][0].nbytes())));
    num_rows = std::min(num_rows, count - begin);
    auto* const first = const_cast<std::int64_t*>(rows.data()) + begin;  // is read only
    samples.gather(at::from_blob(first, {num_rows}, at::kLong), batch);
    const at::Tensor values = batch.tensors()[0].to(at::kDouble);
    add_sums(
        sums_of(channels == 1 ? values.reshape({1, -1}) : values.transpose(0, 1).reshape({channels, -1})),
        sums);
  }
  const at::Tensor is_wrong = at::isfinite(sums.squares).logical_not();
  if (is_wrong.any().item<bool>())
    throw DataError({.place = place,
                     .found = "channel " +
                              std::to_string(is_wrong.to(at::kByte).argmax().item<std::int64_t>()) +
                              " of the training samples has numbers that are not finite",
                     .wanted = "finite numbers for data.normalize_by"});
  mean_.copy_(sums.mean);
  std_.copy_(at::where(sums.largest.eq(sums.smallest), 1., (sums.squares / sums.count).sqrt()));
}

// [1, channels, 1, …] for values [batch, channels, …].
at::Tensor ChannelScale::like(const at::Tensor& statistics, const at::Tensor& values) const {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(values.dim()), 1);
  if (sizes.size() > 1) sizes[1] = statistics.size(0);
  return statistics.view(sizes);
}

at::Tensor ChannelScale::forward(const at::Tensor& raw) {
  return at::div(at::sub(raw.to(at::kDouble), like(mean_, raw)), like(std_, raw)).to(at::kFloat);
}

at::Tensor ChannelScale::inverse(const at::Tensor& scaled) const {
  return at::add(at::mul(scaled.to(at::kDouble), like(std_, scaled)), like(mean_, scaled)).to(at::kFloat);
}

std::string ChannelScale::description() const { return kStart + std::to_string(mean_.size(0)) + "}"; }

void ChannelScale::follow(const at::Tensor& raw) {
  if (mean_.device() != raw.device()) to(raw.device());
}

}  // namespace kindling
