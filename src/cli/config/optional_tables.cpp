// The tables that a config could have in addition to its own, for `--print-config=all`.
#include <algorithm>

#include "cli/config/run_config.h"

namespace kindling {
namespace {

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

}  // namespace

std::string RunConfig::text_with_optional_tables(const Registry& registry) const {
  OptionalTables tables(tables_);
  add_optional_transforms(tables, registry);
  add_optional_optimization(tables, registry);
  const std::string off = "off without this table";
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

}  // namespace kindling
