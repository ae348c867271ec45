#include "kindling/data/digits.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/randperm.h>

#include <string_view>

#include "data/sources/idx_tensor.h"
#include "kindling/formats/idx.h"

namespace kindling {

// The gz IDX files of src/data/digits, embedded into the library by cmake/EmbedFile.cmake.
extern const std::string_view kDigitsImages;
extern const std::string_view kDigitsLabels;

namespace {

constexpr std::uint64_t kSplitSeed = 0;
constexpr std::int64_t kNumClasses = 10;
constexpr double kValFraction = 0.2;

}  // namespace

Digits::Digits(DataOptions options) : ImageData({.divisor = 16}, std::move(options)) {}

ImageData::Split Digits::load() {
  const at::Tensor images = idx_tensor(parse_idx(kDigitsImages, "digits images")).unsqueeze(1);
  const at::Tensor labels = idx_tensor(parse_idx(kDigitsLabels, "digits labels"));
  auto generator = at::make_generator<at::CPUGeneratorImpl>(kSplitSeed);
  std::vector<at::Tensor> train, val;
  for (std::int64_t digit = 0; digit < kNumClasses; ++digit) {
    const at::Tensor samples = labels.eq(digit).nonzero().squeeze(1);
    const std::int64_t n = samples.size(0);
    const at::Tensor mixed = samples.index_select(0, at::randperm(n, generator, at::kLong));
    const auto num_val = static_cast<std::int64_t>(kValFraction * static_cast<double>(n) + 0.5);
    val.push_back(mixed.narrow(0, 0, num_val));
    train.push_back(mixed.narrow(0, num_val, n - num_val));
  }
  const auto part = [&](const std::vector<at::Tensor>& chosen) {
    const at::Tensor indices = std::get<0>(at::cat(chosen).sort());
    return LabelledImages{images.index_select(0, indices), labels.index_select(0, indices)};
  };
  return {.train = part(train), .val = part(val)};
}

}  // namespace kindling
