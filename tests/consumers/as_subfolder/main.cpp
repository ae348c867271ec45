#include <kindling/data/digits.h>
#include <kindling/models/mlp.h>
#include <kindling/training/trainer.h>

#include <iostream>

namespace kd = kindling;

int main() {
  kd::Digits data({.batch_size = 32});
  auto model = std::make_shared<kd::Mlp>();
  kd::Trainer trainer({.max_epochs = 3});
  trainer.fit(model, data);
  std::cout << "val acc " << trainer.validate(model, data).at("val_acc") << "\n";
}
