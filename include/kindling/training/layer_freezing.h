#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/config/options.h"
#include "kindling/training/callback.h"

namespace kindling {

struct LayerFreezingOptions {
  std::vector<std::string> patterns{};
  std::int64_t epochs = 1;

  static constexpr auto fields = kindling::fields(
      kindling::field("patterns", &LayerFreezingOptions::patterns,
                      {.doc = "patterns of parameter names, such as features.*"}),
      kindling::field("epochs", &LayerFreezingOptions::epochs,
                      {.doc = "number of epochs at the start in which they are not trained", .min = 0}));
};

// Freezes parts of a model in the first epochs of a fit and trains them afterwards, as when pretrained layers
// get a new output layer. Calls Module::freeze_by_name() at the start of each of these epochs and
// Module::unfreeze_by_name() at the start of each later one. With several callbacks, layers that match the
// patterns of more than one are trained after the last of these has ended. The optimizer has the frozen
// parameters from the start, without state for them. The callback has no state: what is frozen depends on the
// number of the epoch alone, so a resumed run is bit-identical.
class KINDLING_API LayerFreezing : public Callback {
 public:
  // Throws ConfigError for options out of range.
  explicit LayerFreezing(LayerFreezingOptions options);

  // Throws ConfigError for a pattern that matches no name of the model.
  void on_train_epoch_start(Trainer& trainer, Module& model) override;
  std::string type_name() const override { return "LayerFreezing"; }
  std::vector<std::pair<std::string, std::string>> shared_options() const override;

 private:
  LayerFreezingOptions options_;
};

}  // namespace kindling
