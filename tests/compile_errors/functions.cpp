#include "kindling/optim/optimizer_factory.h"
#include "kindling/optim/schedule.h"
#include "kindling/optim/sgd.h"

namespace {

void functions(kindling::OptimizerFactory& optimizer, kindling::Schedule& schedule) {
  optimizer = kindling::Sgd(kindling::ParameterGroups{}, {});  // error: an optimizer is given as a function
  optimizer = std::make_unique<kindling::Sgd>(
      kindling::ParameterGroups{}, kindling::SgdOptions{});  // error: an optimizer is given as a function
  optimizer = [](kindling::ParameterGroups all) {            // error: an optimizer is given as a function
    return std::make_shared<kindling::Sgd>(all, kindling::SgdOptions{});
  };
  schedule = [](const kindling::SchedulePoint&) {};  // error: a schedule returns the learning rate
}

}  // namespace
