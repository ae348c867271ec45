// Any bytes as a config: parsed, merged, overridden, read, printed. Only kindling::Error may come out of it,
// and what was printed must load again.

#include <cstddef>
#include <cstdint>

#include "kindling/base/error.h"
#include "kindling/config/document.h"
#include "kindling/config/printer.h"
#include "kindling/config/reader.h"

namespace {

struct FuzzedOptions {
  bool flag = false;
  double rate = 1;
  std::string text = "abc";
  std::filesystem::path file{};
  std::vector<std::int64_t> counts{};
  std::optional<std::array<double, 2>> betas{};
  static constexpr auto fields =
      kindling::fields(kindling::field("flag", &FuzzedOptions::flag),
                       kindling::field("rate", &FuzzedOptions::rate, {.min = 0, .max = 10}),
                       kindling::field("text", &FuzzedOptions::text, {.choices = "abc|abd"}),
                       kindling::field("file", &FuzzedOptions::file),
                       kindling::field("counts", &FuzzedOptions::counts, {.min = 1}),
                       kindling::field("betas", &FuzzedOptions::betas));
};

void read_all(const kindling::ConfigDocument& document) {
  FuzzedOptions top;
  FuzzedOptions inner;
  kindling::ConfigReader reader(document);
  reader.read("", kindling::OptionSet::of(top));
  reader.read("a.b", kindling::OptionSet::of(inner));
  reader.read_name("a.name");
  reader.error("a.b.text", "a finding", {});
  try {
    reader.finish();
  } catch (const kindling::Error&) {
    // The values that were fine are in the options all the same.
  }
  const kindling::ConfigSection sections[] = {{.options = kindling::OptionSet::of(top)},
                                              {.table = "a.b", .options = kindling::OptionSet::of(inner)}};
  const auto printed = kindling::ConfigDocument::parse(kindling::print_config(sections), "printed.toml", "/");
  kindling::ConfigReader again(printed);
  again.read("", kindling::OptionSet::of(top));
  again.read("a.b", kindling::OptionSet::of(inner));
  again.finish();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  kindling::ConfigDocument document;
  try {
    document.set(text);
  } catch (const kindling::Error&) {
  }
  try {
    document.merge(kindling::ConfigDocument::parse(text, "fuzz.toml", "/base"));
  } catch (const kindling::Error&) {
  }
  read_all(document);
  return 0;
}
