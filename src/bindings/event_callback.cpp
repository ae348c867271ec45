#include "bindings/event_callback.h"

#include <string>

#include "bindings/trainer_handle.h"

namespace kindling::bindings {

void EventCallback::set(kindling_trainer handle, int32_t events, kindling_event_function function,
                        void* user_data) {
  handle_ = handle;
  events_ = function == nullptr ? 0 : events;
  function_ = function;
  user_data_ = user_data;
}

void EventCallback::on_epoch_end(Trainer&, Module&, const Record& record) {
  owner_->metrics = Metrics(record.values.begin(), record.values.end());
  send(KINDLING_ON_EPOCH_END);
}

void EventCallback::send(int32_t event) {
  if ((events_ & event) == 0) return;
  int32_t answer = 0;
  try {
    const CallerScope scope;
    answer = function_(handle_, event, user_data_);
  } catch (...) {
    throw StatusError(KINDLING_CALLBACK_ERROR,
                      {.place = "the callback of kindling_set_callback",
                       .found = "it has thrown an exception at event " + std::to_string(event),
                       .wanted = "a number, 0 to continue"});
  }
  if (answer != 0)
    throw StatusError(KINDLING_CALLBACK_ERROR, {.place = "the callback of kindling_set_callback",
                                                .found = "it has returned " + std::to_string(answer) +
                                                         " at event " + std::to_string(event),
                                                .wanted = "0, to continue"});
}

}  // namespace kindling::bindings
