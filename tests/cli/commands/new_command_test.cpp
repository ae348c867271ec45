// `kindling new`. The test consumers.new_project builds and trains what it writes.
#include <sys/wait.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>

#include "cli/commands/program_run.h"
#include "support/scratch.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

// Changes to an empty folder for the lifetime of the test.
class NewProject : public testing::Test {
 protected:
  NewProject() { fs::current_path(scratch_.folder()); }
  ~NewProject() override { fs::current_path(before_); }

  void expect_refused(const std::string& name, const std::string& text) {
    const ProgramRun run = run_program({"new", name});
    EXPECT_EQ(run.exit_code, 2) << name;
    EXPECT_EQ(run.out, "");
    EXPECT_EQ(run.err, text);
  }

  const fs::path before_ = fs::current_path();
  const Scratch scratch_;
};

std::set<std::string> files_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename().string());
  return names;
}

TEST_F(NewProject, NamesEverythingAfterTheProject) {
  const ProgramRun run = run_program({"new", "wave-Net2"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(files_in("wave-Net2"),
            (std::set<std::string>{".gitignore", "CMakeLists.txt", "README.md", "config.toml", "main.cpp",
                                   "wave-Net2_test.cpp", "wave_net2_data.cpp", "wave_net2_data.h",
                                   "wave_net2_model.cpp", "wave_net2_model.h"}));
  EXPECT_NE(text_of("wave-Net2/CMakeLists.txt").find("\nproject(wave-Net2 LANGUAGES CXX)\n"),
            std::string::npos);
  EXPECT_NE(text_of("wave-Net2/main.cpp")
                .find("registry.model<WaveNet2Model, WaveNet2ModelOptions>(\"wave_net2_model\", \"linear"),
            std::string::npos);
  EXPECT_TRUE(text_of("wave-Net2/config.toml").starts_with("[model]\nname = \"wave_net2_model\"\n"));
  EXPECT_TRUE(text_of("wave-Net2/README.md").starts_with("# wave-Net2\n\nThis project gives"));
  EXPECT_EQ(text_of("wave-Net2/.gitignore"), "/build/\n/runs/\n");
}

TEST_F(NewProject, LeavesNoNameOfTheTemplateAndNoPartOfTheRepository) {
  ASSERT_EQ(run_program({"new", "flower"}).exit_code, 0);
  for (const std::string& file : files_in("flower")) {
    std::string text = file + "\n" + text_of("flower/" + file);
    std::ranges::transform(text, text.begin(),
                           [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    for (const char* old :
         {"custom_model", "residual_mlp", "residualmlp", "moons", "../", "apps/", "repository", "<!--"})
      EXPECT_EQ(text.find(old), std::string::npos) << old << " in " << text;
  }
}

TEST_F(NewProject, WritesEveryFileOfTheExample) {
  ASSERT_EQ(run_program({"new", "custom_model"}).exit_code, 0);
  std::size_t num_files = 0;
  for (const auto& entry : fs::directory_iterator(KINDLING_EXAMPLE))
    num_files += entry.is_regular_file() ? 1 : 0;  // "build" may be there too
  EXPECT_EQ(files_in("custom_model").size(), num_files);
}

TEST_F(NewProject, MayBeNamedLikeAPartOfTheTemplate) {
  ASSERT_EQ(run_program({"new", "two_moons"}).exit_code, 0);
  const std::string includes = "#include \"two_moons_model.h\"\n#include \"two_moons_data.h\"\n";
  EXPECT_NE(text_of("two_moons/main.cpp").find(includes), std::string::npos);
}

TEST_F(NewProject, PrintsTheCommandsThatBuildAndTrain) {
  const ProgramRun run = run_program({"new", "flower"});
  EXPECT_EQ(run.out,
            "10 files written to flower/\n\n"
            "Build and train with:\n"
            "  cd flower\n"
            "  cmake -B build -DCMAKE_PREFIX_PATH=KINDLING_PREFIX\n"
            "  cmake --build build\n"
            "  build/flower fit -c config.toml\n\n"
            "KINDLING_PREFIX is the folder that Kindling was installed into, by\n"
            "  cmake --install BUILD_FOLDER --prefix KINDLING_PREFIX\n");
  EXPECT_EQ(run.err, "");
}

TEST_F(NewProject, RefusesBadNames) {
  const std::string ending =
      "; expected: a letter, then letters, digits, '_' or '-', at most 64 characters; for example: kindling "
      "new my_model\n";
  expect_refused("a/b", "kindling new a/b: the name contains '/'" + ending);
  expect_refused("..", "kindling new ..: the name contains '.'" + ending);
  expect_refused("a=b", "kindling new a=b: the name contains '='" + ending);
  expect_refused("", "kindling new : the name is empty" + ending);
  expect_refused("2moons", "kindling new 2moons: the name begins with '2'" + ending);
  expect_refused("_x", "kindling new _x: the name begins with '_'" + ending);
  expect_refused("test", "kindling new test: the name is reserved, by CMake or Kindling" + ending);
  expect_refused("torch", "kindling new torch: a build target or file of this name exists already" + ending);
  expect_refused("main", "kindling new main: a build target or file of this name exists already" + ending);
  expect_refused("class", "kindling new class: the name is a keyword of C++" + ending);
  const std::string longest(64, 'x');
  expect_refused(longest + "x", "kindling new " + longest + "x: the name has 65 characters" + ending);
  EXPECT_EQ(files_in("."), std::set<std::string>());
  EXPECT_EQ(run_program({"new", longest}).exit_code, 0);
}

TEST_F(NewProject, RefusesWhatIsInTheWay) {
  fs::create_directory("full");
  write_text("full/notes.txt", "mine");
  expect_refused("full",
                 "full: the folder is not empty; expected: a new name or an empty folder; use another name, "
                 "or move the folder away\n");
  EXPECT_EQ(files_in("full"), std::set<std::string>{"notes.txt"});
  write_text("taken", "mine");
  expect_refused("taken",
                 "taken: a file has this name; expected: a new name or an empty folder; use another name, or "
                 "move the file away\n");
  fs::create_directory("empty");
  EXPECT_EQ(run_program({"new", "empty"}).exit_code, 0);
  EXPECT_EQ(files_in("empty").size(), 10u);
}

TEST_F(NewProject, LeavesNothingBehindWhenItCannotWrite) {
  write_text("limited.sh", "trap '' XFSZ; ulimit -f 3; exec '" KINDLING_PROGRAM "' new flower 2>&1");
  const std::string command = "bash --posix limited.sh > printed.txt";
  EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 1);
  // The second file: it has more than three units of 512 bytes, which the first one has not.
  EXPECT_EQ(text_of("printed.txt"),
            "flower/README.md: cannot write it: File too large; check the disk and try again\n");
  EXPECT_FALSE(fs::exists("flower"));
}

}  // namespace
}  // namespace kindling
