#include "program/run_config.h"

#include <ATen/Context.h>

#include <array>

#include "kindling/base/suggest.h"

namespace kindling {

template <class Product>
std::optional<Maker<Product>> RunConfig::choose(ConfigReader& reader, const std::string& table,
                                                const Catalog<Product>& catalog,
                                                const std::string& default_name) {
  const std::string key = table + ".name";
  const std::string name = reader.read_name(key).value_or(default_name);
  if (catalog.has(name)) return catalog.maker(name);
  const auto names = catalog.names();
  reader.error(
      key, name.empty() ? "'" + key + "' is missing" : "unknown name '" + name + "' in '" + key + "'", names);
  reader.skip(table);
  return std::nullopt;
}

template <class Product>
std::vector<Maker<Product>> RunConfig::choose_all(ConfigReader& reader, const std::string& prefix,
                                                  const Catalog<Product>& catalog) {
  std::vector<Maker<Product>> chosen;
  for (const std::string& name : catalog.names()) {
    if (!reader.has(prefix + "." + name)) continue;
    table(reader, prefix + "." + name, {chosen.emplace_back(catalog.maker(name)).options()});
  }
  return chosen;
}

void RunConfig::table(ConfigReader& reader, const std::string& name,
                      std::initializer_list<OptionSet> options) {
  ConfigSection& section = tables_.emplace_back(ConfigSection{.table = name});
  for (const OptionSet& set : options) {
    reader.read(name, set);
    section.options.append(set);
  }
}

RunConfig::RunConfig(const ConfigDocument& document, const Registry& registry,
                     const std::string& default_name) {
  ConfigReader reader(document);
  table(reader, "", {OptionSet::of(run)});
  if (run.name.empty()) run.name = default_name;
  check_name(reader);
  if ((model_maker_ = choose(reader, "model", registry.models, ""))) {
    table(reader, "model", {OptionSet::of(model), model_maker_->options()});
    choose_metrics(reader, registry);
  }
  if ((data_maker_ = choose(reader, "data", registry.data_modules, "")))
    table(reader, "data", {OptionSet::of(data_name_), OptionSet::of(data_), data_maker_->options()});
  if (reader.has("optimizer") &&
      (optimizer_maker_ = choose(reader, "optimizer", registry.optimizers, optimizer_name_.name)))
    table(reader, "optimizer",
          {OptionSet::of(optimizer_name_), optimizer_maker_->options(), OptionSet::of(optimizer_start)});
  if (reader.has("schedule") &&
      (schedule_maker_ = choose(reader, "schedule", registry.schedules, schedule_.name)))
    table(reader, "schedule", {OptionSet::of(schedule_), OptionSet::of(warmup_), schedule_maker_->options()});
  table(reader, "trainer", {OptionSet::of(trainer_)});
  if (!trainer_.max_epochs && !trainer_.max_steps && !reader.has("trainer.max_epochs") &&
      !reader.has("trainer.max_steps"))
    reader.error("trainer", "'trainer.max_epochs' or 'trainer.max_steps' is missing");
  table(reader, "checkpoint", {OptionSet::of(checkpoint), OptionSet::of(resume)});
  callback_makers_ = choose_all(reader, "callbacks", registry.callbacks);
  logger_makers_ = choose_all(reader, "loggers", registry.loggers);
  table(reader, "run", {OptionSet::of(folder)});
  reader.finish();
}

void RunConfig::choose_metrics(ConfigReader& reader, const Registry& registry) {
  const auto names = registry.metrics.names();
  for (const std::string& name : model.metrics) {
    if (registry.metrics.has(name))
      metric_makers_.push_back(registry.metrics.maker(name));
    else
      reader.error("model.metrics",
                   "unknown name '" + name + "' in 'model.metrics': expected " + list_names(names));
  }
}

// The name becomes a folder.
void RunConfig::check_name(ConfigReader& reader) const {
  const bool is_path = run.name.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos;
  if (is_path || run.name == "." || run.name == ".." || run.name.size() > 200)
    reader.error("name",
                 "'name' becomes a folder: expected at most 200 characters and neither '/', '\\' nor NUL");
}

std::map<std::string, std::string> RunConfig::values() const {
  std::map<std::string, std::string> values;
  for (const ConfigSection& section : tables_)
    for (const OptionRef& ref : section.options.refs()) {
      OptionSet alone;
      alone.add({ref.name, {}, ref.value});
      const std::string line = print_config(std::array{ConfigSection{.options = alone}});
      const std::string_view sign = " = ";
      const std::size_t at = line.find(sign);  // "# key =" has no value
      if (at == std::string::npos) continue;
      values[section.table.empty() ? ref.name : section.table + "." + ref.name] =
          line.substr(at + sign.size(), line.size() - at - sign.size() - 1);
    }
  return values;
}

Module::Monitor RunConfig::monitor_of(const Module& of) const {
  Module::Monitor monitor = of.monitor();
  if (!checkpoint.monitor.empty()) monitor.name = checkpoint.monitor;
  if (!checkpoint.mode.empty()) monitor.higher_is_better = checkpoint.mode == "max";
  return monitor;
}

std::shared_ptr<Module> RunConfig::make_model() const {
  at::manual_seed(static_cast<std::uint64_t>(run.seed));
  auto made = model_maker_->make();
  for (std::size_t i = 0; i < metric_makers_.size(); ++i)
    made->add_metric(model.metrics[i], metric_makers_[i].make());
  return made;
}

std::shared_ptr<DataModule> RunConfig::make_data() const {
  DataOptions options = data_;
  options.seed = run.seed;
  return data_maker_->make()(options);
}

TrainerOptions RunConfig::trainer_options() const {
  TrainerOptions options = trainer_;
  for (const auto& maker : callback_makers_) options.callbacks.push_back(maker.make());
  if (optimizer_maker_) options.optimizer = optimizer_maker_->make();
  if (schedule_maker_) {
    options.schedule = with_warmup(schedule_maker_->make(), warmup_);
    options.schedule_interval =
        schedule_.interval == "epoch" ? ScheduleInterval::epoch : ScheduleInterval::step;
  }
  return options;
}

std::vector<std::shared_ptr<Logger>> RunConfig::make_loggers(const std::filesystem::path& run_folder) const {
  std::vector<std::shared_ptr<Logger>> loggers;
  for (const auto& maker : logger_makers_) loggers.push_back(maker.make()(run_folder));
  return loggers;
}

}  // namespace kindling
