#include "program/run_config.h"

#include <ATen/Context.h>

#include "kindling/config/printer.h"
#include "kindling/tensors/state_dict.h"

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

RunConfig::RunConfig(const ConfigDocument& document, const Registry& registry,
                     const std::string& default_name) {
  ConfigReader reader(document);
  reader.read("", OptionSet::of(run));
  if (run.name.empty()) run.name = default_name;
  check_name(reader);
  if ((model_maker_ = choose(reader, "model", registry.models, ""))) {
    reader.read("model", OptionSet::of(model));
    reader.read("model", model_maker_->options());
  }
  if ((data_maker_ = choose(reader, "data", registry.data_modules, ""))) {
    reader.read("data", OptionSet::of(data_name_));
    reader.read("data", OptionSet::of(data_));
    reader.read("data", data_maker_->options());
  }
  if (reader.has("optimizer")) {
    optimizer_name_.name = "adam";
    if ((optimizer_maker_ = choose(reader, "optimizer", registry.optimizers, "adam"))) {
      reader.read("optimizer", OptionSet::of(optimizer_name_));
      reader.read("optimizer", optimizer_maker_->options());
    }
  }
  if (reader.has("schedule") &&
      (schedule_maker_ = choose(reader, "schedule", registry.schedules, "constant"))) {
    reader.read("schedule", OptionSet::of(schedule_));
    reader.read("schedule", OptionSet::of(warmup_));
    reader.read("schedule", schedule_maker_->options());
  }
  reader.read("trainer", OptionSet::of(trainer_));
  if (!trainer_.max_epochs && !trainer_.max_steps && !reader.has("trainer.max_epochs") &&
      !reader.has("trainer.max_steps"))
    reader.error("trainer", "'trainer.max_epochs' or 'trainer.max_steps' is missing");
  reader.read("run", OptionSet::of(folder));
  reader.finish();
}

// The name becomes a folder.
void RunConfig::check_name(ConfigReader& reader) const {
  const bool is_path = run.name.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos;
  if (is_path || run.name == "." || run.name == ".." || run.name.size() > 200)
    reader.error("name",
                 "'name' becomes a folder: expected at most 200 characters and neither '/', '\\' nor NUL");
}

std::string RunConfig::text() {
  const auto joined = [](OptionSet first, std::initializer_list<OptionSet> others) {
    for (const auto& other : others) first.append(other);
    return first;
  };
  std::vector<ConfigSection> sections{
      {.table = "", .doc = "", .options = OptionSet::of(run)},
      {.table = "model", .doc = "", .options = joined(OptionSet::of(model), {model_maker_->options()})},
      {.table = "data",
       .doc = "",
       .options = joined(OptionSet::of(data_name_), {OptionSet::of(data_), data_maker_->options()})}};
  if (optimizer_maker_)
    sections.push_back({.table = "optimizer",
                        .doc = "",
                        .options = joined(OptionSet::of(optimizer_name_), {optimizer_maker_->options()})});
  if (schedule_maker_)
    sections.push_back(
        {.table = "schedule",
         .doc = "",
         .options = joined(OptionSet::of(schedule_), {OptionSet::of(warmup_), schedule_maker_->options()})});
  sections.push_back({.table = "trainer", .doc = "", .options = OptionSet::of(trainer_)});
  sections.push_back({.table = "run", .doc = "", .options = OptionSet::of(folder)});
  return print_config(sections);
}

std::shared_ptr<Module> RunConfig::make_model() const {
  at::manual_seed(static_cast<std::uint64_t>(run.seed));
  auto made = model_maker_->make();
  if (model.init_weights) load_weights(*made, *model.init_weights);
  return made;
}

std::shared_ptr<DataModule> RunConfig::make_data() const {
  DataOptions options = data_;
  options.seed = run.seed;
  return data_maker_->make()(options);
}

TrainerOptions RunConfig::trainer_options() const {
  TrainerOptions options = trainer_;
  if (optimizer_maker_) options.optimizer = optimizer_maker_->make();
  if (schedule_maker_) {
    options.schedule = with_warmup(schedule_maker_->make(), warmup_);
    options.schedule_interval =
        schedule_.interval == "epoch" ? ScheduleInterval::epoch : ScheduleInterval::step;
  }
  return options;
}

}  // namespace kindling
