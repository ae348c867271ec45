#include "data/sources/training_labels.h"

#include <ATen/ops/cat.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/loading/stored_dataset.h"
#include "data/loading/window_dataset.h"
#include "data/sources/image_file_dataset.h"
#include "kindling/base/error.h"
#include "kindling/data/dataset.h"
#include "tensors/shape_text.h"

namespace kindling {
namespace {

// In slices, because all samples may not fit into memory.
at::Tensor gathered_labels(const Dataset& dataset) {
  const std::int64_t at_once = samples_at_once(dataset);
  std::vector<at::Tensor> parts;
  for (std::int64_t first = 0; first < dataset.size(); first += at_once) {
    const Batch batch = dataset.slice(first, std::min(first + at_once, dataset.size()));
    if (batch.tensors().empty()) return {};
    parts.push_back(batch.labels().clone());
  }
  return parts.empty() ? at::Tensor() : at::cat(parts);
}

at::Tensor labels_in(const Dataset& dataset) {
  if (const std::vector<at::Tensor> tensors = tensors_in_memory(dataset); !tensors.empty())
    return tensors.back();
  if (const auto* images = dynamic_cast<const ImageFileDataset*>(&dataset)) return images->labels();
  if (const auto* stored = dynamic_cast<const StoredDataset*>(&dataset)) return stored->labels();
  return gathered_labels(dataset);
}

// Nullptr: there are none.
std::shared_ptr<DataLoader> training_loader(DataModule& data, const char* remedy) {
  data.prepare();
  const auto loader = data.train_dataloader();
  if (loader && loader->is_endless())
    throw DataError({.place = "the labels of the training samples",
                     .found = "the data has no end",
                     .wanted = "a finite data set",
                     .remedy = remedy});
  return loader;
}

// Undefined: there are none.
at::Tensor all_labels(const DataLoader* loader) {
  return loader != nullptr ? labels_in(loader->dataset()) : at::Tensor();
}

// Reads one sample, because all of them may be large.
void require_unscaled_targets(DataModule& data, const DataLoader* loader) {
  if (loader == nullptr || loader->dataset().size() == 0) return;
  const Batch sample = loader->dataset().slice(0, 1);
  if (sample.tensors().empty()) return;
  const at::Tensor targets = sample.labels().to(at::kFloat);
  if (data.unscale_targets(targets).is_same(targets)) return;
  throw ConfigError({.place = "model.scale_target",
                     .found = "the data scale the targets already",
                     .wanted = "one scale of the targets",
                     .remedy = "set model.scale_target = false"});
}

}  // namespace

at::Tensor training_labels(DataModule& data) {
  const at::Tensor labels = all_labels(training_loader(data, "set model.class_weights").get());
  if (!labels.defined() || !at::isIntegralType(labels.scalar_type(), /*includeBool=*/false))
    throw DataError({.place = "the labels of the training samples",
                     .found = labels.defined() ? type_text(labels) : "none",
                     .wanted = "integers, one class per label"});
  const at::Tensor classes = labels.to(at::kLong).flatten();
  return classes.masked_select(classes.ne(-100));  // the loss ignores these
}

std::function<at::Tensor()> training_target_parts(DataModule& data) {
  const auto loader = training_loader(data, "set model.scale_target = false");
  require_unscaled_targets(data, loader.get());
  const auto checked = [](at::Tensor targets) {
    if (!targets.defined() || !targets.is_floating_point())
      throw DataError({.place = "the labels of the training samples",
                       .found = targets.defined() ? type_text(targets) : "none",
                       .wanted = "floating-point numbers to predict",
                       .remedy = "for class numbers choose a classifier, such as mlp"});
    return targets;
  };
  const auto* const stored = loader ? dynamic_cast<const StoredDataset*>(&loader->dataset()) : nullptr;
  if (stored == nullptr || stored->labels_in_memory().defined())
    return [targets = checked(all_labels(loader.get()))]() mutable {
      return std::exchange(targets, at::Tensor());
    };
  return [loader, stored, checked, first = std::int64_t{0}]() mutable {
    if (first == stored->size()) return at::Tensor();
    const std::int64_t end = std::min(first + samples_at_once(*stored), stored->size());
    return checked(stored->labels_in_file(std::exchange(first, end), end));
  };
}

}  // namespace kindling
