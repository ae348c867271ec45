// `kindling config TABLE`, and `kindling fit TABLE --target COLUMN`.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "cli/commands/program_run.h"
#include "support/scratch.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

class ConfigCommand : public testing::Test {
 protected:
  // 60 houses with names; the price is a number, `kind` a text, `sold` has two values.
  void SetUp() override {
    std::string text = "name,rooms,# city,kind,sold,price\n";
    for (int i = 0; i < 60; ++i)
      text += "house " + std::to_string(i) + " of them," + std::to_string(i % 5) + ",\"Bern \"\"" +
              std::to_string(i % 3) + "\"\"\"," + (i % 4 == 0 ? "large" : "small") + "," +
              std::to_string(i % 2) + "," + std::to_string(i % 7) + ".5\n";
    write_text(file_, text);
  }
  ProgramRun write_config(std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"config", file_, "trainer.num_gpus=0"});
    ProgramRun run = run_program(more);
    write_text(scratch_ / "job.toml", run.out);
    return run;
  }
  ProgramRun fit(std::vector<std::string> words) {
    words.insert(words.begin(), "fit");
    words.insert(words.end(), {"--progress=none", "run.dir=" + (scratch_ / "runs").string()});
    return run_program(words);
  }
  static void expect_in(const std::string& text, const std::vector<std::string>& parts) {
    for (const std::string& part : parts)
      EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }

  const Scratch scratch_;
  const std::string file_ = scratch_ / "houses.csv";
};

TEST_F(ConfigCommand, WritesAConfigThatRunsWithAReasonForEachChoice) {
  const ProgramRun run = write_config({"--target", "# city", "data.exclude=['name']"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  expect_in(run.out,
            {"name = \"mlp\"     # data.label is a column of classes", "num_classes = 3  # the label has",
             "label = \"# city\"  ", "# its values are texts, thus classes", "exclude = [\"name\"]\n",
             "val_fraction = 0.2", "# no split is set", "max_epochs = 20  # no end is set", "num_gpus = 0",
             "# The model reads: rooms (numbers), kind (2 categories), sold (numbers), price (numbers).\n"});
  EXPECT_EQ(run.out.find("Warnings"), std::string::npos) << run.out;
  const ProgramRun fitted = fit({scratch_ / "job.toml"});
  ASSERT_EQ(fitted.exit_code, 0) << fitted.err;
  // It has all that is chosen: the same file and command choose nothing more.
  EXPECT_EQ(fitted.out.find("chosen"), std::string::npos) << fitted.out;
  const std::string config = text_of(scratch_ / "runs/job/0001/config.toml");
  expect_in(config, {"label = \"# city\"", "num_classes = 3", "batch_size = 16"});
}

TEST_F(ConfigCommand, NamesColumnsThatAreProbablyNotMeant) {
  const ProgramRun run = write_config();
  ASSERT_EQ(run.exit_code, 0) << run.err;
  expect_in(run.out, {"#\n# Warnings:\n# - ", "column 'name': 48 of 48", "target = \"price\"",
                      "# it is the last column; its values are numbers"});
  EXPECT_EQ(fit({scratch_ / "job.toml", "trainer.max_epochs=1"}).exit_code, 0);
}

TEST_F(ConfigCommand, GuessesTheColumnToPredict) {
  const auto guess = [&](const std::string& header, const std::string& row) {
    std::string text = header + "\n";
    for (int i = 0; i < 24; ++i) {
      std::string values = row;
      for (const auto& [mark, value] : {std::pair<char, int>{'i', i}, {'c', i % 3}, {'b', i % 2}})
        for (std::size_t at = 0; (at = values.find(mark)) != std::string::npos;)
          values.replace(at, 1, std::to_string(value));
      text += values + "\n";
    }
    write_text(file_, text);
    const ProgramRun run = write_config();
    EXPECT_EQ(run.exit_code, 0) << run.err;
    const std::size_t at =
        run.out.find(run.out.find("\nlabel") == std::string::npos ? "\ntarget" : "\nlabel");
    const std::string line = run.out.substr(at + 1, run.out.find("  #", at) - at - 1);
    return line.substr(0, line.find_last_not_of(' ') + 1);
  };
  EXPECT_EQ(guess("x,Target,z", "c,b,c"), "label = \"Target\"");
  EXPECT_EQ(guess("class,x,z", "c,b,c"), "target = \"class\"");
  EXPECT_EQ(guess("x,y2,number", "b,c,i"), "target = \"y2\"");  // `number` counts the rows
  EXPECT_EQ(guess("x,kind,note", "c,s c s,text i"), "label = \"kind\"");
  EXPECT_EQ(guess("x,kind,empty", "c,Tc,"), "label = \"kind\"");
}

TEST_F(ConfigCommand, GuessesHowTheFileIsWritten) {
  const auto guess = [&](const std::string& text, const std::string& line) {
    write_text(file_, text);
    const ProgramRun run = write_config();
    EXPECT_EQ(run.exit_code, 0) << run.err;
    expect_in(run.out, {line});
    EXPECT_EQ(fit({scratch_ / "job.toml", "trainer.max_epochs=1", "--quiet"}).exit_code, 0);
  };
  guess("1,2\n3,4\n5,7\n6,8\n9,9\n", "# the first row contains numbers only");
  guess("x,y\n1,2\n?,4\n5,7\n6,8\n9,9\n", "na_values = \"auto\"");
  guess("x;y\n1;2,5\n3;4,25\n5;7,5\n6;8,5\n9;9,5\n", "decimal = \",\"");
  guess("x;y\n1;0,101\n3;0,250\n5;0,500\n6;0,500\n9;1\n", "decimal = \",\"");
  guess("x;y\n1;2.000,5\n3;4,25\n5;7,5\n6;8,5\n9;9,5\n", "decimal = \",\"");
  expect_in(text_of(scratch_ / "job.toml"), {"thousands = \".\""});
  // Both keys read these; a delimiter shows which is likelier.
  guess("x;y\n1;2,500\n3;4,250\n5;7,500\n6;8,500\n9;900\n", "set thousands = \",\" instead");
  expect_in(text_of(scratch_ / "job.toml"), {"decimal = \",\""});
  guess("x,y\n1,\"2,500\"\n3,\"4,250\"\n5,\"7,500\"\n6,\"8,500\"\n9,900\n", "set decimal = \",\" instead");
  expect_in(text_of(scratch_ / "job.toml"), {"thousands = \",\""});
}

TEST_F(ConfigCommand, TakesNumbersWithAUnitForClassesWithoutTheKey) {
  std::string text = "x,y\n";
  for (int i = 0; i < 30; ++i) text += std::to_string(i) + ",$" + std::to_string(5 + i % 11) + "\n";
  write_text(file_, text);
  const ProgramRun without = write_config();
  expect_in(without.out, {"label = \"y\"", "with data.units = true they are numbers"});
  const ProgramRun with = fit({file_, "--target", "y", "data.units=true", "trainer.max_epochs=1"});
  ASSERT_EQ(with.exit_code, 0) << with.err;
  expect_in(with.out, {"model.name = \"mlp_regressor\""});
}

// A wrong value among numbers with a decimal point.
TEST_F(ConfigCommand, GuessesNoKeyThatTurnsNumbersIntoClasses) {
  for (const std::string wrong : {"n/a?", "inf"}) {
    std::string text = "x,y\n";
    for (int i = 0; i < 20; ++i) text += std::to_string(i % 7) + (i == 9 ? "," + wrong : ",2.5") + "\n";
    write_text(file_, text);
    const ProgramRun run = write_config();
    EXPECT_EQ(run.exit_code, 3);
    EXPECT_EQ(run.out, "");
    expect_in(run.err, {"row 10 (line 11), column 'y': \"" + wrong + "\""});
  }
}

TEST_F(ConfigCommand, FitsATableInOneGo) {
  const ProgramRun classes = fit({file_, "--target", "sold", "data.exclude=name", "trainer.max_epochs=2"});
  ASSERT_EQ(classes.exit_code, 0) << classes.err;
  expect_in(classes.out,
            {"config   houses.csv + 3 overrides", "chosen   data.label = \"sold\"", "runs/houses/0001"});
  expect_in(text_of(scratch_ / "runs/houses/0001/config.toml"), {"label = \"sold\"", "name = \"mlp\""});
  expect_in(text_of(scratch_ / "runs/houses/0001/log.txt"),
            {"config: data.label = \"sold\", because it has two values, thus classes"});
  const ProgramRun numbers =
      fit({file_, "--target=price", "data.exclude=name", "trainer.max_epochs=2", "name=n"});
  ASSERT_EQ(numbers.exit_code, 0) << numbers.err;
  expect_in(text_of(scratch_ / "runs/n/0001/config.toml"),
            {"target = [\"price\"]", "name = \"mlp_regressor\""});
  // It replaces the column of a config, and sweeps take it too.
  write_text(scratch_ / "job.toml", "[data]\nname = \"csv\"\nfile = \"houses.csv\"\ntarget = \"price\"\n");
  const ProgramRun other = fit({scratch_ / "job.toml", "--target", "kind", "--print-config"});
  expect_in(other.out, {"label = \"kind\"", "target = []"});
  const ProgramRun swept = fit({file_, "--target", "price", "name=s", "--sweep", "seed=0,1", "--check"});
  EXPECT_EQ(swept.exit_code, 0) << swept.err;
}

TEST_F(ConfigCommand, ChecksATable) {
  const ProgramRun checked = run_program({"data", "check", file_, "data.target=price"});
  ASSERT_EQ(checked.exit_code, 0) << checked.err;
  expect_in(checked.out, {"rooms", "3 categories"});
  // What is predicted does not matter to a check.
  const ProgramRun guessed = run_program({"data", "check", file_});
  EXPECT_EQ(guessed.exit_code, 0) << guessed.err;
  write_text(file_, "x,y,z\n1,2,3\n?,4,5\n5,-,6\n6,7,8\n");
  const ProgramRun wrong = run_program({"data", "check", file_});
  EXPECT_EQ(wrong.exit_code, 3);
  expect_in(wrong.err, {"row 2 (line 3), column 'x': \"?\"", "row 3 (line 4), column 'y': \"-\""});
}

TEST_F(ConfigCommand, RefusesATableWithoutAColumnToPredict) {
  const auto error_of = [&](const std::vector<std::string>& words) {
    const ProgramRun run = run_program(words);
    EXPECT_EQ(run.exit_code, 2) << run.err;
    std::string text = run.err;
    const std::string folder = scratch_.folder().string() + "/";
    for (std::size_t at = 0; (at = text.find(folder)) != std::string::npos;) text.erase(at, folder.size());
    return text;
  };
  EXPECT_EQ(
      error_of({"fit", file_}),
      "kindling fit houses.csv: the column to predict is missing; expected: --target NAME, with one of "
      "name, rooms, # city, kind, sold, price; `kindling config houses.csv` writes a config with a guess\n");
  EXPECT_EQ(error_of({"config", file_, "--target", "prise"}),
            "--target: houses.csv has no column 'prise'; expected: one of name, rooms, # city, kind, sold, "
            "price; did you mean 'price'?\n");
  EXPECT_EQ(error_of({"fit", file_, "--target", "price", "data.label=kind"}),
            "--target: data.label is given, too; expected: one of them\n");
  EXPECT_EQ(
      error_of({"fit", file_, file_}),
      "kindling fit: two tables, houses.csv and houses.csv; expected: one table; name further ones with "
      "data.val_files or data.test_file\n");
  EXPECT_EQ(
      error_of({"config", file_, "--target", "price", "data.exclude=name", "schedule={name=\"cosine\"}"}),
      "kindling config: 'schedule' is not a single key; expected: keys such as data.delimiter; add it to "
      "the config that this command writes\n");
  // Not keys that the table would decide.
  const std::string fraction = error_of({"fit", file_, "--target", "price", "data.val_fraction=1"});
  EXPECT_NE(fraction.find("data.val_fraction"), std::string::npos) << fraction;
  EXPECT_EQ(fraction.find("is missing"), std::string::npos) << fraction;
  const std::string missing =
      error_of({"fit", "data.file=" + file_, "data.target=price", "data.missing=foo"});
  EXPECT_NE(missing.find("data.missing"), std::string::npos) << missing;
  EXPECT_EQ(missing.find("is missing"), std::string::npos) << missing;
  // What cannot be read is not a config.
  write_text(file_, "x,y\n1,2\n3\n");
  const ProgramRun broken = run_program({"config", file_});
  EXPECT_EQ(broken.exit_code, 3);
  EXPECT_EQ(broken.out, "");
}

}  // namespace
}  // namespace kindling
