#include "cli/config/chosen_keys.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <utility>

#include "base/joined.h"
#include "cli/config/image_facts.h"
#include "config/toml_text.h"
#include "data/sources/table_labels.h"
#include "data/sources/table_rows.h"
#include "data/sources/unified_values.h"
#include "kindling/base/error.h"
#include "kindling/config/options.h"
#include "kindling/config/reader.h"
#include "kindling/data/segmentation_folder.h"
#include "kindling/data/table_data.h"
#include "kindling/formats/table.h"

namespace kindling {
namespace {

constexpr std::size_t kSmallTable = 500;  // rows

struct TableFacts {
  std::size_t num_rows = 0, num_classes = 0;
};

std::size_t num_distinct(const TableColumn& column) {
  if (column.kind == ColumnKind::category) return column.categories.size();
  std::set<double> numbers;
  for (const double number : column.numbers)
    if (!std::isnan(number)) numbers.insert(number);
  return numbers.size();
}

// Reads the columns to predict, by the options that the data module reads them with; zeros if that fails.
TableFacts facts_of(const TableDataOptions& options) try {
  TableOptions read = layout_of(options);
  read.skips_broken = options.on_broken == "skip";
  read.skips_others = !read.skips_broken;  // which rows are broken depends on all columns
  if (read.skips_broken) read.numbers = options.numbers, read.categories = options.categories;
  const auto is_in = [&](const std::vector<std::string>& names, const std::string& name) {
    return std::ranges::find(names, name) != names.end();
  };
  const auto declare = [&](std::vector<std::string>& names, const std::string& name) {
    if (!is_in(names, name)) names.push_back(name);
  };
  for (const std::string& target : options.target) declare(read.numbers, target);
  if (!options.label.empty())
    declare(is_in(options.numbers, options.label)      ? read.numbers
            : is_in(options.categories, options.label) ? read.categories
                                                       : read.known_categories,
            options.label);
  Table table = read_table(options.file, read);
  TableFacts facts{.num_rows = table.num_rows};
  for (TableColumn& column : table.columns) {
    if (column.name != options.label) continue;
    if (!is_in(options.categories, column.name)) unify_values(column);
    facts.num_classes = options.label_separator.empty()
                            ? num_distinct(column)
                            : classes_in_sets(column, options.label_separator).size();
  }
  return facts;
} catch (const Error&) {
  return {};
}

struct RootOption {
  std::filesystem::path root{};
  static constexpr auto fields = kindling::fields(kindling::field("root", &RootOption::root));
};

class KeyChooser {
 public:
  KeyChooser(ConfigDocument& document, const Registry& registry, ConfigUse use, FormerChoices former)
      : document_(document), registry_(registry), use_(use), former_(std::move(former)) {}

  std::vector<ChosenKey> choose() {
    if (has("run.compact_memory") && has("trainer.precision") && has("data.shuffle"))
      return {};  // it has all keys
    const std::optional<TableDataOptions> table = table_options();
    if (former_.values)
      choose_as_former(table ? &*table : nullptr);
    else if (table)
      choose_for(*table);
    if (const auto root = image_root(); !root.empty()) choose_for_images(root);
    if (!former_.values) choose_scale();
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
    if (!has(key)) replace(key, value, reason);
  }
  void replace(const std::string& key, const std::string& value, const std::string& reason) {
    if (use_ == ConfigUse::data && !key.starts_with("data.")) return;
    document_.set(key + "=" + value);
    chosen_.push_back({key, value, reason});
  }

  // Keys that the run's model and data do not have are not among its values.
  void choose_as_former(const TableDataOptions* table) {
    const auto take = [&](const std::string& key) {
      const auto found = former_.values->find(key);
      if (found != former_.values->end()) set(key, found->second, "the run began with it");
    };
    take("model.scale_target");
    if (table == nullptr) return;
    for (const char* key :
         {"data.name", "model.name", "model.num_classes", "model.num_targets", "model.num_outputs",
          "data.val_fraction", "trainer.max_epochs", "data.batch_size"})
      take(key);
    if (!table->label_separator.empty()) take("model.multi_label");
  }

  // Throws ConfigError with the errors of the options, if keys are missing that they decide: only these would
  // be reported.
  std::optional<TableDataOptions> table_options() const {
    ConfigReader reader(document_);
    if (const auto name = reader.read_name("data.name"); name && *name != "csv") return std::nullopt;
    if (!reader.has("data.file") || (!reader.has("data.label") && !reader.has("data.target")))
      return std::nullopt;
    TableDataOptions options;
    reader.read("data", OptionSet::of(options));
    const bool is_one = options.label.empty() != options.target.empty();
    if (reader.num_errors() == 0) return is_one ? std::optional(options) : std::nullopt;
    const bool has_end = has("trainer.max_epochs") || has("trainer.max_steps") || has("trainer.max_time");
    if (has("data.name") && has("model.name") && (has_end || use_ != ConfigUse::fit)) return std::nullopt;
    reader.skip("");  // keys of other readers
    reader.finish();
    return std::nullopt;
  }

  bool is_split() const {
    const auto is_set = [&](const char* key) { return has(key); };
    return std::ranges::any_of(std::array{"data.val_fraction", "data.folds", "data.train", "data.val",
                                          "data.val_files", "data.val_root"},
                               is_set);
  }

  void choose_end() {
    if (use_ == ConfigUse::fit && !has("trainer.max_steps") && !has("trainer.max_time"))
      set("trainer.max_epochs", "20", "no end is set");
  }

  // Empty if the config says what its data are.
  std::filesystem::path image_root() const {
    ConfigReader reader(document_);
    RootOption options;
    if (!reader.has("data.name")) reader.read("data", OptionSet::of(options));
    return options.root;
  }

  void choose_for_images(const std::filesystem::path& root) {
    ImageFacts images = facts_of_images(root);
    if (images.data_name.empty()) return;
    const bool has_masks = !images.masks.empty();
    set("data.name", config::toml_text(images.data_name), images.layout);
    if (images.root != root) replace("data.root", config::toml_text(images.root), images.layout);
    if (!images.val_root.empty() && !is_split())
      set("data.val_root", config::toml_text(images.val_root), images.layout);
    if (has_masks && images.images != "images") {
      set("data.images", config::toml_text(images.images), images.layout);
      set("data.masks", config::toml_text(images.masks), images.layout);
    }
    if (has_masks) choose_classes_of_masks(images);
    if (images.resizes)
      set("data.size", "[" + std::to_string(images.size[0]) + ", " + std::to_string(images.size[1]) + "]",
          images.sizes);
    if (images.has_other_channels) set("data.channels", "3", "some images are grey, others have colors");
    if (!is_split()) {
      set("data.val_fraction", "0.2", "no split is set");
      if (!has_masks) set("data.stratify", "true", "each class is split");
    }
    choose_model(images);
    choose_end();
  }

  // The classes are those that the config names, or the values in the masks.
  void choose_classes_of_masks(ImageFacts& images) {
    ConfigReader reader(document_);
    SegmentationFolderOptions options;
    reader.read("data", OptionSet::of(options));
    images.num_classes = std::max(options.mask_values.size(), options.classes.size());
    if (images.num_classes > 0) return;
    const std::vector<std::int64_t> values = class_values(images, options.ignore_index);
    images.num_classes = values.size();
    if (!values.empty())
      set("data.mask_values",
          "[" + joined(values, ", ", [](std::int64_t value) { return std::to_string(value); }) + "]",
          "the masks have these values");
  }

  void choose_model(const ImageFacts& images) {
    constexpr std::int64_t kSmall = 32;
    const bool is_small = std::max(images.size[0], images.size[1]) <= kSmall;
    if (!images.masks.empty())
      set("model.name", "\"unet\"", "images with masks");
    else
      set("model.name", is_small ? "\"small_cnn\"" : "\"resnet18\"",
          is_small ? "the images are small" : "the images are larger than 32 x 32");
    const std::string model = name_at("model.name");
    if (images.num_classes > 0 && has_option(model, "num_classes"))
      set("model.num_classes", std::to_string(images.num_classes),
          images.masks.empty() ? "so many directories" : "the masks have so many classes");
    if (images.channels > 0 && has_option(model, "in_channels"))
      set("model.in_channels", std::to_string(images.channels),
          images.channels == 1 ? "the images are grey" : "the images have colors");
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
    const TableFacts facts = use_ == ConfigUse::data ? TableFacts{} : facts_of(table);
    const std::size_t num_classes = former_.num_classes > 0 ? former_.num_classes : facts.num_classes;
    if (num_classes > 0 && has_option(model, "num_classes"))
      set("model.num_classes", std::to_string(num_classes),
          former_.num_classes > 0 ? "the weights are of such a model" : "the label has so many classes");
    if (!table.label_separator.empty() && has_option(model, "num_classes"))
      set("model.multi_label", "true", "data.label_separator separates several labels of a row");
    for (const char* option : {"num_targets", "num_outputs"})
      if (!is_label && table.target.size() > 1 && has_option(model, option))
        set(std::string("model.") + option, std::to_string(table.target.size()),
            "data.target has so many columns");
    if (!is_split()) set("data.val_fraction", "0.2", "no split is set");
    choose_end();
    if (use_ == ConfigUse::fit && facts.num_rows > 0 && facts.num_rows < kSmallTable && !has("optimizer"))
      set("data.batch_size", "16", "the table has " + std::to_string(facts.num_rows) + " rows");
  }

  // Numbers of 16 bits are too coarse for a mean.
  void choose_scale() {
    const std::string data = name_at("data.name"), precision = name_at("trainer.precision");
    if ((data != "csv" && data != "arrays") || !has_option(name_at("model.name"), "scale_target")) return;
    if (has("data.horizon")) return;  // the data scale the targets as the inputs
    if (former_.has_target_scale)
      set("model.scale_target", *former_.has_target_scale ? "true" : "false",
          "the weights are of such a model");
    else if (precision != "bf16-true" && precision != "16-true")
      set("model.scale_target", "true", "the unit of the targets does not matter then");
  }

  ConfigDocument& document_;
  const Registry& registry_;
  const ConfigUse use_;
  const FormerChoices former_;
  std::vector<ChosenKey> chosen_;
};

}  // namespace

std::vector<std::string> texts_of(const std::vector<ChosenKey>& chosen) {
  std::vector<std::string> texts;
  for (const ChosenKey& key : chosen) texts.push_back(key.key + " = " + key.value);
  return texts;
}

std::vector<ChosenKey> choose_keys(ConfigDocument& document, const Registry& registry, ConfigUse use,
                                   FormerChoices former) {
  return KeyChooser(document, registry, use, std::move(former)).choose();
}

}  // namespace kindling
