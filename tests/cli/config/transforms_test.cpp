#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <variant>

#include "cli/config/run_config.h"
#include "kindling/cli/registry.h"
#include "kindling/config/options.h"
#include "kindling/formats/npz.h"
#include "support/scratch.h"

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

TEST(ConfiguredTransforms, MoveTheMasksOfArraysWithTheImages) {
  const Scratch scratch;
  const at::Tensor numbers = at::arange(40 * 6).view({40, 1, 2, 3});
  const TensorToWrite images{.name = "x",
                             .type = TensorType::int64,
                             .shape = numbers.sizes().vec(),
                             .data = numbers.const_data_ptr(),
                             .size_bytes = numbers.nbytes()};
  TensorToWrite masks = images;
  masks.name = "y";
  masks.shape = {40, 2, 3};
  write_npz(scratch / "masks.npz", std::vector<TensorToWrite>{images, masks});
  write_text(scratch / "masks.toml",
             "[data]\nname = \"arrays\"\nfile = \"masks.npz\"\nnormalize = [0.0, 1.0]\nbatch_size = 40\n"
             "[[data.train_transforms]]\nname = \"random_horizontal_flip\"\n");
  Registry registry;
  register_builtin(registry);
  const RunConfig config(ConfigDocument::load(scratch / "masks.toml"), registry, "masks", ConfigUse::data);
  const auto data = config.make_data();
  const Batch batch = data->on_after_batch_transfer(*data->train_dataloader()->begin(), Stage::train);
  EXPECT_TRUE(batch[0].squeeze(1).to(at::kLong).equal(batch[1]));
  const at::Tensor first = batch[1].select(2, 0).remainder(3);  // of each row: 0, or 2 in a mirror image
  EXPECT_TRUE(first.eq(0).any().item<bool>() && first.eq(2).any().item<bool>());
}

}  // namespace
}  // namespace kindling
