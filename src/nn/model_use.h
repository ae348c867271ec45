#pragma once

#include <string>

#include "base/thread_use.h"
#include "kindling/base/error.h"
#include "kindling/nn/module.h"

namespace kindling {

// While it lives, this thread uses the model. Throws Error that names the model and both calls if another
// thread is using it.
class ModelUse {
 public:
  ModelUse(Module& model, const char* location)
      : use_(model.thread_owner(), location, [&](const std::string& other) {
          throw Error({.place = location,
                       .found = "another trainer is using the model " + model.name() + ", in " + other +
                                " on another thread",
                       .wanted = "one trainer at a time",
                       .remedy = "give each trainer a model of its own"});
        }) {}

 private:
  const ThreadUse use_;
};

}  // namespace kindling
