#include "kindling/config/document.h"

#include <gtest/gtest.h>

#include <fstream>

#include "kindling/base/error.h"
#include "kindling/config/reader.h"

namespace kindling {
namespace {

struct TableOptions {
  std::int64_t a = 0;
  std::int64_t b = 0;
  std::string name = "none";
  std::vector<std::int64_t> list{};
  std::filesystem::path file{};
  static constexpr auto fields = kindling::fields(
      kindling::field("a", &TableOptions::a), kindling::field("b", &TableOptions::b),
      kindling::field("name", &TableOptions::name), kindling::field("list", &TableOptions::list),
      kindling::field("file", &TableOptions::file));
};

ConfigDocument toml(std::string_view text, std::string_view name = "t.toml") {
  return ConfigDocument::parse(text, name, "/base");
}

TableOptions read_table(const ConfigDocument& document) {
  TableOptions read;
  ConfigReader reader(document);
  reader.read("t", OptionSet::of(read));
  reader.finish();
  return read;
}

// The error of parsing; empty if there is none.
std::string parse_error(std::string_view text) {
  try {
    toml(text);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

std::string override_error(std::string_view assignment) {
  ConfigDocument document;
  try {
    document.set(assignment);
    read_table(document);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

std::string repeat_text(std::string_view part, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += part;
  return text;
}

std::filesystem::path write_config(const std::string& name, const std::string& text) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "kindling_document_test";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / name, std::ios::binary) << text;
  return folder / name;
}

TEST(ConfigDocument, MergesTablesKeyByKeyAndPrefersTheLater) {
  ConfigDocument document = toml("[t]\na = 1\nb = 2\nlist = [1, 2, 3]", "first.toml");
  document.merge(toml("[t]\nb = 20\nlist = [4]", "second.toml"));
  const TableOptions read = read_table(document);
  EXPECT_EQ(read.a, 1);
  EXPECT_EQ(read.b, 20);
  EXPECT_EQ(read.list, std::vector<std::int64_t>{4});
}

TEST(ConfigDocument, KeepsThePlaceOfEachFileWhenMerged) {
  ConfigDocument document = toml("[t]\na = 1.5", "first.toml");
  document.merge(toml("\n\n[t]\nb = true", "second.toml"));
  document.set("t.list=[1, false]");
  try {
    read_table(document);
    FAIL() << "no error";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "first.toml:2:5: error: 't.a': expected an integer, found the number 1.5\n"
                 "second.toml:4:5: error: 't.b': expected an integer, found true\n"
                 "command line: t.list=[1, false]: error: 't.list[1]': expected an integer, found false\n"
                 "3 errors, nothing was run");
  }
}

TEST(ConfigDocument, ReplacesATableByAValueAndBack) {
  ConfigDocument document = toml("[t.a]\nx = 1");
  document.merge(toml("t.a = 5"));
  EXPECT_EQ(read_table(document).a, 5);
  document = toml("t = 1");
  document.set("t.a=2");
  EXPECT_EQ(read_table(document).a, 2);
}

TEST(ConfigDocument, TakesOverridesAsToml) {
  ConfigDocument document = toml("[t]\na = 1\nname = 'x'");
  document.set("t.a=3");
  document.set(" t.list = [ 1, 2 ] ");
  document.set("t.name=\"q\\u0041\"");
  const TableOptions read = read_table(document);
  EXPECT_EQ(read.a, 3);
  EXPECT_EQ(read.list, (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(read.name, "qA");
}

TEST(ConfigDocument, TakesBareWordsOfOverridesAsStrings) {
  const auto name = [](const std::string& value) {
    ConfigDocument document;
    document.set("t.name=" + value);
    return read_table(document).name;
  };
  EXPECT_EQ(name("mlp"), "mlp");
  EXPECT_EQ(name("a/b c.x"), "a/b c.x");
  EXPECT_EQ(name(""), "");
  EXPECT_EQ(name("a=b"), "a=b");
  EXPECT_EQ(name("1 # no comment"), "1 # no comment");
  EXPECT_EQ(name("1, b = 2"), "1, b = 2");
  EXPECT_EQ(name("1}, b = {c = 2"), "1}, b = {c = 2");
  EXPECT_EQ(name("32-true"), "32-true");
  EXPECT_EQ(name("\xc3\xa4"), "\xc3\xa4");
  // Text of another type in TOML is kept as typed if a string is expected.
  EXPECT_EQ(name("2024-01-02"), "2024-01-02");
  EXPECT_EQ(name("0x10"), "0x10");
  EXPECT_EQ(name("true"), "true");
}

TEST(ConfigDocument, RefusesBrokenOverrides) {
  EXPECT_EQ(override_error("t.a"), "command line: t.a: '=' is missing; expected: table.key=value");
  EXPECT_NE(override_error("=3").find("expected: table.key=value"), std::string::npos);
  EXPECT_NE(override_error("t..a=3").find("expected: table.key=value"), std::string::npos);
  EXPECT_NE(override_error("t.a.=3").find("expected: table.key=value"), std::string::npos);
  EXPECT_NE(override_error("t.\"a\"=3").find("expected: table.key=value"), std::string::npos);
  EXPECT_EQ(override_error("t.list=[1, 2"),
            "command line: t.list=[1, 2: the value is not TOML, or is nested too deeply");
  EXPECT_NE(override_error("t.list=" + repeat_text("[", 100'000)).find("nested too deeply"),
            std::string::npos);
  EXPECT_NE(override_error("t" + repeat_text(".a", 100'000) + "=1").find("nested too deeply"),
            std::string::npos);
  EXPECT_NE(override_error("t.name=\xFF").find("not UTF-8"), std::string::npos);
  EXPECT_NE(override_error(std::string("t.name=a\0b", 10)).find("control character"), std::string::npos);
  EXPECT_EQ(override_error("t.a=x"),
            "command line: t.a=x: error: 't.a': expected an integer, found the string \"x\"\n"
            "1 error, nothing was run");
}

TEST(ConfigDocument, ResolvesPathsWhereTheyWereWritten) {
  EXPECT_EQ(read_table(toml("t.file = 'x/y.bin'")).file, "/base/x/y.bin");
  EXPECT_EQ(read_table(toml("t.file = '../y.bin'")).file, "/y.bin");
  EXPECT_EQ(read_table(toml("t.file = '/x/y.bin'")).file, "/x/y.bin");
  EXPECT_EQ(read_table(toml("t.file = ''")).file, "");
  const auto file = write_config("paths.toml", "t.file = 'y.bin'");
  EXPECT_EQ(read_table(ConfigDocument::load(file)).file, file.parent_path() / "y.bin");
  ConfigDocument document = toml("t.file = 'x'");
  document.set("t.file=y.bin");
  EXPECT_EQ(read_table(document).file, std::filesystem::current_path() / "y.bin");
}

TEST(ConfigDocument, ShowsTheLineOfASyntaxError) {
  const std::string text = parse_error("[t]\n\ta = = 10\n");
  EXPECT_EQ(text.find("t.toml:2:6: error: "), 0U) << text;
  EXPECT_NE(text.find("\n    2 |  a = = 10\n      |      ^\n1 error, nothing was run"), std::string::npos)
      << text;
}

TEST(ConfigDocument, RefusesMissingFilesAndFolders) {
  EXPECT_THROW(ConfigDocument::load("/no/such/file.toml"), ConfigError);
  EXPECT_THROW(ConfigDocument::load(testing::TempDir()), ConfigError);
}

TEST(ConfigDocument, RefusesTextsOverOneMebibyte) {
  const std::string largest = "#" + std::string(ConfigDocument::kMaxBytes - 1, 'x');
  EXPECT_EQ(parse_error(largest), "");
  EXPECT_EQ(parse_error(largest + "x"),
            "t.toml: error: the text has more than 1048576 bytes\n1 error, nothing was run");
  const auto file = write_config("large.toml", "");
  std::filesystem::resize_file(file, std::uintmax_t{100} << 20);
  EXPECT_THROW(ConfigDocument::load(file), ConfigError);
  std::filesystem::remove(file);
}

TEST(ConfigDocument, RefusesNestingDeeperThan64) {
  const auto array = [](int depth) { return "x = " + repeat_text("[", depth) + repeat_text("]", depth); };
  const auto key = [](int tables) { return "x" + repeat_text(".x", tables) + " = 1"; };
  const auto tables = [](int depth) {
    return "x = " + repeat_text("{x = ", depth) + "1" + repeat_text("}", depth);
  };
  EXPECT_EQ(parse_error(array(64)), "");
  EXPECT_EQ(parse_error(key(64)), "");
  EXPECT_EQ(parse_error(tables(64)), "");
  EXPECT_EQ(parse_error("[x" + repeat_text(".x", 63) + "]\na = 1"), "");
  EXPECT_EQ(parse_error(key(32) + "\n[y" + repeat_text(" . y", 31) + "]\n" + key(32)), "");
  const std::string deeper = "tables, arrays and keys are nested too deeply";
  EXPECT_EQ(parse_error("\n" + array(65)).find("t.toml:2:69: error: " + deeper), 0U);
  for (const std::string& text :
       {array(65), key(65), tables(65), key(100'000), array(100'000), tables(100'000),
        "[x" + repeat_text(".x", 64) + "]", "[x" + repeat_text(".x", 100'000) + "]",
        "[[x" + repeat_text(".'x'", 63) + "]]", "[y.y]\n" + key(63), "x = {a = 1, " + key(100'000) + "}",
        "x.x." + array(63), key(500'000), "[x" + repeat_text(".x", 500'000) + "]", "\xEF\xBB\xBF" + key(65),
        "x = [\"\"\"a\"\"\"\", {" + key(64) + "}]",
        "x = " + repeat_text("{x" + repeat_text(".x", 64) + " = ", 64) + "1" + repeat_text("}", 64)}) {
    EXPECT_NE(parse_error(text).find(deeper), std::string::npos) << text.substr(0, 80);
  }
}

TEST(ConfigDocument, IgnoresBracketsInStringsAndComments) {
  const std::string many = repeat_text("[{.", 100);
  for (const std::string& text :
       {"# " + many, "a = \"" + many + "\"", "a = '" + many + "'",
        "a = \"\"\"\n" + many + "\"\" \\\"\"\"\"\" # " + many, "a = '''\n" + many + "''\n'''",
        "\"" + many + "\" = 1", "a = \"\\\"" + many + "\"", "a = [ # " + many + "\n 1, ' " + many + "']",
        repeat_text("a = [[1.5]]\n[b]\n[c]\n", 1) + "d = {e = 1}", "a = '" + repeat_text(".", 100) + "'",
        "a = \"\\\"" + repeat_text(".", 100) + "\" # " + repeat_text(".", 100),
        "a = [" + repeat_text("1.5, ", 100) + "]"}) {
    EXPECT_EQ(parse_error(text), "") << text.substr(0, 40);
  }
  EXPECT_EQ(parse_error("a = [" + repeat_text("[1.5, {b.c = 2.5}], ", 100) + "]"), "");
}

TEST(ConfigDocument, ReportsTheLineOfHostileText) {
  const auto at_line_2 = [](const std::string& bad) {
    const std::string text = parse_error("a = 1\n" + bad + "\n");
    return text.find("t.toml:2:") == 0 && text.find('\0') == std::string::npos;
  };
  EXPECT_TRUE(at_line_2(std::string("b = \0", 5)));
  EXPECT_TRUE(at_line_2(std::string("# \0", 3)));
  EXPECT_TRUE(at_line_2("b = '\x1b[31m'"));
  EXPECT_TRUE(at_line_2("b = '\xff'"));
  EXPECT_TRUE(at_line_2("b = '\xed\xa0\x80'"));  // a surrogate
  EXPECT_TRUE(at_line_2("b = '\xc0\xaf'"));      // overlong
  EXPECT_TRUE(at_line_2("b = '\xf0\x9f"));       // truncated
  EXPECT_TRUE(at_line_2("b = 18446744073709551616"));
  EXPECT_TRUE(at_line_2("b = 1e400"));
  EXPECT_TRUE(at_line_2("a = 2"));
  EXPECT_TRUE(at_line_2("[a]"));
  EXPECT_TRUE(at_line_2("b = \"x"));
  EXPECT_TRUE(at_line_2("b"));
  EXPECT_TRUE(at_line_2("\rb = 1"));
  EXPECT_TRUE(at_line_2("y\xd2\x85 = 1"));
  EXPECT_TRUE(at_line_2("b = 1 \xc3\xa4"));
  EXPECT_TRUE(at_line_2("b = 1'\xc3\xa4'"));
  EXPECT_TRUE(at_line_2("b = \"\"\"\\\xc3\xa4\"\"\""));
  for (const char* header : {"[&", "[[&]]", "[ = ]", "[", "[]", "[[[a]]]", "[ .a]", "[a.&]", "[a", "[[a]"}) {
    EXPECT_TRUE(at_line_2(header)) << header;
  }
  EXPECT_EQ(parse_error("a = 1\r\nb = 'ä\t'\r\n"), "");
}

TEST(ConfigDocument, SaysWhatIsWrongAtThePositionOfAnError) {
  const auto expect = [](const std::string& text, const std::string& wanted) {
    EXPECT_EQ(parse_error(text).substr(0, wanted.size()), wanted) << text;
    EXPECT_EQ(parse_error(text).find("parsing"), std::string::npos) << text;  // as toml++ would say
  };
  expect(
      "\xEF\xBB\xBF"
      "a = mlp",
      "t.toml:1:5: error: strings need quotes: \"mlp\"\n");
  expect("a = [\n1, 'b' # [\n, relu]", "t.toml:3:3: error: strings need quotes: \"relu\"\n");
  expect("a = none", "t.toml:1:6: error: strings need quotes: \"none\"\n");
  expect("a = 12abc", "t.toml:1:7: error: '12abc' is neither a number of 64 bits nor a date; expected: ");
  expect("a = ['ä', $x]", "t.toml:1:11: error: '$x' is not a value; expected: ");
  expect("a = 1.", "t.toml:1:7: error: a number needs digits on both sides of the decimal point");
  expect("a = 'x\n", "t.toml:1:7: error: the string has no closing quote\n");
  expect("a = 'C:\\x'\nb = \"C:\\x\"", "t.toml:2:9: error: a backslash of the string begins no escape");
  expect("[a", "t.toml:1:3: error: the table header has no closing ']'\n");
  expect("[a] b", "t.toml:1:5: error: there is text after the table header\n");
  expect("[a b]", "t.toml:1:4: error: the table header is damaged; expected: [name] or [[name]]");
  expect("a", "t.toml:1:2: error: a key and its value are joined by '='");
  expect("a =", "t.toml:1:4: error: the key has no value; expected: ");
  expect("= 1", "t.toml:1:1: error: a key is missing or damaged; expected: ");
  expect("a = [1,, 2]", "t.toml:1:8: error: a value of the list is missing; expected: ");
  expect("a = {#,}", "t.toml:1:6: error: a key is missing or damaged; expected: ");
  expect("a = {b = 1,}", "t.toml:1:12: error: there is a comma after the last value of a table\n");
  expect("a = {b = 1\n}", "t.toml:1:11: error: the table has no closing '}' on its line\n");
  expect("a = {b = 1 c = 2}", "t.toml:1:12: error: the values of a table need commas between them");
  expect("a = '\x01'", "t.toml:1:6: error: there is a control character; expected: printable text");
  expect("\ra = 1", "t.toml:1:2: error: there is a carriage return without a line feed");
  expect("a = '\xff'", "t.toml:1:6: error: the text is not UTF-8; save it as UTF-8");
}

TEST(ConfigDocument, NamesWhatAppearsTwice) {
  const auto expect = [](const std::string& text, const std::string& wanted) {
    EXPECT_EQ(parse_error(text).find("t.toml:" + wanted + "\n"), 0U) << text << '\n' << parse_error(text);
  };
  const std::string twice = "appears twice", value = "has a value already, so it cannot be a ";
  const std::string complete = "is complete above; write all its keys there";
  expect("a = [1]\na = 2", "2:5: error: the key 'a' " + twice);
  expect("[[t]]\na = 1\n[[t]]\na = 1\n'a' = 2", "5:7: error: the key ''a'' " + twice);
  expect("[x.t]\na.b = 1\n[y]\na.b = 1\n[x]\nt = 1", "6:5: error: the key 't' " + twice);
  expect("t = {a = [{}, 2], b.c = 1, b.c = 2}", "1:34: error: the key 'b.c' " + twice);
  expect("[a]\n[b]\n[a] # [b]",
         "3:1: error: the table 'a' " + twice + "; write all its keys under one header");
  expect("a = [1]\n[[a]]", "2:1: error: 'a' " + value + "list of tables");
  expect("a = [1]\n[a]", "2:1: error: 'a' " + value + "table");
  expect("a.b = 1\n[a.b.c]\nd = 2", "3:1: error: 'a.b' " + value + "table");
  expect("a = 1\n[a.b]", "2:6: error: 'a' " + value + "table");
  expect("a = {b = 1}\na.c = 2", "2:1: error: the table 'a' " + complete);
  expect("[[t]]\na = {b = 1}\n[t.a.c]\nd = 2", "4:1: error: the table 't.a' " + complete);
}

TEST(ConfigDocument, ReportsALargeHostileTextInOneMessage) {
  std::string text = "[t]\n";
  for (int i = 0; text.size() + 20 < ConfigDocument::kMaxBytes; ++i)
    text += "k" + std::to_string(i) + " = 1\n";
  EXPECT_THROW(read_table(toml(text)), ConfigError);
  EXPECT_THROW(read_table(toml("t = {" + std::string("a=1,b=[") + repeat_text("1,", 500'000) + "1]}")),
               ConfigError);
  EXPECT_NE(parse_error("[t]\n" + std::string(1'000'000, 'k')).find("t.toml:2:"), std::string::npos);
}

}  // namespace
}  // namespace kindling
