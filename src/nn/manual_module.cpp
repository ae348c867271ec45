#include "kindling/nn/manual_module.h"

#include "kindling/base/error.h"
#include "nn/manual_updates.h"

namespace kindling {

void ManualModule::update(std::string_view optimizer, const at::Tensor& loss, UpdateOptions options) {
  ManualUpdates* const updates = trainer().updates();
  if (updates == nullptr)
    throw Error({.place = name() + "::update",
                 .found = "no training step of a trainer is running",
                 .wanted = "a call from training_step"});
  updates->update(optimizer, loss, options.retain_graph);
}

}  // namespace kindling
