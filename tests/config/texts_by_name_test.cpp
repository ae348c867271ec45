#include "kindling/config/texts_by_name.h"

#include <gtest/gtest.h>

#include <string>

#include "kindling/base/error.h"
#include "kindling/config/printer.h"
#include "kindling/config/reader.h"
#include "support/scratch.h"

namespace kindling {
namespace {

struct TableLikeOptions {
  TextsByName marks{};
  TextMap names{};
  static constexpr auto fields = kindling::fields(field("marks", &TableLikeOptions::marks, {.doc = "marks"}),
                                                  field("names", &TableLikeOptions::names, {.doc = "names"}));
};

TableLikeOptions read_options(const std::string& text, const std::vector<std::string>& overrides = {}) {
  Scratch scratch;
  write_text(scratch / "c.toml", text);
  ConfigDocument document = ConfigDocument::load(scratch / "c.toml");
  for (const std::string& one : overrides) document.set(one);
  TableLikeOptions options;
  ConfigReader reader(document);
  reader.read("data", OptionSet::of(options));
  reader.finish();
  return options;
}

TEST(TextsByName, ReadsAListOrATable) {
  using Lists = std::map<std::string, std::vector<std::string>>;
  EXPECT_EQ(read_options("[data]\nmarks = [\"?\", \"-\"]\n").marks.all, (std::vector<std::string>{"?", "-"}));
  EXPECT_EQ(read_options("[data]\nmarks = \"auto\"\n").marks.all, (std::vector<std::string>{"auto"}));
  const Lists expected{{"age", {"-1"}}, {"the zip", {"0", "x"}}};
  EXPECT_EQ(read_options("[data]\nmarks.age = \"-1\"\nmarks.\"the zip\" = [\"0\", \"x\"]\n").marks.by_name,
            expected);
  EXPECT_EQ(read_options("[data.marks]\nage = [\"-1\"]\n\"the zip\" = [\"0\", \"x\"]\n").marks.by_name,
            expected);
  EXPECT_EQ(read_options("[data]\nmarks.age = [\"9\"]\nmarks.\"the zip\" = [\"0\", \"x\"]\n",
                         {"data.marks.age=['-1']"})
                .marks.by_name,
            expected);
}

TEST(TextsByName, ReadsATableOfTexts) {
  EXPECT_EQ(read_options("[data]\nnames = {old = \"new\", \"a b\" = \"c\"}\n").names,
            (TextMap{{"a b", "c"}, {"old", "new"}}));
  EXPECT_EQ(read_options("", {"data.names.old=7"}).names, (TextMap{{"old", "7"}}))
      << "quotes are a burden in a shell";
}

TEST(TextsByName, NamesTheExpectedForm) {
  const auto refusal = [](const std::string& text) {
    return error_text<ConfigError>([&] { read_options("[data]\n" + text); });
  };
  EXPECT_NE(refusal("marks = 3\n")
                .find("'data.marks': expected an array of strings, or a table of such arrays, found "
                      "the integer 3"),
            std::string::npos);
  EXPECT_NE(refusal("names = [\"a\"]\n")
                .find("'data.names': expected a table of strings, found an array of 1 value"),
            std::string::npos);
  EXPECT_NE(refusal("marks.age = [1]\n").find("expected an array of strings"), std::string::npos);
}

// What is printed is what a resumed run reads.
TEST(TextsByName, IsPrintedAsItIsRead) {
  TableLikeOptions options{.marks = {"?"}, .names = {{"a b", "c"}}};
  ConfigSection section{.table = "data", .options = OptionSet::of(options)};
  EXPECT_EQ(print_values({&section, 1}), "[data]\nmarks = [\"?\"]\nnames = {\"a b\" = \"c\"}\n");
  options = {.names = {}};
  options.marks.by_name = {{"age", {"-1"}}, {"x.y", {}}};
  EXPECT_EQ(print_values({&section, 1}), "[data]\nmarks = {age = [\"-1\"], \"x.y\" = []}\nnames = {}\n");
  EXPECT_EQ(read_options(print_values({&section, 1})).marks, options.marks);
}

}  // namespace
}  // namespace kindling
