// Trains on a directory of PNG files:
//
//   digit_images FOLDER

#include <kindling/formats/image.h>
#include <kindling/kindling.h>

#include <filesystem>
#include <iostream>
#include <string>

namespace kd = kindling;
namespace fs = std::filesystem;

namespace {

// Writes the embedded digits as root/CLASS/NUMBER.png, as a camera or a scanner might have left them.
void write_digits(const fs::path& root) {
  kd::Digits digits({.shuffle = false});
  std::int64_t number = 0;
  for (const auto& loader : {digits.train_dataloader(), digits.val_dataloader()})
    for (const kd::Batch& batch : *loader) {
      const at::Tensor pixels = batch[0].mul(15);  // from 0 … 16 to 0 … 240
      const auto* const bytes = pixels.const_data_ptr<std::uint8_t>();
      for (std::int64_t i = 0; i < pixels.size(0); ++i, ++number) {
        const fs::path folder = root / std::to_string(batch.labels()[i].item<std::int64_t>());
        fs::create_directories(folder);
        kd::write_png(
            folder / (std::to_string(number) + ".png"),
            {.width = 8, .height = 8, .channels = 1, .pixels = {bytes + i * 64, bytes + i * 64 + 64}});
      }
    }
}

// Augments training images; `size` stays.
std::shared_ptr<const kd::Transform> augmentation() {
  kd::RandomAffineOptions affine{.degrees = {-10, 10}, .scale = {0.9, 1.1}};
  return std::make_shared<kd::Compose>(std::vector<std::shared_ptr<const kd::Transform>>{
      std::make_shared<kd::RandomCrop>(kd::RandomCropOptions{.size = {{8, 8}}, .padding = 1}),
      std::make_shared<kd::RandomAffine>(affine)});
}

int train(const fs::path& root) {
  if (!fs::exists(root)) write_digits(root);
  const auto files = std::make_shared<kd::ImageFolder>(
      kd::ImageFolderOptions{.root = root, .val_fraction = 0.2, .stratify = true},
      kd::DataOptions{.batch_size = 64, .sampler = "balanced"});
  kd::TransformedData data(files, {.train = augmentation()});

  torch::manual_seed(0);
  const auto model = std::make_shared<kd::SmallCnn>();
  const auto best = std::make_shared<kd::ModelCheckpoint>(
      kd::ModelCheckpointOptions{.dirpath = root.string() + ".checkpoints"});
  kd::TrainerOptions options{.max_epochs = 20, .callbacks = {best}};
  options.num_gpus = 1;
  kd::Trainer trainer(options);
  trainer.fit(model, data);

  kd::load_validated_weights(*model, best->best());
  std::cout << "accuracy " << trainer.validate(model, data).at("val_acc") << "\n";
  const fs::path program = root.string() + ".onnx";
  kd::export_program(*model, data, {.path = program, .values = kd::ExportedValues::labels});
  std::cout << program.string() << " takes uint8 images [batch, 1, 8, 8] and returns their classes\n";
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) {
    std::cerr << "usage: digit_images FOLDER\n";
    return 2;
  }
  return train(argv[1]);
} catch (const kd::Error& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
