#include "kindling/training/layer_freezing.h"

#include <string>
#include <utility>

#include "kindling/base/log.h"
#include "kindling/config/printer.h"
#include "kindling/nn/module.h"
#include "kindling/training/trainer.h"

namespace kindling {

LayerFreezing::LayerFreezing(LayerFreezingOptions options) : options_(std::move(options)) {
  validate(options_, "LayerFreezing");
}

void LayerFreezing::on_train_epoch_start(Trainer& trainer, Module& model) {
  const std::int64_t epoch = trainer.progress().epoch;
  if (epoch < options_.epochs) return model.freeze_by_name(options_.patterns);
  model.unfreeze_by_name(options_.patterns);
  // What another callback still freezes, whichever of them is called first.
  for (const auto& callback : trainer.options().callbacks)
    if (const auto* other = dynamic_cast<const LayerFreezing*>(callback.get());
        other != nullptr && epoch < other->options_.epochs)
      model.freeze_by_name(other->options_.patterns);
  if (epoch == options_.epochs && trainer.progress().batch == 0)
    log_info("from here on, the fit trains the layers that were frozen for " + std::to_string(epoch) +
             (epoch == 1 ? " epoch" : " epochs"));
}

std::vector<std::pair<std::string, std::string>> LayerFreezing::shared_options() const {
  return value_texts(options_);
}

}  // namespace kindling
