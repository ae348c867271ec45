#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <iostream>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/joined.h"
#include "cli/commands/commands.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/base/text.h"
#include "kindling/base/version.h"

namespace kindling {

// The files of apps/custom_model by name; embed_folder() writes the definition.
extern const std::span<const std::pair<std::string_view, std::string_view>> kProjectTemplate;

namespace {

namespace fs = std::filesystem;

// CMake reserves these names of targets, or uses a folder of that name in the build folder.
constexpr std::array kReserved{"all",           "clean",   "depend",   "edit_cache",     "help",
                               "install",       "package", "test",     "package_source", "preinstall",
                               "rebuild_cache", "Testing", "Makefile", "CMakeFiles",     "kindling"};

// Targets that LibTorch defines, and an executable `main` next to the file main.cpp.
constexpr std::array kLibraries{"c10",   "c10_cuda",  "main",       "mkl",
                                "torch", "torch_cpu", "torch_cuda", "torch_library"};

// A namespace or file of such a name would not compile, or be confused with a header of the standard library.
constexpr std::array kKeywords{
    "alignas",  "alignof",  "and",      "asm",     "auto",    "bool",      "break",     "case",
    "catch",    "char",     "class",    "concept", "const",   "consteval", "constexpr", "constinit",
    "continue", "decltype", "default",  "delete",  "do",      "double",    "else",      "enum",
    "explicit", "export",   "extern",   "false",   "float",   "for",       "friend",    "goto",
    "if",       "inline",   "int",      "long",    "mutable", "namespace", "new",       "noexcept",
    "not",      "nullptr",  "operator", "or",      "private", "protected", "public",    "register",
    "requires", "return",   "short",    "signed",  "sizeof",  "static",    "std",       "struct",
    "switch",   "template", "this",     "throw",   "true",    "try",       "typedef",   "typename",
    "union",    "unsigned", "using",    "virtual", "void",    "volatile",  "while",     "xor"};

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_name_character(char c) { return is_letter(c) || (c >= '0' && c <= '9') || c == '_' || c == '-'; }

// Throws ConfigError for a name that cannot name a folder, a CMake target and C++ types.
void check_project_name(const std::string& name) {
  constexpr std::size_t kLongest = 64;
  std::string found;
  if (name.empty())
    found = "the name is empty";
  else if (const auto bad = std::ranges::find_if_not(name, is_name_character); bad != name.end())
    found = "the name contains '" + one_line(std::string(1, *bad)) + "'";
  else if (!is_letter(name[0]))
    found = "the name begins with '" + name.substr(0, 1) + "'";
  else if (name.size() > kLongest)
    found = "the name has " + std::to_string(name.size()) + " characters";
  else if (std::ranges::find(kReserved, name) != kReserved.end())
    found = "the name is reserved, by CMake or Kindling";
  else if (std::ranges::find(kLibraries, name) != kLibraries.end())
    found = "a build target or file of this name exists already";
  else if (std::ranges::find(kKeywords, name) != kKeywords.end())
    found = "the name is a keyword of C++";
  if (found.empty()) return;
  throw ConfigError({.place = "kindling new " + one_line(name),
                     .found = found,
                     .wanted = "a letter, then letters, digits, '_' or '-', at most 64 characters",
                     .remedy = "for example: kindling new my_model"});
}

// Throws ConfigError where something is in the way.
void check_project_folder(const fs::path& folder) {
  std::error_code ignored;
  if (!fs::exists(fs::symlink_status(folder, ignored))) return;
  const bool is_folder = fs::is_directory(folder, ignored);
  if (is_folder && fs::is_empty(folder, ignored)) return;
  throw ConfigError(
      {.place = folder.string(),
       .found = is_folder ? "the folder is not empty" : "a file has this name",
       .wanted = "a new name or an empty folder",
       .remedy = "use another name, or move the " + std::string(is_folder ? "folder" : "file") + " away"});
}

// Returns "my_net" of "my-net".
std::string snake_case(const std::string& name) {
  std::string snake = lower_case(name);
  std::ranges::replace(snake, '-', '_');
  return snake;
}

// Returns "MyNet" of "my-net".
std::string camel_case(const std::string& name) {
  std::string text;
  bool is_first = true;
  for (const char c : name) {
    if (c == '-' || c == '_') {
      is_first = true;
      continue;
    }
    text += is_first ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
    is_first = false;
  }
  return text;
}

using Names = std::array<std::pair<std::string_view, std::string>, 5>;

// The names in the template, and what takes their place.
Names names_for(const std::string& name) {
  const std::string snake = snake_case(name), camel = camel_case(name);
  return {{{"custom_model", name},
           {"residual_mlp", snake + "_model"},
           {"ResidualMlp", camel + "Model"},
           {"two_moons", snake + "_data"},
           {"TwoMoons", camel + "Data"}}};
}

// Replaces all names in one pass, because the new names may contain the old ones.
std::string with_names(std::string_view text, const Names& names) {
  std::string result;
  while (!text.empty()) {
    const auto* const name =
        std::ranges::find_if(names, [&](const auto& pair) { return text.starts_with(pair.first); });
    result += name == names.end() ? std::string(text.substr(0, 1)) : name->second;
    text.remove_prefix(name == names.end() ? 1 : name->first.size());
  }
  return result;
}

// Returns the text without the parts that hold in the repository only.
std::string without_repository_parts(std::string text) {
  constexpr std::string_view kBegin = "<!-- only in the repository of Kindling -->\n";
  constexpr std::string_view kEnd = "<!-- end -->\n";
  for (std::size_t at = 0; (at = text.find(kBegin, at)) != std::string::npos;)
    text.erase(at, text.find(kEnd, at) + kEnd.size() - at);
  return text;
}

// Writes the files, or none of them. Returns their names.
std::vector<std::string> write_project(const fs::path& folder, const Names& names) {
  std::vector<std::string> written;
  std::error_code error;
  const bool is_new = fs::create_directory(folder, error);
  if (error)
    throw Error({.place = folder.string(),
                 .found = "cannot create the folder: " + error.message(),
                 .remedy = "change to a folder that you can write to"});
  try {
    for (const auto& [file, text] : kProjectTemplate) {
      written.push_back(with_names(file, names));
      const std::string used = without_repository_parts(std::string(text));
      write_file_atomically(folder / written.back(), with_names(used, names));
    }
  } catch (...) {
    for (const std::string& file : written) fs::remove(folder / file, error);
    if (is_new) fs::remove(folder, error);
    throw;
  }
  return written;
}

// Returns the option with which CMake finds the Kindling that this program uses: "" if CMake looks there
// anyway, and a placeholder if Kindling is not installed.
std::string prefix_option() {
  Dl_info info{};
  std::error_code error;
  const bool is_found = dladdr(reinterpret_cast<const void*>(&version), &info) != 0;
  if (!is_found || info.dli_fname == nullptr) return {};
  const fs::path libraries = fs::canonical(info.dli_fname, error).parent_path();
  if (!fs::exists(libraries / "cmake/kindling/kindlingConfig.cmake", error))
    return " -DCMAKE_PREFIX_PATH=KINDLING_PREFIX";
  fs::path prefix = libraries.parent_path();
  // As in lib/x86_64-linux-gnu.
  if (!libraries.filename().string().starts_with("lib")) prefix = prefix.parent_path();
  if (prefix == "/usr" || prefix == "/usr/local") return {};
  return " -DCMAKE_PREFIX_PATH=" + shell_word(prefix.string());
}

}  // namespace

int new_command(const CommandContext& context) {
  const std::string& name = context.request.project;
  check_project_name(name);
  check_project_folder(name);
  const std::vector<std::string> files = write_project(name, names_for(name));
  const std::string option = prefix_option();
  std::cout << files.size() << " files written to " << name << "/\n\nBuild and train with:\n  cd " << name
            << "\n  cmake -B build" << option << "\n  cmake --build build\n  build/" << name
            << " fit -c config.toml\n";
  if (option.ends_with("KINDLING_PREFIX"))
    std::cout << "\nKINDLING_PREFIX is the folder that Kindling was installed into, by\n"
                 "  cmake --install BUILD_FOLDER --prefix KINDLING_PREFIX\n";
  return 0;
}

}  // namespace kindling
