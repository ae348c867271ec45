#include "data/sources/training_labels.h"

#include <ATen/ops/cat.h>

#include <algorithm>
#include <string>
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
  constexpr std::int64_t kSamples = 256;
  std::vector<at::Tensor> parts;
  for (std::int64_t first = 0; first < dataset.size(); first += kSamples) {
    const Batch batch = dataset.slice(first, std::min(first + kSamples, dataset.size()));
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

// Undefined: there are none.
at::Tensor all_labels(DataModule& data, const char* remedy) {
  data.prepare();
  const auto loader = data.train_dataloader();
  if (loader && loader->is_endless())
    throw DataError({.place = "the labels of the training samples",
                     .found = "the data has no end",
                     .wanted = "a finite data set",
                     .remedy = remedy});
  return loader ? labels_in(loader->dataset()) : at::Tensor();
}

}  // namespace

at::Tensor training_labels(DataModule& data) {
  const at::Tensor labels = all_labels(data, "set model.class_weights");
  if (!labels.defined() || !at::isIntegralType(labels.scalar_type(), /*includeBool=*/false))
    throw DataError({.place = "the labels of the training samples",
                     .found = labels.defined() ? type_text(labels) : "none",
                     .wanted = "integers, one class per label"});
  const at::Tensor classes = labels.to(at::kLong).flatten();
  return classes.masked_select(classes.ne(-100));  // the loss ignores these
}

at::Tensor training_targets(DataModule& data) {
  at::Tensor targets = all_labels(data, "set model.scale_target = false");
  if (!targets.defined() || !targets.is_floating_point())
    throw DataError({.place = "the labels of the training samples",
                     .found = targets.defined() ? type_text(targets) : "none",
                     .wanted = "floating-point numbers to predict",
                     .remedy = "for class numbers choose a classifier, such as mlp"});
  if (!data.unscale_targets(targets).is_same(targets))
    throw ConfigError({.place = "model.scale_target",
                       .found = "the data scale the targets already",
                       .wanted = "one scale of the targets",
                       .remedy = "set model.scale_target = false"});
  return targets;
}

}  // namespace kindling
