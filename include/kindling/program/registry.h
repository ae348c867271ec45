#pragma once

#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "kindling/config/catalog.h"
#include "kindling/data/data_module.h"
#include "kindling/nn/module.h"
#include "kindling/optim/optimizer.h"
#include "kindling/optim/schedule.h"

namespace kindling {

// What a config file can name. Filled explicitly:
//
//   Registry registry;
//   register_builtin(registry);
//   registry.model<MyMlp, MyMlpOptions>("my_mlp", "an MLP of my own");
//
// A name can be taken once per kind (ConfigError).
class Registry {
 public:
  using DataFactory = std::function<std::shared_ptr<DataModule>(const DataOptions&)>;

  Registry() = default;
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  // T(Options), or T() for NoOptions.
  template <class T, OptionStruct Options = NoOptions>
  void model(std::string name, std::string doc = "") {
    models.add(std::move(name), std::move(doc), Options{},
               [](const Options& options) -> std::shared_ptr<Module> {
                 if constexpr (std::is_same_v<Options, NoOptions>)
                   return std::make_shared<T>();
                 else
                   return std::make_shared<T>(options);
               });
  }

  // T(Options, DataOptions), or T(DataOptions) for NoOptions.
  template <class T, OptionStruct Options = NoOptions>
  void data(std::string name, std::string doc = "") {
    data_modules.add(std::move(name), std::move(doc), Options{}, [](const Options& options) {
      return [options](const DataOptions& shared) -> std::shared_ptr<DataModule> {
        if constexpr (std::is_same_v<Options, NoOptions>)
          return static_cast<void>(options), std::make_shared<T>(shared);
        else
          return std::make_shared<T>(options, shared);
      };
    });
  }

  // T(parameters, Options).
  template <class T, OptionStruct Options>
  void optimizer(std::string name, std::string doc = "") {
    optimizers.add(std::move(name), std::move(doc), Options{}, [](const Options& options) {
      return [options](std::vector<at::Tensor> parameters) -> std::unique_ptr<Optimizer> {
        return std::make_unique<T>(std::move(parameters), options);
      };
    });
  }

  // make(Options) → Schedule.
  template <OptionStruct Options>
  void schedule(std::string name, std::string doc, Schedule (*make)(Options)) {
    schedules.add(std::move(name), std::move(doc), Options{}, make);
  }

  Catalog<std::shared_ptr<Module>> models{"model"};
  Catalog<DataFactory> data_modules{"data set"};
  Catalog<OptimizerFactory> optimizers{"optimizer"};
  Catalog<Schedule> schedules{"schedule"};
};

// Adds everything that Kindling ships.
void register_builtin(Registry& registry);

}  // namespace kindling
