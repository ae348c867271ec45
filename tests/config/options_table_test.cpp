#include <gtest/gtest.h>

#include "kindling/config/printer.h"

namespace kindling {
namespace {

struct ListedOptions {
  std::int64_t layers = 2;
  std::optional<double> rate{};
  std::vector<double> rates{0.5, 1e-4};
  std::array<double, 2> betas{0.9, 0.999};
  CountOrFraction batches = 1.0;
  std::string mode = "min";
  std::filesystem::path file{};
  bool is_on = false;

  static constexpr auto fields = kindling::fields(
      field(
          "layers", &ListedOptions::layers,
          {.doc = "number of layers", .min = 1, .policy = {.on_resume = OptionPolicy::OnResume::may_change}}),
      field("rate", &ListedOptions::rate, {.doc = "a | b, net.*", .min = 0, .min_excluded = true}),
      field("rates", &ListedOptions::rates), field("betas", &ListedOptions::betas),
      field("batches", &ListedOptions::batches), field("mode", &ListedOptions::mode, {.choices = "|min|max"}),
      field("file", &ListedOptions::file), field("is_on", &ListedOptions::is_on));
};

TEST(OptionsTable, HasTypesDefaultsAndDescriptions) {
  ListedOptions options;
  EXPECT_EQ(options_table(OptionSet::of(options)),
            "| key | type | default | description |\n"
            "|---|---|---|---|\n"
            "| `layers` | integer >= 1 | `2` | number of layers (may change on resume) |\n"
            "| `rate` | number > 0 | absent | a \\| b, net.\\* |\n"
            "| `rates` | array of numbers | `[0.5, 1e-04]` |  |\n"
            "| `betas` | array of 2 numbers | `[0.9, 0.999]` |  |\n"
            "| `batches` | integer, or fraction up to 1.0 | `1.0` |  |\n"
            "| `mode` | `\"\"`, `\"min\"`, `\"max\"` | `\"min\"` |  |\n"
            "| `file` | path | `\"\"` |  |\n"
            "| `is_on` | boolean | `false` |  |\n");
}

}  // namespace
}  // namespace kindling
