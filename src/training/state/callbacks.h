#pragma once

#include <algorithm>
#include <memory>
#include <typeinfo>
#include <vector>

#include "device/host_caller.h"
#include "kindling/training/callback.h"

namespace kindling {

// The callbacks of a trainer, called in their order, except that savers are called after the others, so
// that a checkpoint contains what the others have done. At the end of a fit savers come first, before the
// others change anything.
class Callbacks {
 public:
  Callbacks(Trainer& trainer, const std::vector<std::shared_ptr<Callback>>& list) : trainer_(trainer) {
    for (const auto& callback : list) {
      (callback->saver() != nullptr ? savers_ : others_).push_back(callback);
      if (WeightAveraging* averaging = callback->averaging()) averaging_.push_back(averaging);
    }
  }

  // callbacks.call(&Callback::on_train_batch_end, model)
  template <class... Parameters, class... Arguments>
  void call(void (Callback::*moment)(Trainer&, Module&, Parameters...), Module& model,
            Arguments&... arguments) const {
    is_calling_ = true;
    const auto call_all = [&](const auto& list) {
      for (const auto& pointer : list) {
        Callback& callback = *pointer;
        const HostCaller caller(HostCaller::kCallback, &typeid(callback));
        (callback.*moment)(trainer_, model, arguments...);
      }
    };
    call_all(others_);
    call_all(savers_);
    is_calling_ = false;
  }

  void average_after_step(Module& model) const {
    for (WeightAveraging* averaging : averaging_) averaging->after_step(trainer_, model);
  }
  void average_after_epoch(Module& model) const {
    for (WeightAveraging* averaging : averaging_) averaging->after_epoch(trainer_, model);
  }
  // Returns the averages that validations see; nullptr: the model's own weights.
  WeightAveraging* evaluated_average() const {
    const auto found = std::ranges::find_if(averaging_, [](const auto* one) { return one->evaluates(); });
    return found == averaging_.end() ? nullptr : *found;
  }

  // Data-parallel training: whether this rank requests a save, and the news that some rank has. The savers
  // make it at the end of the batch.
  bool save_requested() const {
    return std::ranges::any_of(savers_, [](const auto& one) { return one->saver()->save_requested(); });
  }
  void notify_save_request() const {
    for (const auto& one : savers_) one->saver()->on_save_request();
  }

  // True while an event is being delivered, and after a callback has thrown in it: some callbacks have seen
  // the event, others have not.
  bool is_calling() const noexcept { return is_calling_; }

  const std::vector<std::shared_ptr<Callback>>& savers() const noexcept { return savers_; }
  const std::vector<std::shared_ptr<Callback>>& others() const noexcept { return others_; }
  Trainer& trainer() const noexcept { return trainer_; }

 private:
  Trainer& trainer_;
  mutable bool is_calling_ = false;
  std::vector<std::shared_ptr<Callback>> savers_, others_;
  std::vector<WeightAveraging*> averaging_;  // of callbacks in the lists above
};

}  // namespace kindling
