// A host with a loop of its own, such as a game or a window: each turn handles events and then makes a
// training step, if there is one to make. A callback counts epochs for the display, and another thread, here
// a user who has seen enough, stops the training. The host continues.
#include <kindling/kindling.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>
#include <thread>

namespace kd = kindling;

namespace {

// What the host shows; only its own thread touches it.
struct Display {
  std::int64_t epochs = 0;
  double accuracy = 0;
};

class ShowProgress : public kd::Callback {
 public:
  explicit ShowProgress(Display& display) : display_(display) {}
  void on_epoch_end(kd::Trainer&, kd::Module&, const kd::Record& record) override {
    ++display_.epochs;
    if (const double* accuracy = record.find("val_acc")) display_.accuracy = *accuracy;
  }

 private:
  Display& display_;
};

// A training in parts that are as long as one step.
class Training {
 public:
  explicit Training(Display& display)
      : trainer_({.max_epochs = 1000,
                  .num_gpus = 1,
                  .num_threads = 1,
                  .callbacks = {std::make_shared<ShowProgress>(display)}}) {
    trainer_.prepare_data(data_);
    trainer_.prepare_model(model_);
    next_epoch();
  }

  // Makes one step, or ends an epoch. Returns false once the training has ended.
  bool advance() {
    if (trainer_.is_done()) return false;
    if (*position_ == std::default_sentinel) {
      trainer_.finish_epoch();  // validates
      next_epoch();
      return !trainer_.is_done();
    }
    trainer_.train_step(**position_);
    ++*position_;
    return true;
  }
  kd::StopToken stop_token() const { return trainer_.stop_token(); }

 private:
  void next_epoch() {
    if (!trainer_.is_done()) position_.emplace(trainer_.train_batches().begin());
  }

  kd::Digits data_{{.batch_size = 64}};
  std::shared_ptr<kd::Mlp> model_ = std::make_shared<kd::Mlp>(kd::MlpOptions{.hidden = {64}});
  kd::Trainer trainer_;
  std::optional<kd::TrainBatches::Iterator> position_;
};

}  // namespace

int main() {
  torch::manual_seed(0);
  Display display;
  Training training(display);
  std::atomic<bool> has_seen_enough = false;
  std::thread user([&, stop = training.stop_token()] {
    while (!has_seen_enough) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    stop.request_stop();
  });

  std::int64_t turns = 0, steps = 0;
  bool is_training = true;
  while (is_training || turns < steps + 10) {  // the host continues after the training
    ++turns;                                   // events of the window would be handled here
    if (is_training && (is_training = training.advance())) ++steps;
    if (display.accuracy >= 0.95) has_seen_enough = true;
  }
  user.join();
  std::cout << display.epochs << " epochs, accuracy " << display.accuracy << ", stopped by the user after "
            << steps << " of " << turns << " turns\n";
  return display.accuracy >= 0.95 && display.epochs < 1000 ? 0 : 1;
}
