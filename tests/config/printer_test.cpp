#include "kindling/config/printer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kindling/base/error.h"
#include "kindling/config/document.h"
#include "kindling/config/reader.h"

namespace kindling {
namespace {

struct SeedOptions {
  std::int64_t seed = 0;
  static constexpr auto fields = kindling::fields(kindling::field("seed", &SeedOptions::seed));
};

struct PrintedNetOptions {
  std::vector<std::int64_t> hidden{256, 10};
  double lr = 1e-3;
  std::optional<double> max_time{};
  std::string mode = "norm";
  static constexpr auto fields = kindling::fields(
      kindling::field("hidden", &PrintedNetOptions::hidden, {.doc = "widths of the hidden layers", .min = 1}),
      kindling::field("lr", &PrintedNetOptions::lr,
                      {.doc = "learning rate", .min = 0, .max = 1, .min_excluded = true}),
      kindling::field("max_time", &PrintedNetOptions::max_time, {.doc = "stops after it, in seconds"}),
      kindling::field("mode", &PrintedNetOptions::mode, {.choices = "norm|value"}));
};

struct EveryTypePrinted {
  bool flag = true;
  std::int64_t count = std::numeric_limits<std::int64_t>::min();
  double rate = 0.1;
  std::string text{};
  std::filesystem::path file{};
  std::vector<double> rates{};
  std::vector<std::string> texts{};
  std::array<double, 2> betas{0.9, 0.999};
  std::optional<bool> maybe_flag{};
  std::optional<std::array<std::int64_t, 2>> maybe_counts{};
  std::optional<std::filesystem::path> maybe_file{};
  bool operator==(const EveryTypePrinted&) const = default;

  static constexpr auto fields = kindling::fields(
      kindling::field("flag", &EveryTypePrinted::flag), kindling::field("count", &EveryTypePrinted::count),
      kindling::field("rate", &EveryTypePrinted::rate, {.infinity_allowed = true}),
      kindling::field("text", &EveryTypePrinted::text), kindling::field("file", &EveryTypePrinted::file),
      kindling::field("rates", &EveryTypePrinted::rates, {.infinity_allowed = true}),
      kindling::field("texts", &EveryTypePrinted::texts), kindling::field("betas", &EveryTypePrinted::betas),
      kindling::field("maybe_flag", &EveryTypePrinted::maybe_flag),
      kindling::field("maybe_counts", &EveryTypePrinted::maybe_counts),
      kindling::field("maybe_file", &EveryTypePrinted::maybe_file));
};

std::string print_section(const ConfigSection& section) { return print_config({&section, 1}); }

// Returns the options after printing and reading them back, starting from other values.
EveryTypePrinted reread(EveryTypePrinted options) {
  const std::string text = print_section({.table = "every", .options = OptionSet::of(options)});
  const ConfigDocument document = ConfigDocument::parse(text, "printed.toml", "/elsewhere");
  EveryTypePrinted again{.text = "default", .rates = {1}, .texts = {"default"}};
  ConfigReader reader(document);
  reader.read("every", OptionSet::of(again));
  reader.finish();
  return again;
}

TEST(PrintConfig, CommentsEachKeyAndPutsTheTopFirst) {
  SeedOptions top;
  PrintedNetOptions net;
  PrintedNetOptions off;
  const std::vector<ConfigSection> sections{
      {.table = "net", .doc = "the network", .options = OptionSet::of(net)},
      {.table = "off", .options = OptionSet::of(off), .enabled = false},
      {.options = OptionSet::of(top)},
  };
  EXPECT_EQ(print_config(sections),
            "seed = 0\n"
            "\n"
            "# the network\n"
            "[net]\n"
            "hidden = [256, 10]  # widths of the hidden layers; >= 1\n"
            "lr = 0.001          # learning rate; > 0 and <= 1\n"
            "# max_time =        # stops after it, in seconds\n"
            "mode = \"norm\"       # \"norm\" | \"value\"\n"
            "\n"
            "# [off]\n"
            "# hidden = [256, 10]  # widths of the hidden layers; >= 1\n"
            "# lr = 0.001          # learning rate; > 0 and <= 1\n"
            "# # max_time =        # stops after it, in seconds\n"
            "# mode = \"norm\"       # \"norm\" | \"value\"\n");
}

TEST(PrintConfig, RoundTripsDefaultsAndEmptyValues) { EXPECT_TRUE(reread({}) == EveryTypePrinted{}); }

TEST(PrintValues, PrintsWhatIsSetAndNothingElse) {
  SeedOptions seed, off;
  PrintedNetOptions net;
  const ConfigSection sections[] = {{.table = "net", .doc = "a net", .options = OptionSet::of(net)},
                                    {.table = "off", .options = OptionSet::of(off), .enabled = false},
                                    {.table = "", .options = OptionSet::of(seed)},
                                    {.table = "parts[0]", .options = OptionSet::of(off)}};
  EXPECT_EQ(print_values(sections),
            "seed = 0\n[net]\nhidden = [256, 10]\nlr = 0.001\nmode = \"norm\"\n[[parts]]\nseed = 0\n");
}

TEST(PrintConfig, RoundTripsEveryBitOfDoubles) {
  const EveryTypePrinted options{
      .rate = -std::numeric_limits<double>::infinity(),
      .rates = {0.1 + 0.2, 1.0 / 3, 100, 1e22, -0.0, 5e-324, std::numeric_limits<double>::max(),
                std::numeric_limits<double>::infinity()}};
  const EveryTypePrinted again = reread(options);
  EXPECT_TRUE(again == options);
  EXPECT_TRUE(std::signbit(again.rates[4]));
}

TEST(PrintConfig, RoundTripsStringsOfAnyCharacters) {
  std::string every_byte;
  for (char c = 0; c < 127; ++c) every_byte += c;
  const EveryTypePrinted options{
      .text = every_byte + "\x7f",
      .texts = {"", "\"", "'''", "\"\"\"", "\\", "a\nb\r\n", "\xc2\x9b", "\xe2\x82\xac # [x]"}};
  EXPECT_TRUE(reread(options) == options);
}

TEST(PrintConfig, RoundTripsSetOptionals) {
  const EveryTypePrinted options{.file = "/x/ y\"",
                                 .maybe_flag = false,
                                 .maybe_counts = std::array<std::int64_t, 2>{0, 5},
                                 .maybe_file = "/z"};
  EXPECT_TRUE(reread(options) == options);
}

TEST(PrintConfig, PrintsRelativePathsAbsolute) {
  EXPECT_EQ(reread({.file = "a/b"}).file, std::filesystem::current_path() / "a/b");
}

TEST(PrintConfig, RefusesTextThatTomlCannotHold) {
  EveryTypePrinted options{.text = "\xff"};
  EXPECT_THROW(print_section({.options = OptionSet::of(options)}), ConfigError);
}

TEST(PrintConfig, PrintsArraysOfTables) {
  SeedOptions first{.seed = 1}, second{.seed = 2};
  const ConfigSection sections[] = {
      {.table = "optimizer.groups[0]", .options = OptionSet::of(first)},
      {.table = "optimizer.groups[1]", .options = OptionSet::of(second)},
      {.table = "model.parts[0]", .options = OptionSet::of(first), .enabled = false}};
  EXPECT_EQ(
      print_config(sections),
      "[[optimizer.groups]]\nseed = 1\n\n[[optimizer.groups]]\nseed = 2\n\n# [[model.parts]]\n# seed = 1\n");
}

}  // namespace
}  // namespace kindling
