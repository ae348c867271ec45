#pragma once

#include <concepts>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "kindling/config/catalog.h"
#include "kindling/data/data_module.h"
#include "kindling/data/transform.h"
#include "kindling/loggers/logger.h"
#include "kindling/metrics/metric.h"
#include "kindling/nn/module.h"
#include "kindling/optim/optimizer_factory.h"
#include "kindling/optim/schedule.h"
#include "kindling/training/callback.h"

namespace kindling {

// The components that a config file can name. Fill it explicitly:
//
//   Registry registry;
//   register_builtin(registry);
//   registry.model<MyMlp, MyMlpOptions>("my_mlp", "a custom MLP");
//
// Throws ConfigError if a name is registered twice per kind. Types without options are default-constructed.
class Registry {
 public:
  using DataFactory = std::function<std::shared_ptr<DataModule>(const DataOptions&)>;
  using ScheduleFactory = std::function<Schedule(std::vector<Schedule> parts)>;
  using LoggerFactory = std::function<std::shared_ptr<Logger>(const std::filesystem::path& run_folder)>;

  Registry() = default;
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  // Registers T(Options) for `[model]` with `name`.
  template <class T, class Options = NoOptions>
  void model(std::string name, std::string doc = "") {
    static_assert(std::derived_from<T, Module> && can_make<T, Options>,
                  "a model derives from kindling::Module and has a constructor T(Options), or T() when "
                  "registered without options");
    models.add(std::move(name), std::move(doc), Options{}, &made<T, Options>);
  }

  // Registers T(Options) for the list `model.metrics`, with these options.
  template <class T, class Options = NoOptions>
  void metric(std::string name, std::string doc = "", Options options = {}) {
    static_assert(std::derived_from<T, Metric> && can_make<T, Options>,
                  "a metric derives from kindling::Metric and has a constructor T(Options), or T() when "
                  "registered without options");
    metrics.add(std::move(name), std::move(doc), std::move(options), &made<T, Options>);
  }

  // Registers T(Options) for a table `[callbacks.NAME]`.
  template <class T, class Options = NoOptions>
  void callback(std::string name, std::string doc = "") {
    static_assert(std::derived_from<T, Callback> && can_make<T, Options>,
                  "a callback derives from kindling::Callback and has a constructor T(Options), or T() when "
                  "registered without options");
    callbacks.add(std::move(name), std::move(doc), Options{}, &made<T, Options>);
  }

  // Registers T(Options, run_directory), a std::filesystem::path, for a table `[loggers.NAME]`.
  template <class T, class Options = NoOptions>
  void logger(std::string name, std::string doc = "") {
    static_assert(std::derived_from<T, Logger> && can_make<T, Options, std::filesystem::path>,
                  "a logger derives from kindling::Logger and has a constructor T(Options, "
                  "std::filesystem::path), or T(std::filesystem::path) when registered without options");
    loggers.add(std::move(name), std::move(doc), Options{}, [](const Options& options) {
      return [options](const std::filesystem::path& folder) { return made<T>(options, folder); };
    });
  }

  // Registers T(Options, DataOptions) for `[data]` with `name`.
  template <class T, class Options = NoOptions>
  void data(std::string name, std::string doc = "") {
    static_assert(std::derived_from<T, DataModule> && can_make<T, Options, DataOptions>,
                  "a data module derives from kindling::DataModule and has a constructor T(Options, "
                  "DataOptions), or T(DataOptions) when registered without options");
    data_modules.add(std::move(name), std::move(doc), Options{}, [](const Options& options) {
      return [options](const DataOptions& shared) { return made<T>(options, shared); };
    });
  }

  // Registers T(Options), which changes batches on their device, under `name`.
  template <class T, class Options = NoOptions>
  void transform(std::string name, std::string doc = "") {
    static_assert(
        std::derived_from<T, Transform> && can_make<T, Options>,
        "a transform derives from kindling::Transform and has a constructor T(Options), or T() when "
        "registered without options");
    transforms.add(std::move(name), std::move(doc), Options{}, &made<T, Options>);
  }

  // Registers T(ParameterGroups, Options) for `[optimizer]` with `name`.
  template <class T, class Options>
  void optimizer(std::string name, std::string doc = "") {
    static_assert(
        std::derived_from<T, Optimizer> && std::constructible_from<T, ParameterGroups, const Options&>,
        "an optimizer derives from kindling::Optimizer and has a constructor T(ParameterGroups, Options)");
    optimizers.add(std::move(name), std::move(doc), Options{}, [](const Options& options) {
      return [options](ParameterGroups parameters) -> std::unique_ptr<Optimizer> {
        return std::make_unique<T>(std::move(parameters), options);
      };
    });
  }

  // Registers make(Options) → Schedule for `[schedule]` with `name`.
  template <class Options, class Made>
  void schedule(std::string name, std::string doc, Made (*make)(Options)) {
    static_assert(std::convertible_to<Made, Schedule>,
                  "a schedule is registered by a function Schedule(Options)");
    schedules.add(name, std::move(doc), Options{}, [make, name](const Options& options) {
      return [=](const std::vector<Schedule>& parts) -> Schedule {
        return parts.empty() ? make(options) : refuse_parts(name);
      };
    });
  }

  // Registers make(parts, Options) → Schedule, made of others, for `[[schedule.parts]]` with `name`.
  template <class Options>
  void schedule(std::string name, std::string doc, Schedule (*make)(std::vector<Schedule>, Options)) {
    schedules.add(std::move(name), std::move(doc), Options{}, [make](const Options& options) {
      return [=](std::vector<Schedule> parts) { return make(std::move(parts), options); };
    });
  }

  Catalog<std::shared_ptr<Module>> models{"model"};
  Catalog<std::shared_ptr<const Metric>> metrics{"metric"};
  Catalog<std::shared_ptr<Callback>> callbacks{"callback"};
  Catalog<LoggerFactory> loggers{"logger"};
  Catalog<DataFactory> data_modules{"data set"};
  Catalog<std::shared_ptr<const Transform>> transforms{"transform"};
  Catalog<OptimizerFactory> optimizers{"optimizer"};
  Catalog<ScheduleFactory> schedules{"schedule"};

 private:
  [[noreturn]] static Schedule refuse_parts(const std::string& schedule);

  template <class T, class Options, class... More>
  static constexpr bool can_make =
      std::is_same_v<Options, NoOptions> ? std::constructible_from<T, const More&...>
                                         : std::constructible_from<T, const Options&, const More&...>;

  template <class T, class Options, class... More>
  static std::shared_ptr<T> made(const Options& options, const More&... more) {
    if constexpr (std::is_same_v<Options, NoOptions>)
      return std::make_shared<T>(more...);
    else
      return std::make_shared<T>(options, more...);
  }
};

// Adds everything that Kindling ships.
void register_builtin(Registry& registry);

}  // namespace kindling
