// The generated pages of docs/reference/, and --print-config=all, which shows the same keys.
#include "docs/references.h"

#include <algorithm>
#include <cstdlib>
#include <regex>

#include "cli/commands/program_run.h"
#include "kindling/training/early_stopping.h"
#include "support/scratch.h"

namespace kindling {
namespace {

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string uncommented(const std::string& line) { return line.starts_with("# ") ? line.substr(2) : line; }

// The keys of a printed config, those of commented tables included.
std::vector<std::string> keys_in(const std::string& config) {
  static const std::regex key(R"((# ){0,2}(\w+) =.*)");
  std::vector<std::string> keys;
  for (const std::string& line : split_lines(config)) {
    std::smatch match;
    if (std::regex_match(line, match, key)) keys.push_back(match[2]);
  }
  return keys;
}

// Prints the config with the optional tables, and keeps it as a file.
class PrintConfigAll : public testing::Test {
 protected:
  PrintConfigAll() {
    write_text(config_,
               "[model]\nname = \"mlp\"\nmetrics = [\"f1_macro\"]\n[data]\nname = \"digits\"\n"
               "[trainer]\nmax_epochs = 1\n[early_stopping]\npatience = 7\n");
  }
  std::string printed(const std::filesystem::path& config, const std::string& how = "--print-config=all") {
    const ProgramRun run = run_program({"fit", "-c", config.string(), "name=digits", how});
    EXPECT_EQ(run.exit_code, 0) << run.err;
    return run.out;
  }
  // The text with one of its tables no longer commented out.
  static std::string with_table(const std::string& text, const std::string& table) {
    std::string result;
    bool is_in_table = false;
    for (const std::string& line : split_lines(text)) {
      if (line.empty()) is_in_table = false;
      if (line == "# [" + table + "]") is_in_table = true;
      result += (is_in_table ? uncommented(line) : line) + "\n";
    }
    return result;
  }

  const Scratch scratch_;
  const std::filesystem::path config_ = scratch_ / "digits.toml", again_ = scratch_ / "again.toml";
};

TEST_F(PrintConfigAll, AddsOptionalTablesAsComments) {
  const std::string all = printed(config_), used = printed(config_, "--print-config");
  EXPECT_TRUE(all.starts_with(used));
  for (const char* line : {"\n# [optimizer]\n", "\n# [[optimizer.groups]]\n", "\n# [schedule]\n",
                           "\n# [[schedule.parts]]\n", "\n# [ema]\n", "\n# [swa]\n", "\n# [lr_finder]\n",
                           "\n# [batch_finder]\n", "\n# [metrics.accuracy]\n"}) {
    EXPECT_NE(all.find(line), std::string::npos) << line << all;
    EXPECT_EQ(used.find(line), std::string::npos) << line << used;
  }
  EXPECT_NE(all.find("\n# decay = 0.999"), std::string::npos) << all;
  for (const char* present : {"# [early_stopping]", "# [metrics.f1_macro]"})
    EXPECT_EQ(all.find(present), std::string::npos) << present << all;
}

TEST_F(PrintConfigAll, CanBeLoadedAgain) {
  write_text(again_, printed(config_));
  EXPECT_EQ(printed(again_), printed(config_));
  for (const char* table : {"optimizer", "schedule", "ema", "batch_finder"}) {
    write_text(again_, with_table(printed(config_), table));
    const std::string used = printed(again_, "--print-config");
    EXPECT_NE(used.find(std::string("\n[") + table + "]\n"), std::string::npos) << table << used;
  }
}

TEST_F(PrintConfigAll, RefusesOtherValues) {
  EXPECT_EQ(run_program({"fit", "-c", config_.string(), "--print-config=none"}).exit_code, 2);
}

TEST_F(PrintConfigAll, HasKeysThatAreAllInTheReference) {
  Registry registry;
  register_builtin(registry);
  const std::string page = configuration_reference(registry);
  std::size_t num_keys = 0;
  for (const std::string& key : keys_in(printed(config_))) {
    EXPECT_NE(page.find("\n| `" + key + "` | "), std::string::npos) << key;
    ++num_keys;
  }
  EXPECT_GT(num_keys, 150U);
}

TEST(ConfigurationReference, ListsRegisteredNames) {
  Registry registry;
  register_builtin(registry);
  EXPECT_NE(configuration_reference(registry).find("This program registers no callbacks."),
            std::string::npos);
  registry.callback<EarlyStopping, EarlyStoppingOptions>("patient_stop", "stops after a while");
  const std::string page = configuration_reference(registry);
  EXPECT_EQ(page.find("This program registers no callbacks."), std::string::npos);
  EXPECT_NE(
      page.find("\n### `patient_stop`\n\nStops after a while.\n\n| key | type | default | description |\n"
                "|---|---|---|---|\n| `monitor` | string | `\"\"` | "),
      std::string::npos)
      << page;
}

TEST(CommandReference, ListsSubcommands) {
  const std::string page = command_reference();
  for (const char* text :
       {"\n## `kindling fit`\n\nTrain a model.\n\n```text\nkindling fit [OPTIONS] [CONFIG|TABLE]\n```\n",
        "\n| `--color WHEN` | when to use colors (auto); one of auto, always, never |\n",
        "\n| `-c, --config FILE` | ", "\n## `kindling bench matmul`\n", "\n| `RUN\\|CHECKPOINT` | ",
        "\nkindling list [OPTIONS] [KIND]\n", "\nkindling diff [OPTIONS] A B\n"})
    EXPECT_NE(page.find(text), std::string::npos) << text << "\n" << page;
}

class ReferencePages : public testing::TestWithParam<const char*> {};

// KINDLING_WRITE_REFERENCES=1 in the environment writes the pages again.
TEST_P(ReferencePages, AreCurrent) {
  Registry registry;
  register_builtin(registry);
  const std::string name = GetParam(), file = "docs/reference/" + name + ".md";
  const std::string page = name == "commands" ? command_reference() : configuration_reference(registry);
  if (std::getenv("KINDLING_WRITE_REFERENCES") != nullptr) write_text(kConfigs.parent_path() / file, page);
  const auto generated = split_lines(page), committed = split_lines(text_of(kConfigs.parent_path() / file));
  for (std::size_t i = 0; i < std::max(generated.size(), committed.size()); ++i)
    ASSERT_EQ(i < committed.size() ? committed[i] : "(the end)",
              i < generated.size() ? generated[i] : "(the end)")
        << file << ", line " << i + 1 << ": write it again as docs/dev/recipes.md says";
}

INSTANTIATE_TEST_SUITE_P(All, ReferencePages, testing::Values("configuration", "commands"),
                         [](const auto& info) { return std::string(info.param); });

TEST(ListCommand, ListsEveryKindWithoutAnArgument) {
  const ProgramRun run = run_program({"list"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  for (const char* text : {"models:\nbackbone ", "\n\ndatasets:\narrays ", "\n\ntransforms:\ncolor_jitter ",
                           "\n\noptimizers:\nadadelta ", "\n\nschedules:\nconstant ",
                           "\n\nmetrics:\naccuracy ", "\n\ncallbacks:\n", "\n\nloggers:\n"})
    EXPECT_NE(run.out.find(text), std::string::npos) << text << "\n" << run.out;
}

}  // namespace
}  // namespace kindling
