#include "cli/run/fit_doubts.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/bincount.h>

#include <cmath>
#include <optional>
#include <utility>

#include "data/loading/window_dataset.h"
#include "kindling/base/number_text.h"
#include "kindling/nn/regressor.h"

namespace kindling {
namespace {

std::optional<double> metric(const FitResult& result, const char* name) {
  const auto found = result.metrics.find(name);
  return found == result.metrics.end() ? std::nullopt : std::optional(found->second);
}

// Undefined if the labels are not in memory.
at::Tensor labels_of(const DataLoader& loader) {
  const at::Tensor labels = loader.is_endless() ? at::Tensor() : labels_in_memory(loader.dataset());
  return labels.defined() ? labels.cpu() : labels;
}

// The loss of predicting the mean of each target.
double loss_of_means(const at::Tensor& targets) {
  return targets.to(at::kDouble).var(0, /*unbiased=*/false).mean().item<double>();
}

// The accuracy of predicting the most frequent class.
double share_of_most_frequent(const at::Tensor& classes) {
  const at::Tensor known = classes.masked_select(classes.ge(0));
  if (known.numel() == 0) return 0;
  return known.bincount().max().item<double>() / static_cast<double>(known.numel());
}

}  // namespace

std::vector<std::string> doubts_about(const FitResult& result, const ConfigTables& config,
                                      const Module& model, DataModule& data) {
  std::vector<std::string> doubts;
  if (result.status != FitStatus::finished || config.data.name.name != "csv") return doubts;
  const auto val = data.val_dataloader();
  if (!val) {
    doubts.emplace_back(
        "data: there are no validation rows, so nothing shows how good the model is on other rows; set "
        "data.val_fraction, such as 0.2");
    return doubts;
  }
  const std::optional<double> loss = metric(result, "val_loss"), accuracy = metric(result, "val_acc");
  if (loss && !std::isfinite(*loss)) {
    doubts.push_back("val_loss is " + number_text(*loss) +
                     ": the outputs are too large; lower optimizer.lr, or scale the inputs and targets");
    return doubts;
  }
  const at::Tensor labels = labels_of(*val);
  if (!labels.defined() || labels.numel() < 2) return doubts;
  const auto doubt = [&](const std::string& value, const std::string& guess) {
    doubts.push_back(value + " of predicting " + guess +
                     ": the model has learned nothing that helps on other samples");
  };
  if (loss && dynamic_cast<const Regressor*>(&model) != nullptr && labels.is_floating_point())
    if (const double of_means = loss_of_means(labels); *loss > of_means)
      doubt("val_loss is " + short_text(*loss, 4) + ", above the " + short_text(of_means, 4),
            "the mean of the validation targets");
  if (accuracy && labels.dim() == 1 && at::isIntegralType(labels.scalar_type(), /*includeBool=*/false))
    if (const double share = share_of_most_frequent(labels); *accuracy < share)
      doubt("val_acc is " + short_text(*accuracy, 4) + ", below the " + short_text(share, 4),
            "the most frequent class");
  return doubts;
}

}  // namespace kindling
