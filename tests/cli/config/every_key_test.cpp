// --print-config shows every key with its range, and a value outside the range is an error that names the key
// and the expected values.
#include <algorithm>
#include <iostream>
#include <map>
#include <regex>
#include <set>

#include "cli/commands/program_run.h"
#include "support/scratch.h"

namespace kindling {
namespace {

struct PrintedKey {
  std::string name, value, comment;  // of a line "name = value  # comment"
};

std::string config_with(const std::string& tables) {
  return "[model]\nname = \"small_cnn\"\n[data]\nname = \"digits\"\n[trainer]\nmax_epochs = 1\n" + tables;
}

// The keys of a config, with their tables before them.
std::vector<PrintedKey> keys_of(const std::filesystem::path& config) {
  const ProgramRun run = run_program({"fit", "-c", config.string(), "--print-config"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  static const std::regex table(R"(\[([\w.]+)\].*)"), line(R"((# )?(\w+) = *(\S.*?)? *(# (.*))?)");
  std::vector<PrintedKey> keys;
  std::string prefix;
  std::istringstream text(run.out);
  for (std::string row; std::getline(text, row);) {
    std::smatch match;
    if (row.starts_with("[[")) break;  // of arrays of tables, whose keys have numbers
    if (std::regex_match(row, match, table)) prefix = match[1].str() + ".";
    if (std::regex_match(row, match, line)) keys.push_back({prefix + match[2].str(), match[3], match[5]});
  }
  return keys;
}

// Invalid values of a key according to the range or choices in its comment; none if all are allowed.
std::vector<std::string> wrong_values(const PrintedKey& key) {
  std::vector<std::string> values;
  std::smatch match;
  if (std::regex_search(key.comment, match, std::regex(R"(; .*?(>=?) (-?[\d.e+-]+))")))
    values.push_back(match[1] == ">" ? match[2].str() : std::to_string(std::stod(match[2]) - 1));
  if (std::regex_search(key.comment, match, std::regex(R"((<=?) (-?[\d.e+-]+))")))
    values.push_back(match[1] == "<" ? match[2].str() : std::to_string(std::stod(match[2]) + 1));
  if (std::regex_search(key.comment, std::regex(R"re("[\w-]*" \| ")re"))) values.push_back("\"nonsense\"");
  if (key.value == "true" || key.value == "false") values.push_back("7");
  // Whole numbers stay whole, and arrays arrays.
  static const std::regex zeros(R"(\.0+$)");
  for (std::string& value : values) {
    if (key.value.find('.') == std::string::npos) value = std::regex_replace(value, zeros, "");
    if (key.value.starts_with("[")) value = "[" + value + ", " + value + "]";
  }
  return values;
}

TEST(EveryKey, RefusesValuesOutOfRange) {
  const Scratch scratch(memory_folder());
  std::vector<std::string> tables{
      "[on_spike]\n[early_stopping]\n[ema]\nevaluate = false\napply_at_end = false\n[swa]\nswa_lrs = "
      "[0.01]\n[checkpoint]\n"};
  Registry registry;
  register_builtin(registry);
  for (const std::string& rule : registry.optimizers.names())
    tables.push_back("[optimizer]\nname = \"" + rule + "\"\n");
  const std::map<std::string, std::string> required{
      {"cosine_restarts", "T_0 = 5\n"},
      {"exponential", "gamma = 0.9\n"},
      {"multistep", "milestones = [3]\n"},
      {"sequence", "milestones = []\n[[schedule.parts]]\nname = \"cosine\"\n"}};
  for (const std::string& schedule : registry.schedules.names()) {
    const auto more = required.find(schedule);
    tables.push_back("[schedule]\nname = \"" + schedule + "\"\n" +
                     (more != required.end() ? more->second : ""));
  }
  std::size_t num_keys = 0, num_values = 0;
  for (std::size_t i = 0; i < tables.size(); ++i) {
    const auto file = scratch / (std::to_string(i) + ".toml");
    write_text(file, config_with(tables[i]));
    for (const PrintedKey& key : keys_of(file)) {
      const bool is_of_this_table = tables[i].find("[" + key.name.substr(0, key.name.find('.')) + "]") == 0;
      if (i > 0 && !is_of_this_table) continue;
      ++num_keys;
      for (const std::string& value : wrong_values(key)) {
        const ProgramRun run =
            run_program({"fit", "-c", file.string(), "--" + key.name, value, "--print-config"});
        EXPECT_EQ(run.exit_code, 2) << key.name << " = " << value << "\n" << tables[i] << run.err;
        EXPECT_NE(run.err.find(key.name.substr(key.name.rfind('.') + 1)), std::string::npos) << run.err;
        EXPECT_NE(run.err.find("expected"), std::string::npos) << key.name << " = " << value << "\n"
                                                               << run.err;
        ++num_values;
      }
    }
  }
  std::cout << num_keys << " keys, " << num_values << " wrong values\n";
  EXPECT_GT(num_values, num_keys / 2);
}

}  // namespace
}  // namespace kindling
