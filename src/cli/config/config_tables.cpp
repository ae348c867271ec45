#include "cli/config/config_tables.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <variant>

namespace kindling {
namespace {

std::string key_of(const ConfigSection& section, const OptionRef& option) {
  return section.table.empty() ? option.name : section.table + "." + option.name;
}

// Adds tables to those of a config, printed as comments, and owns their options.
class OptionalTables {
 public:
  explicit OptionalTables(const std::vector<ConfigSection>& present) : sections_(present) {}

  // Default options, whose OptionSet stays valid as long as this object.
  template <class Options>
  OptionSet defaults(Options options = {}) {
    const auto owned = std::make_shared<Options>(std::move(options));
    owned_.push_back(owned);
    return OptionSet::of(*owned);
  }
  // Returns the options of a catalog entry; none for an unknown name.
  template <class Product>
  OptionSet defaults(const Catalog<Product>& catalog, const std::string& name) {
    if (!catalog.has(name)) return {};
    const auto owned = std::make_shared<Maker<Product>>(catalog.maker(name));
    owned_.push_back(owned);
    return owned->options();
  }
  // Adds a table unless the config has it.
  void add(const std::string& table, const std::string& doc, std::initializer_list<OptionSet> sets) {
    const auto is_same = [&](const ConfigSection& section) { return section.table == table; };
    if (std::ranges::any_of(sections_, is_same)) return;
    ConfigSection section{.table = table, .doc = doc, .enabled = false};
    for (const OptionSet& set : sets) section.options.append(set);
    sections_.push_back(std::move(section));
  }
  // Adds a table `PREFIX.NAME` for each name of a catalog.
  template <class Product>
  void add_all(const std::string& prefix, const std::string& doc, const Catalog<Product>& catalog) {
    for (const std::string& name : catalog.names())
      add(prefix + "." + name, doc + catalog.doc(name), {defaults(catalog, name)});
  }
  std::string text() const { return print_config(sections_); }

 private:
  std::vector<ConfigSection> sections_;
  std::vector<std::shared_ptr<void>> owned_;
};

void add_optional_transforms(OptionalTables& tables, const Registry& registry) {
  const NameOption augmentation{"random_crop"}, scaling{"normalize"};
  tables.add("data.train_transforms[0]", "changes the training images; can be repeated",
             {tables.defaults(augmentation), tables.defaults(registry.transforms, augmentation.name)});
  tables.add("data.val_transforms[0]", "changes the images of validation and prediction; can be repeated",
             {tables.defaults(scaling), tables.defaults(registry.transforms, scaling.name)});
}

void add_optional_optimization(OptionalTables& tables, const Registry& registry) {
  const NameOption optimizer{"adam"}, part{"cosine"};
  tables.add("optimizer", "without this table the model chooses its optimizer",
             {tables.defaults(optimizer), tables.defaults(registry.optimizers, optimizer.name),
              tables.defaults<OptimizerStartOptions>()});
  tables.add("optimizer.groups[0]", "values for the parameters that match; can be repeated",
             {tables.defaults<GroupPattern>()});
  const ScheduleOptions schedule;
  tables.add("schedule", "without this table the learning rate is constant",
             {tables.defaults(schedule), tables.defaults<WarmupOptions>(),
              tables.defaults(registry.schedules, schedule.name)});
  tables.add("schedule.parts[0]", "for the schedule \"sequence\" only; can be repeated",
             {tables.defaults(part), tables.defaults(registry.schedules, part.name)});
}

// Tables and keys that concern one process.
constexpr std::array kTablesOfRanks{"run.",
                                    "loggers.",
                                    "checkpoint.resume",
                                    "distributed.timeout_s",
                                    "distributed.max_restarts",
                                    "checkpoint.every_minutes",
                                    "data.num_workers",
                                    "data.resident"};

bool is_path(const OptionPointer& value) {
  return std::visit(
      []<class Value>(const Value*) {
        using std::filesystem::path;
        return std::is_same_v<Value, path> || std::is_same_v<Value, std::optional<path>> ||
               std::is_same_v<Value, std::vector<path>>;
      },
      value);
}

// Prints the table of a finder as a comment from now on.
template <class Options>
void end_search(ConfigTables& tables, OptionalTable<Options>& finder, const std::string& name) {
  finder.is_on = false;
  for (ConfigSection& section : tables.sections)
    if (section.table == name) {
      section.enabled = false;
      section.doc = "the search of this run is done; with this table, a new run searches again";
    }
}

}  // namespace

OptionSet TrainerTable::set() {
  const OptionSet of_trainer = OptionSet::of(options);
  OptionSet all;
  for (OptionRef option : of_trainer.refs()) {
    if (option.name == "num_gpus") {
      option.value = &num_gpus;
      option.notes.doc = "number of GPUs; absent: one if there is one, 0: the CPU, -1: all GPUs";
      option.notes.example = "1";
    }
    all.add(std::move(option));
  }
  return all;
}

std::string ConfigTables::text_with_optional_tables(const Registry& registry) const {
  OptionalTables tables(sections);
  add_optional_transforms(tables, registry);
  add_optional_optimization(tables, registry);
  const std::string off = "off without this table";
  tables.add("on_spike", off, {tables.defaults<SpikeOptions>()});
  tables.add("early_stopping", off, {tables.defaults<EarlyStoppingOptions>()});
  tables.add("ema", off, {tables.defaults<ExponentialMovingAverageOptions>()});
  tables.add("swa", off, {tables.defaults<StochasticWeightAveragingOptions>()});
  tables.add("lr_finder", off, {tables.defaults<LrFinderOptions>(), tables.defaults<LrFinderUse>()});
  tables.add("batch_finder", off, {tables.defaults<BatchSizeFinderOptions>()});
  tables.add_all("metrics", "only if model.metrics lists it; ", registry.metrics);
  tables.add_all("callbacks", off + "; ", registry.callbacks);
  tables.add_all("loggers", off + "; ", registry.loggers);
  return tables.text();
}

std::map<std::string, std::string> ConfigTables::values() const {
  std::map<std::string, std::string> values;
  for (const ConfigSection& section : sections) {
    if (!section.enabled) continue;
    for (const OptionRef& ref : section.options.refs()) {
      OptionSet alone;
      alone.add({ref.name, {}, ref.value});
      const std::string line = print_config(std::array{ConfigSection{.options = alone}});
      const std::string_view sign = " = ";
      const std::size_t at = line.find(sign);  // "# key =" has no value
      if (at == std::string::npos) continue;
      values[key_of(section, ref)] = line.substr(at + sign.size(), line.size() - at - sign.size() - 1);
    }
  }
  return values;
}

std::map<std::string, std::string> ConfigTables::shared_values() const {
  std::map<std::string, std::string> shared = values();
  std::erase_if(shared, [](const auto& value) {
    return std::ranges::any_of(kTablesOfRanks,
                               [&](const char* table) { return value.first.starts_with(table); });
  });
  for (const ConfigSection& section : sections)
    for (const OptionRef& ref : section.options.refs())
      if (is_path(ref.value) || ref.notes.policy.across_ranks == OptionPolicy::AcrossRanks::may_differ)
        shared.erase(key_of(section, ref));
  return shared;
}

OptionPolicy ConfigTables::policy_of(const std::string& key) const {
  for (const ConfigSection& section : sections)
    for (const OptionRef& ref : section.options.refs())
      if (key_of(section, ref) == key) return ref.notes.policy;
  return {};
}

double* ConfigTables::optimizer_lr() {
  if (!optimizer.maker) return nullptr;
  const OptionSet options = optimizer.maker->options();
  for (const OptionRef& option : options.refs())
    if (double* const* lr = std::get_if<double*>(&option.value); lr != nullptr && option.name == "lr")
      return *lr;
  return nullptr;
}

void ConfigTables::take_batch_size(std::int64_t batch_size) {
  data_options.batch_size = batch_size;
  end_search(*this, batch_finder, "batch_finder");
}

void ConfigTables::take_lr(std::optional<double> lr, double instead_of) {
  if (double* const own = optimizer_lr(); lr && own != nullptr) {
    const double factor = *lr / instead_of;
    *own = *own == instead_of ? *lr : *own * factor;
    for (GroupPattern& group : groups)
      if (group.lr) *group.lr *= factor;
  }
  end_search(*this, lr_finder, "lr_finder");
}

void ConfigTables::keep_found(ConfigTables& former) {
  if (!trainer.options.num_threads) trainer.options.num_threads = former.trainer.options.num_threads;
  if (batch_finder.is_on && !former.batch_finder.is_on) {
    folder.compact_memory = former.folder.compact_memory;
    take_batch_size(former.data_options.batch_size);
  }
  if (!lr_finder.is_on || former.lr_finder.is_on) return;
  double *const own = optimizer_lr(), *const found = former.optimizer_lr();
  if (lr_finder.use.update_attr && own != nullptr && found != nullptr) {
    *own = *found;
    for (std::size_t i = 0; i < std::min(groups.size(), former.groups.size()); ++i)
      groups[i].lr = former.groups[i].lr;
  }
  end_search(*this, lr_finder, "lr_finder");
}

std::vector<ConfigChange> changes_between(const ConfigTables& was, const ConfigTables& now) {
  std::map<std::string, ConfigChange> changes;
  for (const auto& [key, value] : was.values()) changes[key] = {key, value, "not set"};
  for (const auto& [key, value] : now.values())
    changes.try_emplace(key, ConfigChange{key, "not set", ""}).first->second.now = value;
  changes.erase("checkpoint.resume");  // concerns this start, not the run
  std::vector<ConfigChange> differing;
  for (const auto& [key, change] : changes)
    if (change.was != change.now) differing.push_back(change);
  return differing;
}

}  // namespace kindling
