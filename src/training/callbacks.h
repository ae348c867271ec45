#pragma once

#include <memory>
#include <vector>

#include "kindling/training/callback.h"

namespace kindling {

// The callbacks of a trainer, called in their order.
class Callbacks {
 public:
  Callbacks(Trainer& trainer, const std::vector<std::shared_ptr<Callback>>& list)
      : trainer_(trainer), list_(list) {}

  // callbacks.call(&Callback::on_train_batch_end, model)
  template <class... Parameters, class... Arguments>
  void call(void (Callback::*moment)(Trainer&, Module&, Parameters...), Module& model,
            Arguments&... arguments) const {
    for (const auto& callback : list_) (*callback.*moment)(trainer_, model, arguments...);
  }

  const std::vector<std::shared_ptr<Callback>>& list() const noexcept { return list_; }
  Trainer& trainer() const noexcept { return trainer_; }

 private:
  Trainer& trainer_;
  const std::vector<std::shared_ptr<Callback>>& list_;
};

}  // namespace kindling
