#pragma once

#include "bindings/call.h"
#include "kindling/training/callback.h"

namespace kindling::bindings {

class TrainerHandle;

// Calls the program's function at the events that it has asked for.
class EventCallback : public Callback {
 public:
  void set(kindling_trainer handle, int32_t events, kindling_event_function function, void* user_data);
  // Whose metrics are those of an epoch while its end is reported; it must outlive this callback's calls.
  void set_owner(TrainerHandle& owner) noexcept { owner_ = &owner; }

  void on_fit_start(Trainer&, Module&) override { send(KINDLING_ON_FIT_START); }
  void on_train_batch_end(Trainer&, Module&) override { send(KINDLING_ON_BATCH_END); }
  void on_validation_end(Trainer&, Module&) override { send(KINDLING_ON_VALIDATION_END); }
  void on_epoch_end(Trainer& trainer, Module& model, const Record& record) override;
  void on_fit_end(Trainer&, Module&, const FitResult&) override { send(KINDLING_ON_FIT_END); }
  std::string type_name() const override { return "kindling_c.EventCallback"; }

 private:
  void send(int32_t event);

  kindling_trainer handle_ = nullptr;
  int32_t events_ = 0;
  kindling_event_function function_ = nullptr;
  void* user_data_ = nullptr;
  TrainerHandle* owner_ = nullptr;
};

}  // namespace kindling::bindings
