#include "cli/config/chosen_keys.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "data/sources/table_rows.h"
#include "kindling/base/error.h"
#include "kindling/config/reader.h"
#include "kindling/data/table_data.h"
#include "kindling/formats/table.h"

namespace kindling {
namespace {

constexpr std::size_t kSmallTable = 500;  // rows

struct TableFacts {
  std::size_t num_rows = 0, num_classes = 0;
};

// Reads the columns to predict; nothing if the file cannot be read.
std::optional<TableFacts> facts_of(const TableDataOptions& options) try {
  TableOptions read = layout_of(options);
  read.skips_others = read.skips_broken = true;
  const bool is_number =
      options.label.empty() || std::ranges::find(options.numbers, options.label) != options.numbers.end();
  std::vector<std::string>& columns = is_number ? read.numbers : read.known_categories;
  columns = options.label.empty() ? options.target : std::vector{options.label};
  const Table table = read_table(options.file, read);
  TableFacts facts{.num_rows = table.num_rows};
  if (const TableColumn* label = table.find(options.label); label != nullptr && !is_number)
    facts.num_classes = label->categories.size();
  return facts;
} catch (const Error&) {
  return std::nullopt;
}

class KeyChooser {
 public:
  KeyChooser(ConfigDocument& document, const Registry& registry, std::optional<bool> has_target_scale)
      : document_(document), registry_(registry), has_target_scale_(has_target_scale) {}

  std::vector<ChosenKey> choose() {
    if (has("data.seed") && has("data.fold") && has("data.missing")) return {};
    if (const std::optional<TableDataOptions> table = table_options()) choose_for(*table);
    choose_scale();
    return std::move(chosen_);
  }

 private:
  bool has(const std::string& key) const {
    ConfigReader reader(document_);
    return reader.has(key);
  }
  std::string name_at(const std::string& key) const {
    ConfigReader reader(document_);
    return reader.read_name(key).value_or("");
  }

  void set(const std::string& key, const std::string& value, const std::string& reason) {
    if (has(key)) return;
    document_.set(key + "=" + value);
    chosen_.push_back({key, value, reason});
  }

  std::optional<TableDataOptions> table_options() const {
    ConfigReader reader(document_);
    if (const auto name = reader.read_name("data.name"); name && *name != "csv") return std::nullopt;
    if (!reader.has("data.file") || (!reader.has("data.label") && !reader.has("data.target")))
      return std::nullopt;
    TableDataOptions options;
    reader.read("data", OptionSet::of(options));
    const bool is_one = options.label.empty() != options.target.empty();
    return reader.num_errors() == 0 && is_one ? std::optional(options) : std::nullopt;
  }

  bool has_option(const std::string& model, const std::string& option) const {
    if (!registry_.models.has(model)) return false;
    const OptionSet options = registry_.models.maker(model).options();
    return std::ranges::any_of(options.refs(), [&](const OptionRef& ref) { return ref.name == option; });
  }

  void choose_for(const TableDataOptions& table) {
    const bool is_label = !table.label.empty();
    set("data.name", "\"csv\"", "data.file is a table");
    set("model.name", is_label ? "\"mlp\"" : "\"mlp_regressor\"",
        is_label ? "data.label is a column of classes" : "data.target is a column of numbers");
    const std::string model = name_at("model.name");
    const std::optional<TableFacts> facts = facts_of(table);
    if (facts && facts->num_classes > 0 && has_option(model, "num_classes"))
      set("model.num_classes", std::to_string(facts->num_classes), "the label has so many classes");
    for (const char* option : {"num_targets", "num_outputs"})
      if (!is_label && table.target.size() > 1 && has_option(model, option))
        set(std::string("model.") + option, std::to_string(table.target.size()),
            "data.target has so many columns");
    const bool is_split =
        table.val_fraction || table.folds || !table.val_files.empty() || has("data.train") || has("data.val");
    if (!is_split) set("data.val_fraction", "0.2", "the config has no split");
    if (!has("trainer.max_steps") && !has("trainer.max_time"))
      set("trainer.max_epochs", "20", "the config has no end");
    if (facts && facts->num_rows < kSmallTable && !has("optimizer"))
      set("data.batch_size", "16", "the table has " + std::to_string(facts->num_rows) + " rows");
  }

  // Numbers of 16 bits are too coarse for a mean.
  void choose_scale() {
    const std::string data = name_at("data.name"), precision = name_at("trainer.precision");
    if ((data != "csv" && data != "arrays") || !has_option(name_at("model.name"), "scale_target")) return;
    if (has_target_scale_)
      set("model.scale_target", *has_target_scale_ ? "true" : "false", "the weights are of such a model");
    else if (!precision.ends_with("-true"))
      set("model.scale_target", "true", "the unit of the targets does not matter then");
  }

  ConfigDocument& document_;
  const Registry& registry_;
  const std::optional<bool> has_target_scale_;
  std::vector<ChosenKey> chosen_;
};

}  // namespace

std::vector<ChosenKey> choose_keys(ConfigDocument& document, const Registry& registry,
                                   std::optional<bool> has_target_scale) {
  return KeyChooser(document, registry, has_target_scale).choose();
}

}  // namespace kindling
