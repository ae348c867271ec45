#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <variant>

#include "kindling/cli/registry.h"
#include "kindling/config/options.h"

namespace kindling {
namespace {

TEST(BuiltinTransforms, AreRegisteredByTorchvisionsNames) {
  Registry registry;
  register_builtin(registry);
  EXPECT_EQ(registry.transforms.names(),
            (std::vector<std::string>{"color_jitter", "cut_mix", "mix_up", "normalize", "one_hot",
                                      "random_affine", "random_crop", "random_erasing",
                                      "random_horizontal_flip", "random_resized_crop", "resize"}));
}

TEST(BuiltinTransforms, AreMadeWithTheirOptions) {
  Registry registry;
  register_builtin(registry);
  const auto maker = registry.transforms.maker("random_crop");
  using Size = std::optional<std::array<std::int64_t, 2>>;
  const OptionSet options = maker.options();
  for (const OptionRef& option : options.refs())
    if (option.name == "size") *std::get<Size*>(option.value) = {{28, 28}};
  EXPECT_EQ(maker.make()->num_random(), 2);
}

}  // namespace
}  // namespace kindling
