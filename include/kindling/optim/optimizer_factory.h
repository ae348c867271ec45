#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

#include "kindling/optim/optimizer.h"

namespace kindling {

template <class T>
concept ReadyMadeOptimizer =
    std::derived_from<T, Optimizer> || std::derived_from<typename T::element_type, Optimizer>;

template <class F>
concept MakesNoOptimizer = std::invocable<F&, ParameterGroups> &&
    !std::convertible_to<std::invoke_result_t<F&, ParameterGroups>, std::unique_ptr<Optimizer>>;

// Creates the optimizer of a model once its parameters exist: any function with this signature. A lambda that
// returns different classes needs `-> std::unique_ptr<Optimizer>`.
class OptimizerFactory : public std::function<std::unique_ptr<Optimizer>(ParameterGroups parameters)> {
 public:
  using function::function;
  OptimizerFactory() = default;
  OptimizerFactory(function make) : function(std::move(make)) {}

  // Gives a one-line compiler error.
  template <class T>
  requires ReadyMadeOptimizer<T> || MakesNoOptimizer<T> OptimizerFactory(const T&) {
    static_assert(sizeof(T) == 0,
                  "an optimizer is given as a function that makes it: [](kindling::ParameterGroups p) "
                  "{ return std::make_unique<kindling::Sgd>(std::move(p), kindling::SgdOptions{}); }");
  }
};

}  // namespace kindling
